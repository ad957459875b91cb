"""Frames of a MuJoCo scene from a free camera."""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import os

import numpy as np
from jaxtyping import UInt8

from coevo.records.interface import Camera
from coevo.simulators.config import Drawing


def choose_renderer() -> None:
    """Set MUJOCO_GL if it is unset, before MuJoCo is imported; ValueError says how to bring a missing library.

    EGL where there are a GPU and its library, else OSMesa, which draws on the CPU.
    """
    chosen = os.environ.get("MUJOCO_GL", "").lower()
    if not chosen:
        chosen = "egl" if glob.glob("/dev/nvidia[0-9]*") and _library("EGL") else "osmesa"
        os.environ["MUJOCO_GL"] = chosen
    if chosen == "osmesa":
        os.environ.setdefault("PYOPENGL_PLATFORM", "osmesa")
        if not _library("OSMesa"):
            raise ValueError(
                "frames cannot be drawn: MUJOCO_GL is 'osmesa' and the library OSMesa is not installed. "
                "Install it with 'sudo apt-get install -y libosmesa6', or, on a machine with a GPU and its driver, "
                "set MUJOCO_GL=egl"
            )
    if chosen == "egl" and not _library("EGL"):
        raise ValueError(
            "frames cannot be drawn: MUJOCO_GL is 'egl' and the library EGL is not installed. Install it with "
            "'sudo apt-get install -y libegl1', or draw on the CPU with 'sudo apt-get install -y libosmesa6' and "
            "MUJOCO_GL=osmesa"
        )


def _library(name: str) -> bool:
    if ctypes.util.find_library(name):
        return True
    for version in ("", ".8", ".6", ".1"):
        try:
            ctypes.CDLL(f"lib{name}.so{version}")
        except OSError:
            continue
        return True
    return False


class Painter:
    """Draws one model's data. At most one renderer is alive in a process: with several, OSMesa draws garbage."""

    _alive: Painter | None = None

    def __init__(self, model, data, camera: Camera, drawing: Drawing) -> None:
        import mujoco

        self._model, self._data, self._camera_config, self._drawing = model, data, camera, drawing
        self._renderer = None
        model.vis.quality.shadowsize, model.vis.quality.offsamples = drawing.shadow_size, drawing.samples
        model.vis.global_.offwidth, model.vis.global_.offheight = camera.width, camera.height
        model.vis.global_.fovy = camera.fovy
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FREE
        self._camera.lookat[:] = camera.lookat
        self._camera.distance, self._camera.azimuth = camera.distance, camera.azimuth
        self._camera.elevation = camera.elevation
        self._options = mujoco.MjvOption()
        self._options.sitegroup[:] = 1

    def frame(self) -> UInt8[np.ndarray, "h w 3"]:
        """The scene as it stands; kinematics must be up to date."""
        if self._renderer is None:
            self._open()
        self._renderer.update_scene(self._data, camera=self._camera, scene_option=self._options)
        return self._renderer.render()

    def close(self) -> None:
        """Free the renderer; the next frame opens one again."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        if Painter._alive is self:
            Painter._alive = None

    def _open(self) -> None:
        import mujoco

        if Painter._alive is not None:
            Painter._alive.close()
        self._renderer = mujoco.Renderer(self._model, self._camera_config.height, self._camera_config.width)
        flags = self._renderer.scene.flags
        flags[mujoco.mjtRndFlag.mjRND_SHADOW] = self._drawing.shadow_size > 0
        for effect in ("REFLECTION", "SKYBOX", "HAZE"):
            flags[getattr(mujoco.mjtRndFlag, f"mjRND_{effect}")] = self._drawing.effects
        Painter._alive = self
