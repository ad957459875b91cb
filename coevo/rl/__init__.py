"""Reinforcement learning on trajectories from either world: estimators, one update loop, choice of starts."""
