"""Simulators: the truth that dreams are held against. Software rendering, exact replay, scripted experts."""
