"""What a policy is made of and how it is cloned from demonstrations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from coevo.records.base import Config


class FixedGaussian(Config):
    """Normal around the predicted action with a fixed standard deviation, which reinforcement cannot shrink."""

    kind: Literal["gaussian"] = "gaussian"
    std: PositiveFloat = 0.10


class FixedLaplace(Config):
    """Laplace around the predicted action with a fixed scale."""

    kind: Literal["laplace"] = "laplace"
    scale: PositiveFloat = 0.07


class LaplaceScale(Config):
    """Laplace with a predicted mean and a predicted scale per dimension (World-Env's scale head)."""

    kind: Literal["laplace_scale"] = "laplace_scale"
    low: PositiveFloat = 0.02
    """Smallest scale: cloning noise-free demonstrations would otherwise shrink it to nothing."""
    high: PositiveFloat = 0.5
    """Largest scale. The predicted logarithm is squashed between the two."""
    mean_loss: Literal["l1", "likelihood"] = "l1"
    """How cloning teaches the mean. l1: by the absolute error, and the likelihood then teaches the scale head alone,
    mean and features detached, as World-Env adds its scale head to a trained policy. likelihood: both by it."""

    @model_validator(mode="after")
    def _in_order(self) -> LaplaceScale:
        if self.low >= self.high:
            raise ValueError(f"low = {self.low} is not below high = {self.high}")
        return self


class Tokens(Config):
    """One of `bins` equal bins of [-1, 1] per dimension of the chunk, all in one pass (OpenVLA-OFT)."""

    kind: Literal["tokens"] = "tokens"
    bins: Annotated[int, Field(ge=2)] = 255
    """255 are OpenVLA's: the bins between its 256 edges."""


class SdeNoise(Config):
    """Flow-SDE: noise of strength `level` sqrt(t / (1 - t)) with the drift that keeps the flow's marginals."""

    kind: Literal["sde"] = "sde"
    level: PositiveFloat = 0.5


class LearnedNoise(Config):
    """Flow-Noise: around each Euler step, a standard deviation per dimension that a small network predicts."""

    kind: Literal["learned"] = "learned"
    low: PositiveFloat = 0.05
    high: PositiveFloat = 0.2


class Flow(Config):
    """Flow matching from noise (t = 1) to actions (t = 0), sampled by a chain of normal transitions (pi-RL)."""

    kind: Literal["flow"] = "flow"
    steps: Annotated[int, Field(ge=2)] = 4
    """Transitions from noise to actions."""
    noise: Annotated[SdeNoise | LearnedNoise, Field(discriminator="kind")] = SdeNoise()
    width: PositiveInt = 256
    """Of the action expert's hidden layers, where the backbone brings no expert of its own."""


Head = Annotated[FixedGaussian | FixedLaplace | LaplaceScale | Tokens | Flow, Field(discriminator="kind")]


class PolicyBase(Config):
    """What every policy has, whatever its backbone."""

    head: Head = FixedGaussian()
    segments: PositiveInt = 2
    """Actions predicted per chunk; each is held for chunk / segments control steps, so that noise moves the arm."""
    critic: bool = False
    """A value head for PPO."""
    critic_input: Literal["features", "action", "expert"] = "features"
    """What the critic reads. features: those before the action head (the output of a VLM). action: the drawn action,
    its noise included. expert: the hidden state of a flow head's action expert, meaned over the chain, which is mixed
    with noised actions. The last two are there for comparison."""

    @model_validator(mode="after")
    def _critic_finds_its_input(self) -> PolicyBase:
        if self.critic_input == "expert" and self.head.kind != "flow":
            raise ValueError(
                f"critic_input = 'expert' needs a flow head, this one is '{self.head.kind}'; let the critic read "
                "'features'"
            )
        return self


class SmallPolicyConfig(PolicyBase):
    """A convolutional policy of about half a million weights: current frame, proprioception, instruction."""

    kind: Literal["small"] = "small"
    channels: tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt] = (32, 64, 64, 64)
    """Of the four strided convolutions."""
    width: PositiveInt = 256


class HubPolicyBase(PolicyBase):
    """What policies on published backbones share."""

    lora_rank: PositiveInt | None = 32
    """Rank of LoRA (peft) on the linear layers of the language model's blocks; none trains no weight of it."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Of the published weights; heads, critic, projections made anew and LoRA stay float32."""


class OpenVlaConfig(HubPolicyBase):
    """Vision towers, a projector and a causal language model that decodes all actions in one pass (OpenVLA-OFT)."""

    kind: Literal["openvla"] = "openvla"
    checkpoint: str | None = "openvla/openvla-7b"
    """Hub id or local folder with OpenVLA's own weights; none takes the towers and the language model as they are."""
    vision: tuple[str, ...] = ("facebook/dinov2-with-registers-large", "google/siglip-so400m-patch14-224")
    """Hub ids or local folders of DINOv2 or SigLIP towers. Their patch features stand side by side."""
    language: str = "meta-llama/Llama-2-7b-hf"
    """Hub id or local folder of a causal language model; with a checkpoint only its shape and tokenizer are read."""


class PaliGemmaConfig(HubPolicyBase):
    """PaliGemma with a Gemma action expert that reads its keys and values (pi0.5)."""

    kind: Literal["paligemma"] = "paligemma"
    head: Flow = Flow()
    source: str = "google/paligemma-3b-pt-224"
    """Hub id or local folder of PaliGemma: its weights, processor settings and tokenizer."""
    checkpoint: str | None = "lerobot/pi05_base"
    """Hub id or local folder with pi0.5's own weights for both; none begins with PaliGemma and a new expert."""
    expert_width: PositiveInt = 1024
    """Hidden size of the action expert; layers and heads are PaliGemma's."""
    expert_ffn: PositiveInt = 4096
    """Size of its feed-forward layers."""


class Cloning(Config):
    """Behaviour cloning on noise-free expert actions."""

    steps: PositiveInt = 1500
    batch: PositiveInt = 128
    learning_rate: PositiveFloat = 1e-3
    weight_decay: NonNegativeFloat = 1e-4
    image_noise: NonNegativeFloat = 0.05
    """Standard deviation added to frames in [-1, 1]."""
    command_noise: NonNegativeFloat = 0.005
    """Standard deviation added to the commanded position, metres."""
