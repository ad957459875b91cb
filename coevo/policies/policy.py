"""A policy: a backbone, an action head, and a critic where there is one."""

from __future__ import annotations

import torch
from jaxtyping import Float, Float32, Int64, UInt8
from torch import Tensor, nn

from coevo.core import text
from coevo.core.types import ActionChunk, Observation, Sampling
from coevo.policies.backbone import Backbone, Features
from coevo.policies.config import Flow, LaplaceScale, PolicyBase, Tokens
from coevo.policies.flow import FlowHead
from coevo.policies.heads import FixedHead, Head, LaplaceScaleHead, Score, TokenHead
from coevo.records.interface import Interface


class LearnedPolicy(nn.Module):
    """Policy protocol. What a draw holds is the head's affair; `actions` says what it does."""

    def __init__(self, config: PolicyBase, backbone: Backbone, interface: Interface, id: str = "policy") -> None:
        super().__init__()
        self.config, self.interface, self.id = config, interface, id
        self.backbone = backbone
        self.head = make_head(config, backbone, len(interface.action.names))
        self.critic = None
        if config.critic:
            w, read = backbone.width, self._critic_reads()
            self.critic = nn.Sequential(nn.Linear(read, w), nn.SiLU(), nn.Linear(w, 1))
        self.register_load_state_dict_pre_hook(_rename)

    @property
    def device(self) -> torch.device:
        """Where the policy decides."""
        return next(self.head.parameters()).device

    def act(self, observation: Observation, keys: Int64[Tensor, " n"], sampling: Sampling) -> ActionChunk:
        """Sampled by the rows' keys, or the most likely action (greedy)."""
        device = self.device
        self.backbone.remember(observation.instructions)
        features = self.backbone(
            observation.frames[:, -1].to(device), observation.proprio[:, -1].to(device),
            text.words(observation.instructions).to(device),
        )  # fmt: skip
        draw = self.head.draw(features, keys.to(device) if sampling == "sampled" else None)
        score = self.head.score(features, draw)
        return ActionChunk(self.actions(draw), draw, score.log_prob, self._value(features, draw, score))

    def evaluate(
        self, frames: UInt8[Tensor, "n h w 3"], proprio: Float32[Tensor, "n p"], words: Int64[Tensor, "n l"],
        draw: Float32[Tensor, "n c"],
    ) -> tuple[Float[Tensor, "n m"], Float[Tensor, " n"] | None]:  # fmt: skip
        """Log-probability of a draw per scored term, and the value where there is a critic."""
        features = self.backbone(frames, proprio, words)
        score = self.head.score(features, draw)
        return score.log_prob, self._value(features, draw, score)

    def expected_value(
        self, frames: UInt8[Tensor, "n h w 3"], proprio: Float32[Tensor, "n p"], words: Int64[Tensor, "n l"]
    ) -> Float[Tensor, " n"]:
        """The critic's estimate where the policy would take its most likely action."""
        features = self.backbone(frames, proprio, words)
        draw = self.head.draw(features, None)
        return self._value(features, draw, self.head.score(features, draw))

    def _critic_reads(self) -> int:
        match self.config.critic_input:
            case "features":
                return self.backbone.width
            case "action":
                return self.config.segments * len(self.interface.action.names)
            case "expert":
                return self.head.expert.width

    def _value(self, features: Features, draw: Tensor, score: Score) -> Float[Tensor, " n"] | None:
        """Expected return. What the critic reads is detached, so learning it never moves the policy."""
        if self.critic is None:
            return None
        match self.config.critic_input:
            case "features":
                read = features.pooled
            case "action":
                read = self.head.held(draw)
            case "expert":
                read = score.expert
        return self.critic(read.detach())[:, 0]

    def cloning_loss(
        self, frames: UInt8[Tensor, "n h w 3"], proprio: Float32[Tensor, "n p"], words: Int64[Tensor, "n l"],
        target: Float32[Tensor, "n d"], image_noise: Tensor, source: torch.Generator,
    ) -> Tensor:  # fmt: skip
        """The head's loss on `targets` of expert actions; `source` is the randomness of this step."""
        return self.head.loss(self.backbone(frames, proprio, words, image_noise), target, source)

    def actions(self, draw: Float32[Tensor, "n c"]) -> Float32[Tensor, "n k a"]:
        """Held actions spread over the control steps of the chunk, clipped to what the simulator takes."""
        held = self.head.held(draw).unflatten(1, (self.config.segments, -1)).clamp(-1.0, 1.0)
        return held.repeat_interleave(self.interface.chunk // self.config.segments, dim=1)

    def targets(self, label: Float32[Tensor, "n k a"]) -> Float32[Tensor, "n d"]:
        """The held actions nearest to per-step actions: the mean over each segment."""
        return label.unflatten(1, (self.config.segments, -1)).mean(dim=2).flatten(1)

    def saved_state(self) -> dict[str, Tensor]:
        """Weights of an artifact: all but published ones that training never moves."""
        left_out = {f"backbone.{name}" for name in self.backbone.frozen_names()}
        return {name: value for name, value in self.state_dict().items() if name not in left_out}

    def load_saved(self, state: dict[str, Tensor], where: str) -> None:
        """The inverse of `saved_state`; ValueError if weights are missing or unknown."""
        wrong = self.load_state_dict(state, strict=False)
        missing = set(wrong.missing_keys) - {f"backbone.{name}" for name in self.backbone.frozen_names()}
        if missing or wrong.unexpected_keys:
            raise ValueError(
                f"{where} does not fit its configuration: missing {sorted(missing)[:5]}, unknown "
                f"{sorted(wrong.unexpected_keys)[:5]}; was it made with another version or by hand?"
            )


def make_head(config: PolicyBase, backbone: Backbone, actions: int) -> Head:
    """The configured head over `actions` dimensions."""
    size = config.segments * actions
    match config.head:
        case Tokens() as settings:
            return TokenHead(settings, backbone, size)
        case Flow() as settings:
            return FlowHead(settings, backbone, size, config.segments)
        case LaplaceScale() as settings:
            return LaplaceScaleHead(settings, backbone, size, actions)
        case settings:
            return FixedHead(settings, backbone, size, actions)


def _rename(module: nn.Module, state: dict[str, Tensor], *_) -> None:
    """Weights saved when the small policy was one module: its parts now stand in the backbone and the head."""
    for name in [name for name in state if name.split(".")[0] in ("encoder", "image", "instruction", "trunk", "mean")]:
        owner = "head" if name.startswith("mean.") else "backbone"
        state[f"{owner}.{name}"] = state.pop(name)
