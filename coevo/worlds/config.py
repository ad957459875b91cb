"""What a world model is made of. One set of choices serves a few hundred thousand parameters and five billion."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from coevo.core.parts import PythonPart
from coevo.records.base import Config


class PixelCodec(Config):
    """Frames as they are; the transformer's patches do the compression."""

    kind: Literal["pixels"] = "pixels"


class ConvCodec(Config):
    """A small convolutional autoencoder, trained before the world model and frozen with it."""

    kind: Literal["conv"] = "conv"
    channels: PositiveInt = 16
    """Latent channels per cell of 8 x 8 pixels."""
    width: PositiveInt = 32
    """Channels of the first convolution; doubled twice towards the latent."""
    steps: PositiveInt = 2000
    """Training steps."""
    batch: PositiveInt = 256
    """Frames per training step."""
    learning_rate: PositiveFloat = 2e-3
    latent_noise: NonNegativeFloat = 0.1
    """Noise added to normalised latents before decoding in training, so that the decoder forgives the sampler."""


class WanVae(Config):
    """The causal video autoencoder of Wan (diffusers AutoencoderKLWan): 4 frames per latent frame after the first."""

    kind: Literal["wan_vae"] = "wan_vae"
    source: str = "Wan-AI/Wan2.2-TI2V-5B-Diffusers"
    """Hub id or local folder; the subfolder 'vae' is read."""


Codec = Annotated[PixelCodec | ConvCodec | WanVae, Field(discriminator="kind")]


class NewTransformer(Config):
    """A Wan transformer made anew, randomly initialised."""

    kind: Literal["new"] = "new"
    layers: PositiveInt
    heads: PositiveInt
    head_dim: PositiveInt = 64
    ffn_dim: PositiveInt
    patch: PositiveInt
    """Side of a patch in latent cells."""
    text_dim: PositiveInt = 32
    """Size of the learned word embeddings."""


class HubTransformer(Config):
    """A published Wan transformer, for example Wan2.2-TI2V-5B, fine-tuned whole or by LoRA."""

    kind: Literal["hub"] = "hub"
    source: str = "Wan-AI/Wan2.2-TI2V-5B-Diffusers"
    """Hub id or local folder; the subfolder 'transformer' is read."""
    lora_rank: PositiveInt | None = 32
    """Rank of LoRA on the attention projections; none trains all weights."""


class CosmosTransformer(Config):
    """A published Cosmos-Predict2 Video2World transformer, fine-tuned whole or by LoRA (World-VLA-Loop's).

    Its codec is that of the same source ('wan_vae'), its prediction 'velocity'.
    """

    kind: Literal["cosmos"] = "cosmos"
    source: str = "nvidia/Cosmos-Predict2-2B-Video2World"
    """Hub id or local folder; the subfolders 'transformer', 'text_encoder' and 'tokenizer' are read."""
    lora_rank: PositiveInt | None = 32
    """Rank of LoRA on the attention projections; none trains all weights."""


class RewardHeadConfig(Config):
    """A small head that reads success off each future frame's features, trained with the frames (World-VLA-Loop)."""

    hidden: PositiveInt = 128
    """Width of its two layers."""


class GeometryFeatures(Config):
    """A small encoder that tells from one frame where the gripper is and how near the task is to done."""

    kind: Literal["geometry"] = "geometry"
    channels: tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt] = (16, 32, 32, 16)
    """Of its four strided convolutions, multiples of 8; the last is the number of features."""
    steps: PositiveInt = 200
    """Training steps, where the world model is first given it; frozen from then on."""
    batch: PositiveInt = 64
    learning_rate: PositiveFloat = 2e-3


class DinoFeatures(Config):
    """Patch features of a published DINOv2, frozen: geometry (VGGT's own encoder is a DINOv2)."""

    kind: Literal["dinov2"] = "dinov2"
    source: str = "facebook/dinov2-base"
    """Hub id or local folder."""


class ClipFeatures(Config):
    """The pooled output of a published CLIP image encoder, frozen: semantics."""

    kind: Literal["clip"] = "clip"
    source: str = "openai/clip-vit-base-patch16"
    """Hub id or local folder."""


Features = Annotated[GeometryFeatures | DinoFeatures | ClipFeatures | PythonPart, Field(discriminator="kind")]


