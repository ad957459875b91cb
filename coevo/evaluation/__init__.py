"""How good the world model and the policy are: fidelity, evaluation, replay, intervals, and the report that says so."""
