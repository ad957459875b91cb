"""What every room stands on: types, artifacts, randomness, frames, kinematics, protocols."""
