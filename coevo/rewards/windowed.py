"""Reward models that look at a window of frames through a vision-language model.

Three ways of asking, one way of reading: windows end where readings are taken, a reading is a number in [0, 1], and
the episode's verdict is the peak of its readings.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32, Int64, UInt8
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor, nn

from coevo.core.types import Verdicts
from coevo.records.interface import Interface
from coevo.records.outcomes import Calibration
from coevo.rewards import vlm
from coevo.rewards.calibration import Looked
from coevo.rewards.classifier import read_peak
from coevo.rewards.config import CompletionConfig, DenseProgressConfig, TopRewardConfig, WindowConfig
from coevo.rewards.vlm_config import PretrainedVlm
from coevo.rewards.windows import per_frame, reading_frames, spread, tail


class WindowReward(nn.Module):
    """RewardModel protocol. Subclasses say what is taken from the hidden states and how that is trained."""

    unit = "probability"
    token: str | None = None

    def __init__(self, config: WindowConfig, interface: Interface, id: str = "reward") -> None:
        super().__init__()
        self.interface, self.id = interface, id
        self.calibration: Calibration | None = None
        model, tokenizer = vlm.load(config.vlm)
        self.config = config.model_copy(update={"vlm": vlm.pinned(config.vlm, model)})
        self.reader = vlm.VlmReader(
            model, tokenizer, config.prompt, window=config.window, step=config.step,
            fps=config.fps or interface.fps, side=config.side,
        )  # fmt: skip

    def windows(self, ends: Sequence[int]) -> Int64[Tensor, "e win"]:
        """Frames of the windows that end at `ends`."""
        return tail(ends, self.config.window, self.config.step)

    def taken(self, states: Float[Tensor, "b l d"]) -> Float[Tensor, "b z"]:
        """What a reading is made of: here the last hidden state."""
        return states[:, -1]

    def readings(self, taken: Float[Tensor, "n e z"]) -> Float32[Tensor, "n e"]:
        """Numbers in [0, 1]."""
        raise NotImplementedError

    def loss(
        self, taken: Float[Tensor, "b z"], success: Bool[Tensor, " b"], progress: Float32[Tensor, " b"]
    ) -> Float32[Tensor, ""]:
        """Of readings against what the simulator knew at their frames."""
        raise NotImplementedError

    def look(
        self, frames: UInt8[Tensor, "n f1 h w 3"], windows: Int64[Tensor, "e win"], instructions: Sequence[str]
    ) -> Float[Tensor, "n e z"]:
        """`taken` of each window of each row."""
        return self.reader.read(frames, windows, instructions, self.config.batch, self.taken)

    def looked(self) -> Looked:
        """What a reading has in front of it, counted at the model's input."""
        layout = self.reader.layout(self.interface.instruction, (self.interface.camera.height,
                                                                 self.interface.camera.width))  # fmt: skip
        return Looked(
            frames_given=self.config.window, frames_read=layout.frames_read, fps=self.reader.fps / self.config.step,
            window=self.config.window, token=self.token, unit=self.unit,
        )  # fmt: skip

    @torch.no_grad()
    def continued(
        self, frames: UInt8[Tensor, "n g h w 3"], new: int, instructions: Sequence[str] | None = None
    ) -> Float32[Tensor, "n new"]:
        """Of the last `new` frames of episodes that go on: windows reach back into those before."""
        first = frames.shape[1] - new
        ends = reading_frames(self.interface, self.config.every, first, frames.shape[1] - 1)
        if not ends:
            return torch.zeros(len(frames), new, device=frames.device)
        instructions = instructions or [self.interface.instruction] * len(frames)
        found = self.readings(self.look(frames, self.windows(ends), instructions))
        return per_frame(found, ends, frames.shape[1])[:, first:].to(frames.device)

    def probabilities(
        self, frames: UInt8[Tensor, "n f h w 3"], instructions: Sequence[str] | None = None
    ) -> Float32[Tensor, "n f"]:
        """Of whole episodes; without `instructions`, of the interface's task."""
        return self.continued(frames, frames.shape[1], instructions)

    def verdicts(self, frames: UInt8[Tensor, "n f1 h w 3"], instructions: Sequence[str]) -> Verdicts:
        """Judge episodes by the peak from the interface's `success_from` on."""
        if self.calibration is None:
            raise ValueError(f"{self.id} has no calibration yet; run the stage calibrate_reward")
        return read_peak(
            self.probabilities(frames, instructions), self.calibration.threshold_as_probability,
            self.interface.success_from, self.id,
        )  # fmt: skip

    def kept(self) -> dict[str, Tensor]:
        """The weights that an artifact holds: all but those of a pretrained model, which its revision names."""
        if not isinstance(self.config.vlm, PretrainedVlm):
            return self.state_dict()
        own = {name for name, weight in self.named_parameters() if weight.requires_grad or "lora_" in name}
        return {name: weight for name, weight in self.state_dict().items()
                if name in own or not name.startswith("reader.model.")}  # fmt: skip

    def load_kept(self, state: dict[str, Tensor]) -> None:
        """The inverse; ValueError where the weights are of another model."""
        missing, unexpected = set(self.kept()) - set(state), set(state) - set(self.kept())
        if missing or unexpected:
            raise ValueError(f"{self.id}: weights do not fit, missing {sorted(missing)}, unknown {sorted(unexpected)}")
        self.load_state_dict(state, strict=False)


