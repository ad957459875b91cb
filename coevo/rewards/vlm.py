"""A Qwen3-VL model that reads windows of frames and writes nothing.

The layout of the input is written out here, and not left to a processor that samples frames by metadata it may not
have been given: sixteen frames in, sixteen frames read. Each pair of frames is encoded once, however many windows it
stands in, and what stands before the video is read once per task.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn

from coevo.core import artifacts
from coevo.core import frames as pixels
from coevo.rewards import tiny
from coevo.rewards.vlm_config import PretrainedVlm, Prompt, TinyVlm

PAIR = 2
"""Frames that the vision encoder merges into one (its temporal patch)."""


@dataclass(frozen=True)
class Layout:
    """The token sequence of a window, the same for all windows of one task."""

    before: Int64[Tensor, "1 p"]
    after: Int64[Tensor, "1 l"]
    """From the first timestamp on: the video, then the question."""
    positions: Int64[Tensor, "3 1 pl"]
    frames_read: int
    """Counted from the video tokens that the model is given."""


@dataclass(frozen=True)
class Features:
    """Encoded pairs of frames: `u` pairs of `v` tokens each, and what deeper layers of the encoder add."""

    merged: Float[Tensor, "u v d"]
    deep: tuple[Float[Tensor, "u v d"], ...]

    def of(self, windows: Int64[Tensor, "b p"]) -> Features:
        """The pairs of each window, in order."""
        return Features(self.merged[windows].flatten(0, 1), tuple(item[windows].flatten(0, 1) for item in self.deep))


class VlmReader(nn.Module):
    """Reads windows of `window` frames, told to stand `step` frames apart in a video of `fps`."""

    def __init__(
        self, model, tokenizer, prompt: Prompt, *, window: int, step: int, fps: float, side: int | None = None
    ) -> None:
        super().__init__()
        self.model, self.tokenizer, self.prompt = model, tokenizer, prompt
        self.window, self.step, self.fps, self.side = window, step, fps, side
        vision = model.config.vision_config
        if vision.temporal_patch_size != PAIR:
            raise ValueError(f"the model merges {vision.temporal_patch_size} frames, {PAIR} are expected")
        self.patch, self.merge = vision.patch_size, vision.spatial_merge_size
        self.width = model.config.text_config.hidden_size
        self._prefixes: dict[tuple, object] = {}

    def train(self, mode: bool = True) -> VlmReader:
        """As in nn.Module; what was kept of prefixes belongs to other weights and is dropped."""
        self._prefixes.clear()
        return super().train(mode)

    def token_id(self, token: str) -> int:
        """Id of a text that is one token; ValueError if it is not."""
        ids = self.tokenizer(token, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            raise ValueError(f"{token!r} is {len(ids)} tokens for this model's tokenizer; name one that is one token")
        return ids[0]

    def layout(self, instruction: str, camera: tuple[int, int]) -> Layout:
        """The token sequence for frames of this height and width."""
        rows, columns = (side // self.patch for side in self._size(camera))
        each = rows * columns // self.merge**2
        # Frame i of the window was taken at i step / fps; a pair is dated in its middle, as Qwen3-VL was trained.
        times = [(pair * PAIR + (PAIR - 1) / 2) * self.step / self.fps for pair in range(self.window // PAIR)]
        pad = "<|video_pad|>"
        video = "".join(f"<{time:.1f} seconds><|vision_start|>{pad * each}<|vision_end|>" for time in times)
        device = self.model.device
        texts = (self.prompt.before, video + self.prompt.after)
        before, after = (
            torch.tensor([self.tokenizer(part.replace("{instruction}", instruction), add_special_tokens=False)
                          ["input_ids"]], device=device)
            for part in texts
        )  # fmt: skip
        whole = torch.cat([before, after], dim=1)
        is_video = whole == self.model.config.video_token_id
        grid = torch.tensor([[self.window // PAIR, rows, columns]], device=device)
        positions, _ = self.model.model.get_rope_index(whole, is_video.int() * 2, video_grid_thw=grid)
        return Layout(before, after, positions, int(is_video.sum()) // each * PAIR)

    def encode(self, pairs: UInt8[Tensor, "u 2 h w 3"]) -> Features:
        """Tokens of pairs of frames. The encoder attends within a pair only, so a pair is the same in any window."""
        from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

        images = pixels.to_float(pairs.to(self.model.device))  # Qwen3-VL's mean and deviation are 0.5: this range
        size = self._size(pairs.shape[2:4])
        if size != tuple(pairs.shape[2:4]):
            flat = F.interpolate(images.flatten(0, 1), size=size, mode="bicubic", antialias=True).clamp(-1.0, 1.0)
            images = flat.unflatten(0, images.shape[:2])
        patches, _, rows, columns = Qwen3VLVideoProcessor.patchify(
            None, images, patch_size=self.patch, merge_size=self.merge, temporal_patch_size=PAIR
        )
        grid = torch.tensor([[1, rows, columns]] * len(pairs), device=self.model.device)
        found = self.model.model.get_video_features(patches.flatten(0, 1), grid, return_dict=True)
        return Features(torch.stack(found.pooler_output), tuple(torch.stack(item) for item in found.deepstack_features))

    def states(self, features: Features, instruction: str, camera: tuple[int, int]) -> Float[Tensor, "b l d"]:
        """Last hidden states behind the prefix, of windows whose pairs stand one after the other in `features`."""
        from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

        layout = self.layout(instruction, camera)
        batch = len(features.merged) // (self.window // PAIR)
        ids, positions, cache = layout.after, layout.positions, None
        if torch.is_grad_enabled():
            ids = torch.cat([layout.before, layout.after], dim=1)
        else:
            positions = positions[..., layout.before.shape[1] :]
            cache = self._prefix(layout, batch)
        video = BaseModelOutputWithDeepstackFeatures(
            pooler_output=(features.merged.flatten(0, 1),),
            deepstack_features=[(item.flatten(0, 1),) for item in features.deep],
        )
        found = self.model.model(
            input_ids=ids.expand(batch, -1), position_ids=positions.expand(-1, batch, -1), cache=cache,
            use_cache=cache is not None, mm_encoder_outputs={"video": video},
        )  # fmt: skip
        return found.last_hidden_state[:, -layout.after.shape[1] :]

    def read(
        self,
        frames: UInt8[Tensor, "n f1 h w 3"],
        windows: Int64[Tensor, "e win"],
        instructions: Sequence[str],
        batch: int,
        take: Callable[[Tensor], Tensor] = lambda states: states,
    ) -> Float[Tensor, "n e *z"]:
        """What `take` makes of the hidden states [b l d] behind the prefix, of each window of each row.

        Rows are grouped by instruction, so none is padded; `batch` windows are read at a time.
        """
        pairs, inverse = torch.unique(windows.view(-1, PAIR), dim=0, return_inverse=True)
        inverse = inverse.view(len(windows), -1)
        camera = tuple(frames.shape[2:4])
        out: list[Tensor | None] = [None] * len(frames)
        for instruction in dict.fromkeys(instructions):
            rows = [row for row, own in enumerate(instructions) if own == instruction]
            per = max(batch // len(windows), 1)
            for first in range(0, len(rows), per):
                part = rows[first : first + per]
                features = self.encode(frames[part][:, pairs].flatten(0, 1))
                offset = torch.arange(len(part))[:, None, None] * len(pairs)
                index = rearrange(inverse[None] + offset, "n e p -> (n e) p").to(features.merged.device)
                states = [take(self.states(features.of(some), instruction, camera)) for some in index.split(batch)]
                for row, found in zip(part, torch.cat(states).unflatten(0, (len(part), -1)), strict=True):
                    out[row] = found
        return torch.stack(out)

    def _prefix(self, layout: Layout, batch: int):
        """Keys and values of what stands before the video, for `batch` rows; computed once per text."""
        from transformers import DynamicCache

        key = (tuple(layout.before[0].tolist()), self.model.device)
        if key not in self._prefixes:
            cache = DynamicCache(config=self.model.config.text_config)
            self.model.model(
                input_ids=layout.before, position_ids=layout.positions[..., : layout.before.shape[1]], cache=cache,
                use_cache=True,
            )  # fmt: skip
            self._prefixes[key] = cache
        cache = copy.deepcopy(self._prefixes[key])
        cache.batch_repeat_interleave(batch)
        return cache

    def _size(self, camera: Sequence[int]) -> tuple[int, int]:
        """Height and width that the model sees: the nearest that its merged patches divide."""
        unit = self.patch * self.merge
        height, width = (self.side, self.side) if self.side else camera
        return max(round(height / unit), 1) * unit, max(round(width / unit), 1) * unit


def load(settings: PretrainedVlm | TinyVlm):
    """Model and tokenizer; a tiny model's weights come from torch's generator. Pretrained weights are frozen."""
    from transformers import AutoTokenizer, Qwen3VLForConditionalGeneration

    if isinstance(settings, TinyVlm):
        with tempfile.TemporaryDirectory() as folder:
            tiny.write_tokenizer(Path(folder))
            tokenizer = AutoTokenizer.from_pretrained(folder)
        return tiny.make_model(settings, tokenizer), tokenizer
    revision = None if Path(settings.model).is_dir() else settings.revision
    tokenizer = AutoTokenizer.from_pretrained(settings.model, revision=revision)
    model = Qwen3VLForConditionalGeneration.from_pretrained(
        settings.model, revision=revision, dtype=getattr(torch, settings.dtype)
    )
    return model.requires_grad_(False), tokenizer


def pinned(settings: PretrainedVlm | TinyVlm, model) -> PretrainedVlm | TinyVlm:
    """The settings with the revision that was loaded; ValueError if another one was asked for."""
    if isinstance(settings, TinyVlm):
        return settings
    folder = Path(settings.model)
    if folder.is_dir():
        hashes = [artifacts.file_sha256(file) for file in sorted(folder.glob("*.safetensors"))]
        found = "sha256:" + "-".join(part[:16] for part in hashes)
    else:
        found = model.config._commit_hash
    if settings.revision not in (None, found):
        raise ValueError(
            f"{settings.model} holds revision {found}, {settings.revision} was calibrated; calibrate the reward again, "
            "or bring back the weights"
        )
    return settings.model_copy(update={"revision": found})
