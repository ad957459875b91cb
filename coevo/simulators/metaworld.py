"""MetaWorld with exact replay: every row is a full state vector, and one model and one renderer serve them all."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float32, Float64, UInt8

from coevo.core import random
from coevo.core.states import state_id
from coevo.core.types import Episode, InitialState
from coevo.simulators.config import MetaWorldConfig, Paint
from coevo.simulators.drawing import Painter, choose_renderer
from coevo.simulators.experts import Expert, GraspExpert, MetaWorldExpert, Scene
from coevo.simulators.perturbations import Disturbance, Perturbation
from coevo.simulators.rows import Advanced, Rows

SUBSTEPS = 5
REDRAWS = 1000
"""Draws of a reset vector after which the ranges are said to leave no valid start."""


class MetaWorld(Rows):
    """One task. The state vector holds MuJoCo's integration state, the positions of bodies and sites that a reset
    moves, the goal, and how far the object was from it at the start, from which progress is measured."""

    def __init__(self, config: MetaWorldConfig) -> None:
        choose_renderer()
        import mujoco

        self.config, self.interface = config, config.interface
        self._mujoco = mujoco
        self._env = _environment(config.env)
        self._model, self._data = self._env.model, self._env.data
        self._check_interface()
        for paint in config.paint:
            self._apply(paint)
        self._axes = np.array(["xyz".index(axis) for axis in config.success.axes])
        self._low, self._high = np.array(self.interface.action.low), np.array(self.interface.action.high)
        self._goal, self._offset_at_start = np.zeros(3), 1.0
        self._painter = Painter(self._model, self._data, self.interface.camera, config.drawing)
        self._spec = mujoco.mjtState.mjSTATE_INTEGRATION
        self._integration = np.zeros(mujoco.mj_stateSize(self._model, self._spec))
        self._rested = self._rested_hand()

    def close(self) -> None:
        """Free the renderer."""
        self._painter.close()

    def initial_state(self, seed: int, role: str, index: int) -> InitialState:
        """State number `index` of the set `role`: object and goal drawn from the reset ranges, everything at rest."""
        rng = random.stream(seed, "initial_state", self.interface.task, role, index)
        self._place(rng)
        state = self._save()
        command = np.append(self._data.mocap_pos[0], self._data.ctrl[0])
        proprio = torch.tensor(np.append(command, 0.0), dtype=torch.float32)[None]
        return InitialState(
            id=state_id(self.interface.task, state), task=self.interface.task,
            instruction=self.interface.instruction, seed=seed, simulator_state=state,
            frames=torch.from_numpy(self._frame())[None],
            actions=torch.zeros(0, len(self.interface.action.names)), proprio=proprio,
        )

    def advance(self, states: Float64[np.ndarray, "n z"], actions: Float32[np.ndarray, "n k a"]) -> Advanced:
        """Apply chunk i to state i; a function of its arguments alone, to the last bit."""
        n, steps = actions.shape[:2]
        camera, stride = self.interface.camera, self.interface.stride
        seen = steps // stride
        after = np.empty_like(states)
        frames = np.empty((n, seen, camera.height, camera.width, 3), np.uint8)
        poses = np.empty((n, seen, 4), np.float32)
        success, progress = np.empty((n, seen), bool), np.empty((n, seen), np.float32)
        for row in range(n):
            self._load(states[row])
            for step in range(steps):
                self._move(actions[row, step])
                if (step + 1) % stride == 0:
                    index = step // stride
                    frames[row, index] = self._frame()
                    poses[row, index, :3], poses[row, index, 3] = self._data.mocap_pos[0], self._data.ctrl[0]
                    success[row, index], progress[row, index] = self._judge()
            after[row] = self._save()
        return Advanced(after, frames, poses, success, progress)

    def demonstrate(self, start: InitialState, perturbation: Perturbation, stream: Sequence[int | str]) -> Episode:
        """An episode of the expert under a perturbation, to the horizon; `label` is what it intended at each step."""
        interface, hold = self.interface, self.config.expert.hold
        disturbance = Disturbance(perturbation, random.stream(*stream))
        expert = self._expert()
        self._load(start.simulator_state)
        self._mujoco.mj_kinematics(self._model, self._data)
        object_start = disturbance.object_seen(self._object())
        intended = np.zeros(4)
        actions, labels, frames, poses, success, progress = [], [], [], [], [], []
        for step in range(interface.horizon):
            if step % hold == 0:
                intended = np.clip(expert.act(self._scene(disturbance, object_start)), -1.0, 1.0)
            action = disturbance.executed(intended, step, self._judge()[1])
            self._move(action)
            self._mujoco.mj_kinematics(self._model, self._data)
            actions.append(action)
            labels.append(intended.astype(np.float32))
            if (step + 1) % interface.stride == 0:
                frames.append(self._frame())
                time = (step + 1) / interface.horizon
                poses.append(np.concatenate([self._data.mocap_pos[0], [self._data.ctrl[0], time]]))
                reached, near = self._judge()
                success.append(reached)
                progress.append(near)
        return Episode(
            actions=torch.from_numpy(np.stack(actions)),
            frames=torch.cat([start.frames[-1:], torch.from_numpy(np.stack(frames))]),
            proprio=torch.cat([start.proprio[-1:], torch.tensor(np.stack(poses), dtype=torch.float32)]),
            success=torch.tensor(success), progress=torch.tensor(progress, dtype=torch.float32), probability=None,
            start=start, sample=0, policy="expert", source="simulator", perturbation=perturbation.kind,
            label=torch.from_numpy(np.stack(labels)),
        )

    def shifted(
        self, state: Float64[np.ndarray, " z"], offset: Float64[np.ndarray, " 2"]
    ) -> Float64[np.ndarray, " z"]:
        """The state with its object `offset` metres (x, y) further, all else as it was. For states at a reset."""
        self._load(state)
        self._mujoco.mj_kinematics(self._model, self._data)
        before = self._object()
        for place in self._places():
            place[:2] += offset
            self._mujoco.mj_kinematics(self._model, self._data)
            if np.allclose((self._object() - before)[:2], offset, atol=1e-3 * np.linalg.norm(offset)):
                return self._save()
            place[:2] -= offset
        raise ValueError(f"the object of {self.config.env} hangs on nothing that can be moved; leave 'shifts' at 0")

    # --- one state at a time ---

    def _places(self) -> list[Float64[np.ndarray, " p"]]:
        """Positions that a reset may give an object: those of free joints, then those of bodies fixed to the world."""
        model = self._model
        free = model.jnt_qposadr[model.jnt_type == self._mujoco.mjtJoint.mjJNT_FREE]
        places = [self._data.qpos[address : address + 3] for address in free]
        return places + [model.body_pos[body] for body in np.flatnonzero(model.body_parentid == 0) if body > 0]

    def _load(self, state: Float64[np.ndarray, " z"]) -> None:
        sizes = [len(self._integration), self._model.body_pos.size, self._model.site_pos.size, 3, 1]
        if len(state) != sum(sizes):
            raise ValueError(
                f"a state of {len(state)} numbers was given to {self.config.env}, whose states have {sum(sizes)}; "
                "make the initial states with this simulator's file in configs/simulator"
            )
        integration, body, site, goal, offset = np.split(state, np.cumsum(sizes)[:-1])
        self._mujoco.mj_setState(self._model, self._data, integration, self._spec)
        self._model.body_pos[:], self._model.site_pos[:] = body.reshape(-1, 3), site.reshape(-1, 3)
        self._goal, self._offset_at_start = goal, float(offset[0])

    def _save(self) -> Float64[np.ndarray, " z"]:
        self._mujoco.mj_getState(self._model, self._data, self._integration, self._spec)
        return np.concatenate([
            self._integration, self._model.body_pos.ravel(), self._model.site_pos.ravel(), self._goal,
            [self._offset_at_start],
        ])

    def _move(self, action: Float32[np.ndarray, " 4"]) -> None:
        """One control step, without MetaWorld's reward, which costs more than the physics."""
        moved = np.clip(action.astype(np.float64), -1.0, 1.0)
        data = self._data
        data.mocap_pos[0] = np.clip(
            data.mocap_pos[0] + moved[:3] * self.interface.action.metres_per_unit, self._low, self._high
        )
        data.mocap_quat[0] = (1.0, 0.0, 1.0, 0.0)
        data.ctrl[:] = (moved[3], -moved[3])
        self._mujoco.mj_step(self._model, data, nstep=SUBSTEPS)

    def _frame(self) -> UInt8[np.ndarray, "h w 3"]:
        # Kinematics alone: a full forward pass would touch the solver's warm start, and replays would drift.
        self._mujoco.mj_kinematics(self._model, self._data)
        self._mujoco.mj_camlight(self._model, self._data)
        return self._painter.frame()

    def _offset(self) -> float:
        """Distance of object and goal over the axes that count; signed where the side of the goal matters."""
        apart = (self._object() - self._goal)[self._axes]
        return float(apart[0] if self.config.success.beyond else np.linalg.norm(apart))

    def _judge(self) -> tuple[bool, float]:
        """Success, and progress from 0 at the start's distance to 1 at success; kinematics must be up to date."""
        # Measured from the start's side of the goal: without `beyond` both are distances, and the sign is 1.
        distance, near = self._offset() * np.sign(self._offset_at_start), self.config.success.distance
        way = max(abs(self._offset_at_start) - near, 1e-6)
        return bool(distance <= near), float(np.clip(1.0 - (distance - near) / way, 0.0, 1.0))

    def _object(self) -> Float64[np.ndarray, " 3"]:
        return np.array(self._env._get_pos_objects()[:3])

    def _scene(self, disturbance: Disturbance, object_start: Float64[np.ndarray, " 3"]) -> Scene:
        observed = self._env._get_curr_obs_combined_no_goal()
        return Scene(
            hand=observed[:3], opening=float(observed[3]), object=disturbance.object_seen(observed[4:7]),
            goal=disturbance.goal_seen(self._goal, object_start), object_start=object_start,
            object_rotation=observed[7:11],
        )

    def _expert(self) -> Expert:
        match self.config.expert.script:
            case "grasp":
                return GraspExpert()
            case "metaworld":
                return MetaWorldExpert(self.config.env)

    # --- resets ---

    def _rested_hand(self) -> Float64[np.ndarray, " y"]:
        """Integration state after MetaWorld's own 50-step reset of the hand, taken once; later resets restore it."""
        own = self._env._reset_hand

        def rest(*args, **kwargs) -> None:
            own(*args, **kwargs)
            if self._data.ctrl[0] != self.interface.action.null[3]:
                raise ValueError(
                    f"the null action {self.interface.action.null} does not hold the gripper as {self.config.env} does "
                    f"at a reset ({self._data.ctrl[0]}); correct 'null' in its file in configs/simulator"
                )
            for _ in range(50):
                self._move(np.array(self.interface.action.null, np.float32))

        self._env._reset_hand = rest
        self._env._get_state_rand_vec = lambda: self._draw(random.stream("rested hand"))
        self._env.reset()
        self._env._reset_hand()
        rested = np.zeros_like(self._integration)
        self._mujoco.mj_getState(self._model, self._data, rested, self._spec)
        self._env._reset_hand = self._restore_hand
        return rested

    def _restore_hand(self, *args, **kwargs) -> None:
        self._mujoco.mj_setState(self._model, self._data, self._rested, self._spec)
        self._mujoco.mj_forward(self._model, self._data)
        self._env.init_tcp = self._env.tcp_center

    def _place(self, rng: np.random.Generator) -> None:
        """MetaWorld's own reset with vectors from `rng`, then null actions until the object lies still."""
        draws = iter(range(REDRAWS))

        def draw() -> Float64[np.ndarray, " v"]:
            if next(draws, None) is None:
                raise ValueError(f"{self.config.env}: no valid start in {REDRAWS} draws; widen 'reset' in its config")
            return self._draw(rng)

        self._env._get_state_rand_vec = draw
        self._env.reset()
        self._goal = np.array(self._env._target_pos, dtype=np.float64)
        for _ in range(self.config.settle):
            self._move(np.array(self.interface.action.null, np.float32))
        self._data.qvel[:] = 0.0
        self._data.qacc_warmstart[:] = 0.0
        self._data.time = 0.0
        self._mujoco.mj_kinematics(self._model, self._data)
        self._offset_at_start = self._offset()

    def _draw(self, rng: np.random.Generator) -> Float64[np.ndarray, " v"]:
        own = self._env._random_reset_space
        low, high = own.low, own.high
        if self.config.reset is not None:
            low, high = np.array(self.config.reset.low), np.array(self.config.reset.high)
            if len(low) != len(own.low):
                raise ValueError(
                    f"'reset' has {len(low)} numbers, {self.config.env} draws {len(own.low)}; its own ranges are "
                    f"{own.low.tolist()} to {own.high.tolist()}"
                )
        return rng.uniform(low, high)

    # --- construction ---

    def _check_interface(self) -> None:
        action, env = self.interface.action, self._env
        declared = dict(
            low=action.low, high=action.high, metres_per_unit=(action.metres_per_unit,),
            control_hz=(self.interface.control_hz,),
        )
        real = dict(
            low=env.mocap_low, high=env.mocap_high, metres_per_unit=(env.action_scale,),
            control_hz=(1.0 / (self._model.opt.timestep * SUBSTEPS),),
        )
        for name, values in declared.items():
            if not np.allclose(values, real[name]):
                raise ValueError(
                    f"the interface declares {name} = {list(values)}, {self.config.env} has "
                    f"{np.asarray(real[name]).tolist()}; correct its file in configs/simulator"
                )

    def _apply(self, paint: Paint) -> None:
        model = self._model
        try:
            part = getattr(model, paint.part)(paint.name)
        except KeyError as error:
            raise ValueError(f"{self.config.env} has no {paint.part} '{paint.name}': {error.args[0]}") from None
        if paint.part == "site":
            part.rgba[:] = paint.rgba
            if paint.size is not None:
                part.size[:] = paint.size
            return
        geoms = np.flatnonzero(model.geom_bodyid == part.id) if paint.part == "body" else [part.id]
        model.geom_matid[geoms] = -1
        model.geom_rgba[geoms] = paint.rgba


def _environment(name: str):
    """The environment class used directly: no wrapper, no time limit, the goal visible. ValueError names near ones."""
    try:
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS
    except ImportError as error:
        raise ValueError(f"MetaWorld is missing ({error}); install it with 'pip install metaworld packaging'") from None
    if name not in ALL_V3_ENVIRONMENTS:
        near = difflib.get_close_matches(name, ALL_V3_ENVIRONMENTS, n=3, cutoff=0.3)
        raise ValueError(f"MetaWorld has no task '{name}'; did you mean {', '.join(near) or 'reach-v3'}?")
    env = ALL_V3_ENVIRONMENTS[name]()
    env._partially_observable = False
    env._set_task_called = True
    return env
