"""The stages: one module each, run as `python -m tasks.<stage>`."""