class WorldModelConfig(Config):
    """An action-conditioned video world model on a transformer class of diffusers: Wan's, or Cosmos-Predict2's."""

    kind: Literal["wan"] = "wan"
    transformer: Annotated[NewTransformer | HubTransformer | CosmosTransformer, Field(discriminator="kind")]
    codec: Codec
    history: PositiveInt = 2
    """Frames of history in the window, after the initial frame and before the future ones."""
    prediction: Literal["clean", "velocity"] = "clean"
    """clean: the output plus the last history frame is the clean future (as Li and He, 2025, train small models);
    velocity: the output is noise minus clean, as the published Wan weights have it."""
    action_maps: bool = True
    """Gaussians at the projections of the commanded pose and its floor point, added through weights zero at first."""
    map_sigma: PositiveFloat = 1.5
    """Standard deviation of those Gaussians, pixels."""
    pose_condition: bool = True
    """Absolute commanded pose per frame in the modulation."""
    sampling_steps: PositiveInt = 4
    """Euler steps per chunk when dreaming."""
    noise: NonNegativeFloat = 1.0
    """Standard deviation of what sampling begins with. 0 leaves chance out: what is drawn is then the mean of what may
    happen, the same each time. It goes with one Euler step, and in training with `pure_noise` and `self_rollout_steps`
    of 1."""
    reward_head: RewardHeadConfig | None = None
    """A head of its own that says of each frame whether the task is done; none has none."""
    features: tuple[Features, ...] = ()
    """Frozen image encoders whose features of the context frames are added to its tokens, weights zero at first."""
    compile: bool = False
    """On a GPU, compile the transformer's blocks: half a minute once per process, then shorter steps."""

    @model_validator(mode="after")
    def _steps_leave_something_to_see(self) -> WorldModelConfig:
        if not self.noise and self.sampling_steps > 1:
            raise ValueError(
                f"noise = 0, sampling_steps = {self.sampling_steps}: without noise there is one Euler step; "
                "set sampling_steps to 1"
            )
        if self.reward_head is not None and self.sampling_steps == 1:
            raise ValueError(
                "reward_head with sampling_steps = 1: a head reads frames noised to 1 / sampling_steps, and with one "
                "step nothing of them would be left; set sampling_steps to 2 or more, and train the head so"
            )
        return self

    @model_validator(mode="after")
    def _fits_cosmos(self) -> WorldModelConfig:
        if isinstance(self.transformer, CosmosTransformer):
            if self.prediction != "velocity":
                raise ValueError("prediction = 'clean': Cosmos was published with 'velocity'")
            if self.compile:
                raise ValueError("compile = true: diffusers names no repeated blocks of Cosmos; leave it out")
        return self


class Form(Config):
    """Changes of a world model's configuration where it is fine-tuned. What is left out stays as the parent has it.

    Parts that the parent lacks are made anew and change nothing of what is drawn before they are trained. Another
    history shows the model more or less of the past, so that what it draws differs from the first step on.
    """

    history: PositiveInt | None = None
    action_maps: bool | None = None
    map_sigma: PositiveFloat | None = None
    pose_condition: bool | None = None
    sampling_steps: PositiveInt | None = None
    noise: NonNegativeFloat | None = None
    reward_head: RewardHeadConfig | None = None
    features: tuple[Features, ...] | None = None
    compile: bool | None = None

    def of(self, parent: WorldModelConfig) -> WorldModelConfig:
        """The parent's configuration with these changes."""
        changes = {name: value for name, value in self if value is not None}
        return WorldModelConfig.parse(dict(parent) | changes, "the world model in its new form")


class WorldTraining(Config):
    """How a world model is trained or fine-tuned."""

    steps: PositiveInt
    batch: PositiveInt = 256
    learning_rate: PositiveFloat = 4e-4
    ema: Annotated[float, Field(ge=0, lt=1)] = 0.998
    """Decay of the averaged weights, which are what is saved."""
    weight_decay: NonNegativeFloat = 0.01
    self_rollout: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of the batch whose history is the model's own sample (no gradient)."""
    self_rollout_from: Literal["recorded", "start"] = "recorded"
    """recorded: that history is one chunk, drawn behind recorded frames; start: everything since the episode's start is
    the model's own, as in a dream. Such a row goes through its episode, a chunk a training step, at the same cost, and
    those that a training begins with are taken up in its midst."""
    self_rollout_steps: PositiveInt = 2
    """Euler steps of each chunk of it."""
    together: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the batch that is drawn as twins: two episodes from one start with opposite outcomes, cut at the same
    decision, under the same noise, so that only what the actions did differs. Episodes without a twin stay alone."""
    history_noise: NonNegativeFloat = 0.03
    """Largest standard deviation of the noise on history."""
    moved_weight: PositiveFloat = 5.0
    """Loss weight of latent cells in which a pixel moved."""
    sigma_mean: float = 0.8
    """Noise level = sigmoid of a normal draw with this mean and standard deviation 1."""
    pure_noise: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the batch at noise level 1, where sampling begins."""
    reward_weight: NonNegativeFloat = 0.1
    """Weight of the reward head's loss beside that of flow matching; without a head nothing is weighed."""
    last_step: Annotated[float, Field(ge=0, le=1)] = 0.25
    """Share of the batch at the noise level of sampling's last step, where a reward head is read; only with a head."""
    warmup: PositiveInt = 100
    """Steps of linear warm-up; cosine decay follows."""
    checkpoint_every: PositiveInt = 500
    """Steps between resumable checkpoints."""
    gradient_clip: PositiveFloat = 1.0

    @model_validator(mode="after")
    def _rows_walk_alone(self) -> WorldTraining:
        if self.together and self.self_rollout_from == "start":
            raise ValueError(
                "'together' lays episodes side by side at one decision, and self_rollout_from = 'start' takes each row "
                "through its own episode; choose one of them"
            )
        return self
