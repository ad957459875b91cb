"""The stages: one module each, run as `python -m tasks.<stage>`."""

import coevo  # noqa: F401  sets how torch's threads wait, before a stage loads torch
