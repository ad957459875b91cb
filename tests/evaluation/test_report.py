import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from coevo.core.stage import run_stage
from coevo.evaluation import strips
from coevo.evaluation.report.data import figures
from coevo.evaluation.report.pictures import leading, shown_frames
from coevo.evaluation.report.render import headline, render
from coevo.evaluation.report.sentences import findings, signed_points, title
from coevo.evaluation.report.trust import verdict
from coevo.records.outcomes import Figure
from tasks import compare_rounds as compare
from tests.doubles import TOY
from tests.evaluation.sample import AFTER, BEFORE, sample, toy_strips
from tests.evaluation.test_tasks import publish

VOID = {"meta", "img", "source", "br"}


class Balanced(HTMLParser):
    """Fails on a tag that closes nothing or is never closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_data(self, data):
        self.text.append(data)


def text_of(page):
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    return " ".join(" ".join(parser.text).split())


@pytest.fixture(scope="module")
def page():
    return render(sample(earlier=True))


def test_page_is_balanced_and_reaches_for_nothing_outside_itself(page):
    text_of(page)
    assert not re.search(r"https?://|//[a-z]+\.|<script|<link|@import", page)
    assert all(source.startswith("data:image/png") for source in re.findall(r'src(?:set)?="([^"]*)', page))


def test_page_names_every_chart_element_once(page):
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:xlink:href="|url\()#([^")]+)', page)) <= set(ids)


def test_page_holds_the_numbers(page):
    text = text_of(page)
    for number in ("88.3%", "24.0%", "84.3%", "69.8%", "+23.6", "26.5%", "0.825", "0.263", "0.964", "policy promoted"):
        assert number in text
    assert "cccccccccccccccc" in text and "default/i001/world_model" in text


def test_same_records_give_the_same_page(page):
    assert render(sample(earlier=True)) == page


def test_findings_are_written_from_the_numbers():
    said = findings(sample())
    assert said[0].startswith(
        "Before failure data the world model drew 88% of 154 failures as successes; after, 24%, while 84% of 134 "
        "successes are still drawn as such."
    )
    assert "PSNR on failures went from 24.7 to 26.9 dB while fake success changed by −64 points" in " ".join(said)
    assert "no sign that it exploits" in said[-1]
    assert title(sample()) == "Trained in its own dream, the policy went from 46% to 70% in the simulator"


def test_a_later_round_says_that_its_gain_is_over_the_loops_start():
    data = sample(earlier=True)
    assert title(data) == "Over 2 rounds in its own dreams, the policy went from 46% to 70% in the simulator"
    assert any("46% when the loop began" in sentence for sentence in findings(data))


def test_an_exploiting_policy_is_called_one():
    data = sample(seeds=1)
    high = data.replays[0].mismatch.model_copy(update=dict(value=0.6, low=0.5, high=0.7))
    said = findings(replace(data, replays=(data.replays[0].model_copy(update=dict(mismatch=high)),)))
    assert "learned to use the world model's errors" in said[-1]


def test_a_loss_and_an_unclear_gain_are_said_as_they_are():
    data = sample(seeds=1)
    gain = data.sealed[0].gain
    lost = data.sealed[0].model_copy(update=dict(gain=gain.model_copy(update=dict(value=-0.1, low=-0.2, high=-0.02))))
    unclear = data.sealed[0].model_copy(
        update=dict(gain=gain.model_copy(update=dict(value=0.02, low=-0.03, high=0.07)))
    )
    assert "fell from" in title(replace(data, sealed=(lost,)))
    assert "did not clearly change" in title(replace(data, sealed=(unclear,)))
    assert any("holds zero" in sentence for sentence in findings(replace(data, sealed=(unclear,))))


def test_a_refused_world_model_is_reported_without_a_trained_policy():
    data = sample(admitted=False, seeds=1)
    text = text_of(render(data))
    assert "The world model was not admitted, so no policy was trained in it" in text
    assert "0.113 above its ceiling of 0.350" in text and "Nothing was trained" in text
    assert not [figure for figure in figures(data) if figure.arm == "trained policy"]


def test_a_round_refused_for_its_interface_still_renders():
    data = sample(admitted=False, seeds=1)
    fault = "different actions draw the same frames: the actions do not reach the world model"
    bare = data.admission.model_copy(update=dict(fidelity=(), mismatch=None, breakdown=None, reasons=(fault,)))
    text = text_of(
        render(replace(data, admission=bare, pixels=(), strips=(), controls=(), curves=(), calibration=None))
    )
    assert fault in text


def test_a_number_that_does_not_exist_is_a_dash():
    data = sample()
    empty = [
        row.model_copy(update=dict(fake_success=None)) if row.subset == "mixed" else row
        for row in data.admission.fidelity
    ]
    assert "–" in text_of(
        render(replace(data, admission=data.admission.model_copy(update=dict(fidelity=tuple(empty)))))
    )


def test_figures_hold_seeds_their_mean_and_their_spread():
    found = {(figure.metric, figure.arm): figure for figure in figures(sample())}
    assert found["gain", "trained policy"].value == pytest.approx(0.236) and found["gain", "trained policy"].n == 5
    assert found["gain_sd", "trained policy"].value == pytest.approx(0.02505, abs=1e-4)
    assert found["gain", "seed 3"].value == pytest.approx(0.264)
    assert found["fake_success_mixed", "after"].n == 81 and found["fake_success", "success only"].value == 0.812
    assert found["fake_success_by_referee", "after"].value == 0.25 and found["psnr_failures", "before"].unit == "dB"


def test_alignment_is_the_share_of_episodes_that_are_read_as_they_ended():
    found = {(figure.metric, figure.arm): figure for figure in figures(sample())}
    # (134 x 0.843 + 154 x (1 - 0.240)) / 288 by the reward, and by the referee from the frames alone.
    assert found["reward_alignment", "after"].value == pytest.approx(0.7986, abs=1e-4)
    assert found["visual_alignment", "after"].value == pytest.approx(0.7965, abs=1e-4)
    assert found["reward_alignment", "after"].n == 288 and ("visual_alignment", "before") not in found


def test_page_shows_where_it_goes_wrong(page):
    text = text_of(page)
    assert text.index("mixed-outcome states (forks)") < text.index("weak grip") < text.index("behind recorded frames")
    assert "chunk by chunk, it fakes 15% of failures" in text and "11% of episodes do not get the same verdict" in text
    assert "1 of 3 states have an outcome that their picture does not tell" in text
    assert "Of 3 states 2 are misread less often" in text and "1 more often" in text
    assert "in 88% of all pairs. At 0.93, where recall would just be 81%, it would fake 15% (21% on forks)" in text
    assert "71% are read as what they are" in text and "No episode of overshoot" in text
    assert "pick-place-77c0 truth unstable" in text and "Failures read as success by then" in text
    found = {(figure.metric, figure.arm): figure.value for figure in figures(sample())}
    assert found["fake_success_weak_grip", "after"] == 0.62 and found["fake_success_recorded_history", "after"] == 0.15


def test_one_line_says_what_may_be_believed_at_the_unfavourable_end():
    data = sample()
    # Its floor for recall is 0.80: 0.843 - 0.05 lies below it.
    assert verdict(data).level == "uncertain" and "recall may be as low as 79% (n=134)" in verdict(data).sentence
    easy = data.admission.criterion.model_copy(update=dict(recall_floor=0.7))
    sure = replace(data, admission=data.admission.model_copy(update=dict(criterion=easy)))
    assert verdict(sure).level == "holds" and "fake success at most 29%" in verdict(sure).sentence
    refused = verdict(sample(admitted=False, seeds=1))
    assert refused.level == "fails" and "Do not train in this dream: fake success is 0.463" in refused.sentence


def test_a_record_without_a_breakdown_still_renders():
    data = sample(seeds=1)
    bare = data.admission.model_copy(update=dict(breakdown=None))
    assert "Where it goes wrong" not in text_of(render(replace(data, admission=bare)))


def test_errors_that_lasted_longest_are_shown_first():
    states, truth = list("abc"), np.zeros(3, dtype=bool)
    frames = {arm: np.zeros((3, 2, 4, 4, 3), np.uint8) for arm in ("simulator", AFTER)}
    read = {"simulator": truth, AFTER: ~truth}
    kept = strips.choose(states, truth, frames, read, 3, lasted=np.array([1, 9, 4]))
    assert [strip.state for strip in kept] == ["b", "c", "a"]


def test_headline_has_each_group_in_order():
    groups = [name.split(":")[0].split(",")[0] for name, _ in headline(sample())]
    assert groups == ["Fake success", "Recall", "Policy success in the simulator", "Gain", "Replay mismatch"]


def test_points_are_signed_and_zero_is_not():
    assert [signed_points(value) for value in (0.2384, -0.04, 0.0, -0.0001)] == ["+23.8", "−4.0", "0.0", "0.0"]


def test_strips_show_each_kind_and_the_worst_first(tmp_path):
    kept = toy_strips()
    # Columns 0 and 1 fail; the last world model fakes column 0 only.
    assert [(strip.state, strip.disagrees) for strip in kept[:2]] == [("dot-0-7", True), ("dot-1-7", False)]
    assert leading(kept).state == "dot-1-7"  # faked before, no longer faked after
    strips.write(tmp_path, kept)
    again = strips.read(tmp_path)
    assert [strip.state for strip in again] == [strip.state for strip in kept]
    assert np.array_equal(again[0].rows[2].frames, kept[0].rows[2].frames) and again[0].rows[2].arm == AFTER


def test_no_compressor_decides_the_bytes_of_strips(tmp_path):
    kept = toy_strips()
    strips.write(tmp_path, kept)
    written = (tmp_path / strips.FRAMES).read_bytes()
    assert all(row.frames.tobytes() in written for strip in kept for row in strip.rows)
    strips.write(tmp_path, [])
    assert strips.read(tmp_path) == []


def test_strips_spread_over_states_and_outcomes():
    states = ["a", "a", "a", "b", "c", "c"]
    truth = np.array([0, 0, 0, 0, 1, 1], dtype=bool)
    frames = {arm: np.zeros((6, 2, 4, 4, 3), np.uint8) for arm in ("simulator", BEFORE, AFTER)}
    kept = strips.choose(states, truth, frames, {"simulator": truth, BEFORE: truth, AFTER: truth}, 4)
    assert sorted(strip.state for strip in kept if not strip.success) == ["a", "b"]
    assert sum(strip.success for strip in kept) == 2


def test_a_strip_begins_with_the_first_frame_and_ends_with_the_last():
    assert shown_frames(21) == list(range(0, 21, 2)) and shown_frames(3) == [0, 1, 2]


def test_stage_writes_page_headline_and_figures_from_artifacts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = sample(seeds=2)

    def record(name, kind, file, content, more=lambda folder: None):
        def write(folder):
            (folder / file).write_text(content)
            more(folder)

        return publish(tmp_path / name, kind, write)

    world = record("world", "world_model", "interface.json", TOY.model_dump_json())
    reward = record("reward", "reward_model", "calibration.json", data.calibration.model_dump_json())
    curve = "".join(json.dumps({"update": u, "train_policy/success": u / 9}) + "\n" for u in range(9))
    policies = tuple(record(f"policy-{seed}", "policy", "metrics.jsonl", curve) for seed in range(2))
    sealed = tuple(
        record(f"sealed-{seed}", "evaluation", "evaluation.json", each.model_dump_json())
        for seed, each in enumerate(data.sealed)
    )
    admission = record(
        "admission",
        "admission",
        "admission.json",
        data.admission.model_dump_json(),
        lambda folder: strips.write(folder, toy_strips()),
    )
    decision = record("decision", "decision", "decision.json", data.decision.model_dump_json())
    inputs = compare.Inputs(admission, decision, reward, world, policies, sealed)
    made = run_stage(
        compare.compare_rounds, inputs, compare.Params(), tmp_path / "report", seed=0, parents={"admission": admission}
    )
    text = text_of((made.path / "report.html").read_text())
    assert TOY.instruction in text and "Success in training episodes" in text
    summary = json.loads((made.path / "headline.json").read_text())
    assert summary["outcome"] == "promote" and summary["table"][0]["text"] == "5.8%"
    numbers = [Figure.model_validate(row) for row in json.loads((made.path / "figures.json").read_text())]
    assert {figure.task for figure in numbers} == {"dot"}
    assert made.manifest.metrics["fake_success_before"] == 0.883

    later = compare.Inputs(admission, decision, reward, world, policies, sealed, earlier=(made,))
    again = run_stage(compare.compare_rounds, later, compare.Params(), tmp_path / "later", seed=0, parents={})
    assert "Round by round" in (again.path / "report.html").read_text()
