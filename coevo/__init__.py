"""Closed-loop co-evolution of a robot policy and a video world model."""

import os

# Waiting OpenMP threads sleep instead of spinning. Beside busy simulator workers, or another user's job, spinning
# threads slow each other down many times over. It is read when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
