"""What a round concludes: promote the trained policy, keep the old one, or stop; and where the next round starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import PositiveInt

from coevo.core import stage
from coevo.core.artifacts import Artifact
from coevo.core.stage import Result, Run
from coevo.evaluation.intervals import seed_interval
from coevo.records.base import Config, read_yaml
from coevo.records.outcomes import Admission, Decision, Evaluation, Interval, Mismatch
from coevo.records.seeds import SeedGroup
from coevo.rl.seeds import judge


@dataclass(frozen=True)
class Inputs:
    """Numbers that decide. All come from validation and admission states, none from sealed ones."""

    round: Path = stage.config_file("round.yaml: the open round and its parents")
    admission: Artifact = stage.artifact("admission", "admission of the round's world model, with its criterion")
    evaluation: Artifact = stage.artifact("evaluation", "of the seed named beforehand, on validation states")
    seeds: tuple[Artifact, ...] = stage.artifact_list("evaluation", "of every training seed, on validation states")
    replay: Artifact | None = stage.artifact("replay", "closed-loop replay of that policy", optional=True)
    previous: Artifact | None = stage.artifact("decision", "decision of the round before", optional=True)


class Params(Config):
    """When to go on."""

    good_enough: float = 0.99
    """Success on validation states from which there is nothing left to gain: the loop stops."""
    patience: PositiveInt = 3
    """Rounds in a row without a better policy after which the loop stops."""
    requires_seeds: bool = False
    """Promote only where the training seeds together meet the criterion's section 'seeds'. It is judged and told
    wherever several were trained."""


def decide_round(inputs: Inputs, params: Params, run: Run) -> Result:
    """Write decision.json."""
    values = read_yaml(inputs.round)
    for key in ("round", "parents"):
        if key not in values:
            raise ValueError(f"{inputs.round}: key '{key}' is missing")
    admission = Admission.model_validate_json((inputs.admission.path / "admission.json").read_bytes())
    evaluation = Evaluation.model_validate_json((inputs.evaluation.path / "evaluation.json").read_bytes())
    if evaluation.role != "validation":
        raise ValueError(
            f"{inputs.evaluation.id} stands on {evaluation.role} states; a round is decided on validation states"
        )
    parent = values["parents"]["policy"]
    if evaluation.start_policy not in (None, parent):
        raise ValueError(
            f"{inputs.evaluation.id} holds the trained policy against {evaluation.start_policy}, and this round "
            f"set out from {parent}; evaluate it against that one"
        )
    mismatch = None
    if inputs.replay is not None:
        mismatch = Mismatch.model_validate_json((inputs.replay.path / "replay.json").read_bytes())
    before = int(inputs.previous.manifest.metrics["rounds_without_promotion"]) if inputs.previous is not None else 0
    seeds = _seeds(inputs, admission)
    decision = decide(values["round"], values["parents"], admission, evaluation, mismatch, params, before, seeds)
    without = 0 if decision.parents["policy"] == decision.round else before + 1
    (run.folder / "decision.json").write_text(decision.model_dump_json(indent=1) + "\n")
    metrics = dict(outcome=decision.outcome, rounds_without_promotion=without)
    if seeds is not None:
        (run.folder / "seeds.json").write_text(seeds.model_dump_json(indent=1) + "\n")
        metrics["seed_criterion_met"] = seeds.passed
    return Result("decision", metrics=metrics)


def _seeds(inputs: Inputs, admission: Admission) -> SeedGroup | None:
    """The training seeds judged together, by the criterion that admission read before any of them was trained.

    None for a single seed, without such a criterion, or where nothing was trained.
    """
    if len(inputs.seeds) < 2 or admission.criterion.seeds is None or not admission.admitted:
        return None
    found = [Evaluation.model_validate_json((each.path / "evaluation.json").read_bytes()) for each in inputs.seeds]
    mean = seed_interval(tuple(each.gain.value for each in found if each.gain is not None))
    return judge(found, admission.criterion.seeds, admission.criterion_sha256, mean)


def decide(
    round: str,
    parents: dict[str, str],
    admission: Admission,
    evaluation: Evaluation,
    mismatch: Mismatch | None,
    params: Params,
    rounds_without_promotion: int = 0,
    seeds: SeedGroup | None = None,
) -> Decision:
    """The decision and what the next round starts from.

    A refused world model is not built upon: the next round refines its parent with more data. An admitted one is kept
    even where the policy is not.
    """
    following = parents | {"dataset": round}
    last_chance = rounds_without_promotion + 1 >= params.patience
    if not admission.admitted:
        reason = "The world model was not admitted: " + "; ".join(admission.reasons) + ". The old policy is kept."
        if last_chance:
            reason += f" This is round {rounds_without_promotion + 1} in a row without a better policy: the loop stops."
        outcome = "stop" if last_chance else "not_admitted"
        return Decision(outcome=outcome, reason=reason, round=round, parents=following)
    following |= {"world_model": round}
    if evaluation.gain is None:
        raise ValueError(f"the evaluation of {evaluation.policy} has no gain; evaluate it against its parent")
    bound = admission.criterion.gain_lower_bound_above
    found = f"the gain on validation states is {_signed(evaluation.gain)} over {evaluation.gain.n} states"
    exploits = _exploits(mismatch, admission.mismatch)
    together = f" {seeds.sentence()}" if seeds is not None else ""
    held_back = params.requires_seeds and not (seeds is not None and seeds.passed)
    if evaluation.gain.low > bound and not held_back:
        reason = f"Promoted: {found}, and its interval lies above {bound:+.3f}.{together}"
        if exploits:
            reason += f" Mind that {exploits}."
        following |= {"policy": round}
        outcome = "promote"
        if evaluation.success.value >= params.good_enough:
            outcome = "stop"
            reason += f" Success is {evaluation.success.value:.3f}: nothing is left to gain, the loop stops."
        return Decision(outcome=outcome, reason=reason, round=round, parents=following)
    lies = "lies" if evaluation.gain.low > bound else "does not lie"
    reason = f"The old policy is kept: {found}, and its interval {lies} above {bound:+.3f}.{together}"
    if held_back and seeds is None:
        reason += " Promotion asks for several training seeds that meet the criterion, and they were not judged."
    if exploits:
        reason += f" A likely cause: {exploits}."
    if last_chance:
        reason += f" This is round {rounds_without_promotion + 1} in a row without a better policy: the loop stops."
    return Decision(outcome="stop" if last_chance else "keep", reason=reason, round=round, parents=following)


def _exploits(after: Mismatch | None, before: Interval | None) -> str:
    """A clause if the trained policy's mismatch lies clearly above that of the policy that entered training."""
    if after is None or after.mismatch is None or before is None or after.mismatch.low <= before.high:
        return ""
    return (
        f"{after.mismatch.value:.0%} of its dreamed successes fail in the simulator, against {before.value:.0%} "
        "before training, so it has learned to use the world model's errors"
    )


def _signed(found: Interval) -> str:
    return f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


if __name__ == "__main__":
    stage.main(decide_round)
