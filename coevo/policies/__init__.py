"""Policies: image, proprioception and instruction to an action chunk, with exact log-probabilities."""
