"""Frames of a MuJoCo scene from a free camera."""

from __future__ import annotations

import ctypes
import ctypes.util
import glob
import os

import numpy as np
from jaxtyping import Bool, Float64, UInt8

from coevo.records.interface import Camera
from coevo.simulators.config import Drawing

HIDDEN = 5
"""A group of geoms that MuJoCo does not draw."""


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


class View:
    """The pyramid that a free camera sees, as four planes through its position."""

    def __init__(self, camera: Camera) -> None:
        turn, tilt = np.radians(camera.azimuth), np.radians(camera.elevation)
        forward = np.array([np.cos(tilt) * np.cos(turn), np.cos(tilt) * np.sin(turn), np.sin(tilt)])
        right = np.array([np.sin(turn), -np.cos(turn), 0.0])
        up = np.cross(right, forward)
        self._position = np.array(camera.lookat) - camera.distance * forward
        half = np.radians(camera.fovy) / 2
        across = np.arctan(np.tan(half) * camera.width / camera.height)
        # Unit normals that point out of the pyramid.
        self._normals = np.stack(
            [side * axis * np.cos(angle) - forward * np.sin(angle)
             for axis, angle in ((right, across), (up, half)) for side in (1.0, -1.0)]
        )  # fmt: skip

    def touches(self, centres: Float64[np.ndarray, "g 3"], radii: Float64[np.ndarray, " g"]) -> Bool[np.ndarray, " g"]:
        """Which spheres reach into the pyramid."""
        return ((centres - self._position) @ self._normals.T <= radii[:, None]).all(axis=1)


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
        self._options.geomgroup[HIDDEN] = 0
        self._groups = model.geom_group.copy()
        self._view = View(camera)

    def frame(self) -> UInt8[np.ndarray, "h w 3"]:
        """The scene as it stands; kinematics must be up to date."""
        if self._renderer is None:
            self._open()
        self._hide_what_is_out_of_view()
        self._renderer.update_scene(self._data, camera=self._camera, scene_option=self._options)
        return self._renderer.render()

    def _hide_what_is_out_of_view(self) -> None:
        """Spare the renderer the meshes that can touch no pixel: more than half of a robot arm's triangles.

        Without shadows, reflections and the like a frame is the same to the last bit.
        """
        if self._drawing.effects or self._drawing.shadow_size > 0:
            return
        seen = self._view.touches(self._data.geom_xpos, self._model.geom_rbound)
        self._model.geom_group[:] = np.where(seen | (self._model.geom_rbound == 0), self._groups, HIDDEN)

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