class TopReward(WindowReward):
    """Probability of one token behind the question (TOPReward, arXiv:2602.19313)."""

    def __init__(self, config: TopRewardConfig, interface: Interface, id: str = "reward") -> None:
        super().__init__(config, interface, id)
        self.token = config.token
        self.answers = [self.reader.token_id(config.token), self.reader.token_id(config.other)]

    def readings(self, taken: Float[Tensor, "n e z"]) -> Float32[Tensor, "n e"]:
        """The token's share of the whole vocabulary."""
        return self.reader.model.lm_head(taken).float().softmax(dim=-1)[..., self.answers[0]]

    def loss(
        self, taken: Float[Tensor, "b z"], success: Bool[Tensor, " b"], progress: Float32[Tensor, " b"]
    ) -> Float32[Tensor, ""]:
        """Cross-entropy of the answer over the whole vocabulary; a pretrained model has nothing to train."""
        true, false = (torch.full_like(success, answer, dtype=torch.int64) for answer in self.answers)
        return F.cross_entropy(self.reader.model.lm_head(taken).float(), torch.where(success, true, false))


class DenseProgress(WindowReward):
    """Progress from 0 to 10 from a head on the last hidden state, with adapters in the language model's attention."""

    unit = "progress"

    def __init__(self, config: DenseProgressConfig, interface: Interface, id: str = "reward") -> None:
        super().__init__(config, interface, id)
        if config.rank:
            names = r".*language_model.*\.(q|k|v|o)_proj"
            lora = LoraConfig(r=config.rank, lora_alpha=2 * config.rank, target_modules=names)
            inject_adapter_in_model(lora, self.reader.model)
            if not isinstance(config.vlm, PretrainedVlm):
                self.reader.model.requires_grad_(True)  # a tiny model knows nothing that would be worth keeping
        self.head = nn.Sequential(nn.Linear(self.reader.width, config.hidden), nn.SiLU(), nn.Linear(config.hidden, 1))

    def progress(self, taken: Float[Tensor, "*n z"]) -> Float32[Tensor, "*n"]:
        """From 0 to 10 where it was learned; not bounded."""
        return self.head(taken.float())[..., 0] * 10.0

    def readings(self, taken: Float[Tensor, "n e z"]) -> Float32[Tensor, "n e"]:
        """Progress over 10, cut to [0, 1]."""
        return (self.progress(taken) / 10.0).clamp(0.0, 1.0)

    def loss(
        self, taken: Float[Tensor, "b z"], success: Bool[Tensor, " b"], progress: Float32[Tensor, " b"]
    ) -> Float32[Tensor, ""]:
        """Squared error on the scale of 0 to 1: what has succeeded is at 10, whatever its nearness."""
        target = torch.where(success, torch.ones_like(progress), progress)
        return F.mse_loss(self.progress(taken) / 10.0, target)


class Completion(WindowReward):
    """Probability of completion from a head on the mean hidden state of a frozen model (World-Env, 9.2)."""

    def __init__(self, config: CompletionConfig, interface: Interface, id: str = "reward") -> None:
        super().__init__(config, interface, id)
        self.reader.model.requires_grad_(False)
        self.head = nn.Sequential(
            nn.LayerNorm(self.reader.width), nn.Linear(self.reader.width, config.hidden), nn.SiLU(),
            nn.Linear(config.hidden, 1),
        )  # fmt: skip

    def windows(self, ends: Sequence[int]) -> Int64[Tensor, "e win"]:
        """Spread over the episode so far."""
        return spread(ends, self.config.window)

    def taken(self, states: Float[Tensor, "b l d"]) -> Float[Tensor, "b z"]:
        """The mean over the video and the question."""
        return states.mean(dim=1)

    def readings(self, taken: Float[Tensor, "n e z"]) -> Float32[Tensor, "n e"]:
        """Probability of completion."""
        return self.head(taken.float())[..., 0].sigmoid()

    def loss(
        self, taken: Float[Tensor, "b z"], success: Bool[Tensor, " b"], progress: Float32[Tensor, " b"]
    ) -> Float32[Tensor, ""]:
        """Binary cross-entropy on the simulator's per-frame success."""
        return F.binary_cross_entropy_with_logits(self.head(taken.float())[..., 0], success.float())
