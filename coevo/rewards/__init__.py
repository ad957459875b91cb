"""Reward models: they read frames, and are frozen before reinforcement learning begins."""
