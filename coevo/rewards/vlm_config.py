"""Which vision-language model reads, and what it is asked."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from coevo.records.base import Config


class PretrainedVlm(Config):
    """A Qwen3-VL model of the hub, or of a folder in its layout."""

    kind: Literal["pretrained"] = "pretrained"
    model: str = "Qwen/Qwen3-VL-8B-Instruct"
    """Hub identifier, or a folder."""
    revision: str | None = None
    """Commit on the hub; of a folder, the hash of its weights. Filled in where the reward is calibrated, and what
    differs is refused afterwards."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"


class TinyVlm(Config):
    """The same classes at the size of a laptop, with random weights and a tokenizer of our own."""

    kind: Literal["tiny"] = "tiny"
    hidden: PositiveInt = 64
    """Width of the language model and of the vision encoder."""
    layers: PositiveInt = 2
    vision_layers: PositiveInt = 2
    heads: PositiveInt = 4
    patch: PositiveInt = 8
    """Pixels per side of a vision patch; 2 x 2 of them are one token."""


Vlm = Annotated[PretrainedVlm | TinyVlm, Field(discriminator="kind")]

TRAJECTORY = "The above video shows a robot manipulation trajectory that completes the following task: {instruction}"


class Prompt(Config):
    """Text around the video. '{instruction}' is replaced by the task's."""

    before: str = "<|im_start|>user\n"
    """Its tokens are the same for all videos of a task: they are read once."""
    after: str = f"{TRAJECTORY} Decide whether the above statement is True or not. The answer is:"
    """The wording of TOPReward (arXiv:2602.19313), which puts the instruction behind the video."""

    @model_validator(mode="after")
    def _asks_about_the_task(self) -> Prompt:
        if "{instruction}" not in self.before + self.after:
            raise ValueError("neither 'before' nor 'after' holds '{instruction}': every task would be judged alike")
        return self


class Looking(Config):
    """What is common to reward models that look at a window of frames."""

    vlm: Vlm = PretrainedVlm()
    prompt: Prompt = Prompt()
    window: Annotated[int, Field(ge=2)] = 16
    """Frames per reading, all of them given to the model: nothing samples among them again."""
    step: PositiveInt = 1
    """Recorded frames between two of the window."""
    fps: float | None = Field(default=None, gt=0)
    """Frame rate of the recorded frames that the model is told; none tells it the true one."""
    every: Literal["chunk", "frame"] = "chunk"
    """When a reading is taken: after each decision, or at each frame."""
    side: PositiveInt | None = None
    """Pixels per side that frames are resized to; none leaves them."""
    batch: PositiveInt = 16
    """Windows read at a time."""

    @model_validator(mode="after")
    def _frames_come_in_pairs(self) -> Looking:
        if self.window % 2:
            raise ValueError(f"window = {self.window}: the model merges frames in pairs, give an even number")
        return self
