"""The reading of a vision-language model: its tokens, its frames, and that shortcuts change no number."""

from __future__ import annotations

import pytest
import torch
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

from coevo.core import frames as pixels
from coevo.rewards import tiny, vlm
from coevo.rewards.vlm_config import PretrainedVlm, Prompt
from coevo.rewards.windows import tail
from tests.rewards.small_vlm import TINY


@pytest.fixture(scope="module")
def reader():
    torch.manual_seed(0)
    return make(*vlm.load(TINY))


def make(model, tokenizer, window: int = 8, prompt: Prompt | None = None):
    return vlm.VlmReader(model, tokenizer, prompt or Prompt(), window=window, step=1, fps=4.0).eval()


def noise(rows: int, frames: int) -> torch.Tensor:
    return torch.randint(0, 256, (rows, frames, 16, 16, 3), dtype=torch.uint8)


@torch.no_grad()
def read(reader, frames, ends, instruction="go", batch=16):
    return reader.read(frames, tail(ends, reader.window), [instruction] * len(frames), batch)


def test_the_answer_is_one_token_with_its_space(reader):
    token = reader.token_id(" True")
    assert reader.tokenizer("The answer is: True")["input_ids"][-1] == token != reader.token_id(" False")
    assert reader.tokenizer("True")["input_ids"] != [token]
    with pytest.raises(ValueError, match="' True or False' is 3 tokens"):
        reader.token_id(" True or False")


def test_every_frame_of_the_window_is_announced_and_dated_as_qwen_was_trained(reader):
    layout = reader.layout("go", (16, 16))
    assert layout.frames_read == reader.window == 8
    dates = Qwen3VLProcessor._calculate_timestamps(None, list(range(8)), 4.0, 2)
    pad = "<|video_pad|>" * 4  # 16 x 16 pixels in patches of 4, merged by 2 x 2
    video = "".join(f"<{date:.1f} seconds><|vision_start|>{pad}<|vision_end|>" for date in dates)
    assert reader.tokenizer.decode(layout.before[0]) == "<|im_start|>user\n"
    assert reader.tokenizer.decode(layout.after[0]) == video + Prompt().after.replace("{instruction}", "go")


def test_pairs_encoded_once_and_a_prefix_read_once_give_what_the_model_gives_by_itself(reader):
    frames, ends = noise(3, 10), [2, 5, 9]
    found = read(reader, frames, ends, batch=4)
    assert torch.allclose(found, read(reader, frames, ends, batch=64), atol=1e-5)
    layout = reader.layout("go", (16, 16))
    images = pixels.to_float(frames[:, tail([5], 8)[0]])
    patches, *grid = Qwen3VLVideoProcessor.patchify(None, images, patch_size=4, merge_size=2, temporal_patch_size=2)
    ids = torch.cat([layout.before, layout.after], dim=1).expand(3, -1)
    with torch.no_grad():
        whole = reader.model(
            input_ids=ids, pixel_values_videos=patches.flatten(0, 1), video_grid_thw=torch.tensor([grid] * 3),
            mm_token_type_ids=(ids == reader.model.config.video_token_id).int() * 2, logits_to_keep=1,
        )  # fmt: skip
        own = reader.model.lm_head(found[:, 1, -1])
    assert torch.allclose(whole.logits[:, 0], own, atol=1e-4)


def test_a_reading_changes_with_each_of_its_frames_and_with_no_other(reader):
    frames = noise(1, 10)
    before = read(reader, frames, [9])[0, 0, -1]
    for frame in range(10):
        other = frames.clone()
        other[:, frame] = 255 - other[:, frame]
        same = torch.equal(read(reader, other, [9])[0, 0, -1], before)
        assert same == (frame < 2), frame  # the window of 8 that ends at 9 begins at 2


def test_what_stands_before_the_video_is_read_once_per_text(reader):
    asked = make(reader.model, reader.tokenizer, prompt=Prompt(before="<|im_start|>user\n{instruction}", after="?"))
    seen = []
    hook = reader.model.get_input_embeddings().register_forward_hook(lambda _, given, __: seen.append(given[0].numel()))
    frames, layout = noise(2, 9), asked.layout("go on", (16, 16))
    prefix, rest = layout.before.shape[1], layout.after.shape[1]
    for _ in range(2):
        read(asked, frames, [8], "go on")
    read(asked, frames, [8], "stop")
    hook.remove()
    assert seen[:3] == [prefix, 2 * rest, 2 * rest] and len(seen) == 5


def test_rows_with_other_tasks_in_between_read_the_same(reader):
    frames, windows = noise(3, 9), tail([8], 8)
    with torch.no_grad():
        mixed = reader.read(frames, windows, ["go", "stop here", "go"], 4, lambda states: states[:, -1])
        alone = reader.read(frames[[0, 2]], windows, ["go", "go"], 4, lambda states: states[:, -1])
        other = reader.read(frames[[1]], windows, ["go"], 4, lambda states: states[:, -1])
    assert torch.allclose(mixed[[0, 2]], alone, atol=1e-5) and not torch.allclose(mixed[1], other[0], atol=1e-3)


def test_a_folder_loads_as_the_hub_does_and_is_pinned_to_its_weights(tmp_path):
    tiny.write(tmp_path / "vlm", TINY, seed=1)
    settings = PretrainedVlm(model=str(tmp_path / "vlm"), dtype="float32")
    model, tokenizer = vlm.load(settings)
    assert not any(weight.requires_grad for weight in model.parameters())
    ours = make(*vlm.load(TINY)).layout("go", (16, 16))
    assert torch.equal(make(model, tokenizer).layout("go", (16, 16)).after, ours.after)
    pinned = vlm.pinned(settings, model)
    assert pinned.revision.startswith("sha256:") and vlm.pinned(pinned, model) == pinned
    tiny.write(tmp_path / "vlm", TINY, seed=2)
    with pytest.raises(ValueError, match="was calibrated; calibrate the reward again"):
        vlm.pinned(pinned, model)
