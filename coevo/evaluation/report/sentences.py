"""Each finding as a plain sentence, written from the numbers and from nothing else."""

from __future__ import annotations

from coevo.evaluation.report.data import ReportData, tail
from coevo.records.outcomes import Interval

PLAIN_DECIBELS = 6.0
"""A change of PSNR that anyone would notice."""
PLAIN_CHANGE = 0.2
"""A change of fake success that matters; together with a smaller change of PSNR, pixels hide the fault."""


def title(data: ReportData) -> str:
    """The one sentence to remember of a round."""
    gain, start, end = data.gain(), data.start_success(), data.success()
    if not data.trained:
        return "The world model was not admitted, so no policy was trained in it"
    if gain is None or start is None or end is None:
        return "The world model was admitted; no policy was compared"
    how = "Trained in its own dream" if data.rounds == 1 else f"Over {data.rounds} rounds in its own dreams"
    if gain.low > 0:
        return f"{how}, the policy went from {percent(start)} to {percent(end)} in the simulator"
    if gain.high < 0:
        return f"{how}, the policy fell from {percent(start)} to {percent(end)} in the simulator"
    what = "Training in the dream" if data.rounds == 1 else f"Training over {data.rounds} rounds in the dream"
    return f"{what} did not clearly change the policy: {percent(start)} before, {percent(end)} after"


def findings(data: ReportData) -> tuple[str, ...]:
    """All sentences that the records support, in the order of the argument."""
    writers = (_fidelity, _forks, _controls, _pixels, _admission, _policy, _replay)
    return tuple(sentence for write in writers if (sentence := write(data)))


def percent(found: Interval) -> str:
    """'24%'."""
    return f"{found.value:.0%}"


def points(found: Interval) -> str:
    """'+23.8 points [+20.1, +27.4]'."""
    return f"{signed_points(found.value)} points [{signed_points(found.low)}, {signed_points(found.high)}]"


def signed_points(fraction: float, digits: int = 1) -> str:
    """A difference of fractions in points: '+23.8', '−4.0', '0.0'."""
    text = f"{100 * fraction:+.{digits}f}"
    return text[1:] if float(text) == 0.0 else text.replace("-", "−")


def _fidelity(data: ReportData) -> str:
    before, after, floor = data.fidelity("before"), data.fidelity("after"), data.fidelity("simulator")
    if after is None or after.fake_success is None:
        return ""
    if before is None or before.fake_success is None:
        said = f"The world model draws {percent(after.fake_success)} of {after.fake_success.n} failures as successes"
        return said + (f", and {percent(after.recall)} of {after.recall.n} successes as such." if after.recall else ".")
    said = (
        f"Before failure data the world model drew {percent(before.fake_success)} of {before.fake_success.n} failures "
        f"as successes; after, {percent(after.fake_success)}"
    )
    if after.recall is not None:
        only = "only " if after.recall.value < data.admission.criterion.recall_floor else ""
        said += f", while {only}{percent(after.recall)} of {after.recall.n} successes are still drawn as such"
    if floor is not None and floor.fake_success is not None:
        said += f". The same reward misreads {percent(floor.fake_success)} of the simulator's own failures"
    return said + "."


def _forks(data: ReportData) -> str:
    mixed, same = data.fidelity("after", "mixed"), data.fidelity("after", "same")
    if mixed is None or mixed.fake_success is None or same is None or same.fake_success is None:
        return ""
    return (
        f"From states where both outcomes occurred, so that the actions decide, it fakes {percent(mixed.fake_success)} "
        f"of {mixed.fake_success.n} failures; from all others {percent(same.fake_success)} of {same.fake_success.n}."
    )


def _controls(data: ReportData) -> str:
    said = []
    for control in data.controls:
        row = next((r for r in control.fidelity if r.arm == control.world_model and r.subset == "all"), None)
        if row is not None and row.fake_success is not None:
            said.append(f"{percent(row.fake_success)} ({tail(control.world_model)})")
    return f"The control {'arms fake' if len(said) > 1 else 'arm fakes'} {', '.join(said)}." if said else ""


def _pixels(data: ReportData) -> str:
    values = {(data.arms.get(f.arm), f.metric): f.value for f in data.pixels}
    before, after = values.get(("before", "psnr_failures")), values.get(("after", "psnr_failures"))
    rows = data.fidelity("before"), data.fidelity("after")
    if before is None or after is None or any(row is None or row.fake_success is None for row in rows):
        return ""
    change = rows[1].fake_success.value - rows[0].fake_success.value
    said = (
        f"PSNR on failures went from {before:.1f} to {after:.1f} dB while fake success changed by "
        f"{signed_points(change, 0)} points"
    )
    hidden = abs(after - before) < PLAIN_DECIBELS and abs(change) > PLAIN_CHANGE
    return f"Pixel metrics barely show it: {said}." if hidden else f"{said}."


def _admission(data: ReportData) -> str:
    if data.admission.admitted:
        return "Every number of the criterion, fixed beforehand, was met: the world model was admitted for training."
    return "The gate held: " + "; ".join(data.admission.reasons) + "."


def _policy(data: ReportData) -> str:
    gain, start, end = data.gain(), data.start_success(), data.success()
    if not data.trained:
        return "The parent policy was kept as it is, and nothing was trained on dreams that cannot be trusted."
    if gain is None or start is None or end is None:
        return ""
    states = len(data.sealed[0].scores)
    who = f"over {len(data.gains())} training seeds" if data.over_seeds() else "for the first training seed"
    clear = "" if gain.low > 0 or gain.high < 0 else " That interval holds zero."
    began = "before" if data.rounds == 1 else "when the loop began"
    return (
        f"On {states} sealed initial states the policy succeeds {percent(end)} of the time after training in the world "
        f"model and {percent(start)} {began}: {points(gain)} {who}.{clear}"
    )


def _replay(data: ReportData) -> str:
    before, after = data.admission.mismatch, data.mismatch()
    if not data.trained or after is None:
        return ""
    said = f"Replayed in the simulator, {percent(after)} of the trained policy's dreamed successes fail"
    if before is None:
        return said + "."
    if after.low > before.high:
        return said + f", against {percent(before)} before training: it has learned to use the world model's errors."
    return said + f", against {percent(before)} before training: no sign that it exploits the world model's errors."
