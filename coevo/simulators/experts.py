"""Scripted experts."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float64

Vector = Float64[np.ndarray, " 3"]


@dataclass(frozen=True)
class Scene:
    """What an expert sees at one control step, metres; a perturbation may have falsified object and goal."""

    hand: Vector
    opening: float
    """Distance of the fingers, 0 closed to 1 open."""
    object: Vector
    goal: Vector
    object_start: Vector
    """Where the object was seen at the start of the episode."""
    object_rotation: Float64[np.ndarray, " 4"]


class Expert(Protocol):
    """Made anew for each episode."""

    def act(self, scene: Scene) -> Float64[np.ndarray, " 4"]:
        """The next action, not yet clipped."""
        ...


class GraspExpert:
    """Hover above the object, descend, close, carry to the goal.

    It goes by where the object was at the start, so a grasp that missed goes on and fails as a policy's would.
    """

    gain, hover, grasp, closing = 10.0, 0.1, 0.03, 8

    def __init__(self) -> None:
        self._phase = "hover"
        self._closed_for = 0

    def act(self, scene: Scene) -> Float64[np.ndarray, " 4"]:
        """As in Expert."""
        aim = scene.object_start + np.array([-0.005, 0.0, 0.0])  # the fingers close a little beside the hand's centre
        if self._phase == "hover" and np.linalg.norm((scene.hand - aim)[:2]) < 0.02:
            self._phase = "descend"
        if self._phase == "descend" and abs(scene.hand[2] - aim[2] - self.grasp) < 0.015:
            self._phase = "close"
        if self._phase == "close" and self._closed_for >= self.closing:
            self._phase = "carry"
        match self._phase:
            case "hover":
                target, gripper = aim + np.array([0.0, 0.0, self.hover]), -1.0
            case "descend":
                target, gripper = aim + np.array([0.0, 0.0, self.grasp]), -1.0
            case "close":
                target, gripper = aim + np.array([0.0, 0.0, self.grasp]), 1.0
                self._closed_for += 1
            case _:
                target, gripper = scene.goal, 1.0
        return np.append(self.gain * (target - scene.hand), gripper)


class MetaWorldExpert:
    """The policy that MetaWorld ships for a task."""

    def __init__(self, env: str) -> None:
        from metaworld.policies import ENV_POLICY_MAP

        self._policy = ENV_POLICY_MAP[env]()

    def act(self, scene: Scene) -> Float64[np.ndarray, " 4"]:
        """As in Expert."""
        now = np.zeros(18)
        now[:3], now[3], now[4:7], now[7:11] = scene.hand, scene.opening, scene.object, scene.object_rotation
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns whenever it overshoots [-1, 1]; the action is clipped later
            return self._policy.get_action(np.concatenate([now, now, scene.goal])).astype(np.float64)
