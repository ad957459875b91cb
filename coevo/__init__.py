"""Closed-loop co-evolution of a robot policy and a video world model."""
