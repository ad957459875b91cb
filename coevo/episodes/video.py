"""Frames as video: many episodes in one mp4 file, found again by time.

A frame's time is its episode's `from_timestamp` in that file plus index / fps. Encoding is lossy (H.264), the same
bytes on every machine with the same PyAV: one thread, no metadata.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np

CODEC = "libx264"
OPTIONS = {"crf": "18", "preset": "veryfast", "g": "2", "bf": "0", "threads": "1"}
"""A key frame at every other frame, as LeRobot does: training reads frames in random order."""


def rate_of(fps: float) -> Fraction:
    """Frames per second as the fraction that a video file stores."""
    return Fraction(fps).limit_denominator(10_000)


class VideoWriter:
    """Appends frames to one mp4 file, which is unreadable until it is closed."""

    def __init__(self, path: Path, fps: float, height: int, width: int) -> None:
        import av

        path.parent.mkdir(parents=True, exist_ok=True)
        self.rate, self.count, self.bytes = rate_of(fps), 0, 0
        self.container = av.open(str(path), "w", options={"fflags": "+bitexact"})
        self.stream = self.container.add_stream(CODEC, rate=self.rate, options=OPTIONS)
        self.stream.height, self.stream.width, self.stream.pix_fmt = height, width, "yuv420p"
        self.stream.codec_context.flags |= 1 << 23  # AV_CODEC_FLAG_BITEXACT: leaves the encoder's version out

    @property
    def seconds(self) -> float:
        """Length of what was appended so far."""
        return float(self.count / self.rate)

    def append(self, frames: np.ndarray) -> tuple[float, float]:
        """Add frames u8[f h w 3]; returns the seconds in this file at which they begin and end."""
        import av

        begin = self.seconds
        for frame in frames:
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
            picture.pts, picture.time_base = self.count, 1 / self.rate
            packets = self.stream.encode(picture)
            self.bytes += sum(packet.size for packet in packets)
            self.container.mux(packets)
            self.count += 1
        return begin, self.seconds

    def close(self) -> None:
        """Flush the encoder and write the file's index."""
        self.container.mux(self.stream.encode(None))
        self.container.close()


def read_frames(path: Path, begin: float, count: int, fps: float) -> np.ndarray:
    """Frames u8[count h w 3] at begin + i / fps seconds; ValueError names the file and the time of a missing one."""
    import av

    frames: list[np.ndarray] = []
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            container.seek(int(begin / stream.time_base), stream=stream, backward=True)
            for picture in container.decode(stream):
                # Half a frame of slack: times are rounded to the file's own clock.
                if picture.time < begin + (len(frames) - 0.5) / fps:
                    continue
                if picture.time > begin + (len(frames) + 0.5) / fps:
                    break
                frames.append(picture.to_ndarray(format="rgb24"))
                if len(frames) == count:
                    return np.stack(frames)
    except av.FFmpegError as error:
        raise ValueError(f"{path} cannot be decoded: {error}") from error
    raise ValueError(f"{path} has no frame at {begin + len(frames) / fps:.4f} s ({len(frames)} of {count} found)")
