"""The experiments on training ask their stages for nothing that these do not know, and go through all their arms."""

from __future__ import annotations

import dataclasses
import importlib
import json
import typing
from pathlib import Path

import pytest
import yaml

from benchmarks import first_round, four_systems, second_round, seeds_and_controls, system_variants
from coevo.core import artifacts
from coevo.records.outcomes import Admission, Criterion, Evaluation, Fidelity, Interval, Mismatch, StateScore
from scripts.laboratory import Laboratory

ROOT = Path(__file__).resolve().parents[1]
METRICS = {
    "useful_frames": 0.5, "dreamed_episodes": 64, "simulator_episodes": 250, "chosen": 3, "best_step": 100,
    "newest_states": 8, "newest_mixed": 0.5,
} | dict.fromkeys(second_round.WATCHED, 0.5)  # fmt: skip


def interval(value: float) -> Interval:
    return Interval(value=value, low=value - 0.05, high=value + 0.05, n=8)


def evaluation(policy: str, alone: bool) -> Evaluation:
    return Evaluation(
        policy=policy, states="states", role="sealed", sampling="sampled", success=interval(0.5),
        scores=tuple(StateScore(state=f"s{number}", successes=number % 3, episodes=2) for number in range(4)),
        start_policy=None if alone else "start", gain=None if alone else interval(0.2), rerun_noise=0.02,
    )  # fmt: skip


def admission(world: str) -> Admission:
    limits = dict(recall_floor=0, fake_success_ceiling=1, fake_success_mixed_ceiling=1, mismatch_ceiling=1)
    row = dict(arm=world, reader="reward", subset="mixed", fake_success=interval(0.2), recall=None)
    return Admission(
        admitted=True, reasons=(), criterion=Criterion(**limits), criterion_sha256="", fidelity=(Fidelity(**row),),
        mismatch=interval(0.3), world_model=world, reward_model="reward",
    )  # fmt: skip


class Rehearsal(Laboratory):
    """Checks what each stage is asked for against the stage, and makes an empty artifact of it."""

    def make(self, task, name, params, *, seed=None, **inputs):
        out = self.folder / "data" / name
        if (out / artifacts.MANIFEST).exists():
            return artifacts.read(out)
        self.asked.append((task, name))
        hints = typing.get_type_hints(getattr(importlib.import_module(f"tasks.{task}"), task))
        hints["params"].parse(params, name)
        known = {field.name: field for field in dataclasses.fields(hints["inputs"])}
        assert set(inputs) <= set(known), f"{task} has no input {set(inputs) - set(known)}"
        required = {key for key, field in known.items() if field.default is dataclasses.MISSING}
        assert required <= set(inputs), f"{name} lacks {required - set(inputs)}"
        for key, given in inputs.items():
            assert (isinstance(given, list)) == known[key].metadata["many"], key
            for each in given if isinstance(given, list) else [given]:
                if known[key].metadata["kind"] is None:
                    assert (ROOT / each).exists(), each
                else:
                    assert each.manifest.kind == known[key].metadata["kind"], (name, key)
        kinds = {"make_initial_states": "initial_states", "select_states": "initial_states", "build_dataset": "dataset",
                 "calibrate_reward": "reward_model", "admit_world_model": "admission", "replay_dreams": "replay",
                 "evaluate_policy": "evaluation"}  # fmt: skip
        ends = {"world_model": "world_model", "policy": "policy", "successes": "policy"}
        kind = kinds.get(task) or next((kind for end, kind in ends.items() if task.endswith(end)), "episodes")
        with artifacts.writing(out) as folder:
            record = {
                "evaluation": lambda: evaluation(name, "start_evaluation" not in inputs),
                "admission": lambda: admission(inputs["world_model"].id),
                "replay": lambda: Mismatch(
                    policy=name, world_model="w", dreamed=8, dreamed_success=0.5, mismatch=interval(0.3)
                ),
            }.get(kind)
            if record is not None:
                (folder / f"{kind}.json").write_text(record().model_dump_json())
            (folder / "metrics.jsonl").write_text('{"update": 1, "train_policy/kl": 0.01}\n')
            return artifacts.publish(
                folder, out, kind=kind, id=name, stage="tests", parents={}, config={}, seed=seed or 0,
                source_sha256="", metrics=METRICS, states=(),
            )  # fmt: skip


def rehearse(tmp_path, monkeypatch, module, cls, *options: str):
    """One call of an experiment; what it asked for and what it wrote."""
    lab = Rehearsal(tmp_path / "lab")
    lab.asked = []
    monkeypatch.setattr(first_round, "Laboratory", lambda folder: lab)
    monkeypatch.setattr("sys.argv", ["x", "--out", str(tmp_path / "out"), "--seeds", "2", *options])
    monkeypatch.chdir(ROOT)
    module.main()
    written = {file.stem: json.loads(file.read_text()) for file in (tmp_path / "out").glob("*.json")}
    return lab.asked, written


@pytest.mark.parametrize("task", ["pick_place", "push"])
def test_controls_run_every_arm_and_judge_its_seeds(tmp_path, monkeypatch, task):
    options = ("--task", task, "--parts", "budgets", "recipes", "sampling", "--budgets", "250", "1000")
    asked, written = rehearse(tmp_path, monkeypatch, seeds_and_controls, seeds_and_controls.Controls, *options)
    groups = written[f"seeds_and_controls_{task}_seeds"]
    budgets = {f"{arm}_{size}" for arm in seeds_and_controls.BUDGET_ARMS for size in (250, 1000)}
    assert set(groups) == budgets | set(seeds_and_controls.RECIPES) | set(seeds_and_controls.SAMPLING)
    assert all(len(group["gains"]) == 2 and len(group["reasons"]) == 1 for group in groups.values())
    rows = {(row["metric"], row["arm"]): row for row in written[f"seeds_and_controls_{task}"]}
    assert rows["gain_per_1000_simulator_episodes", "cloning_250_1"]["value"] == pytest.approx(0.8)
    assert rows["mean_gain", "corrected"]["n"] == 2 and rows["rerun_noise", "corrected"]["value"] == 0.02
    again, _ = rehearse(tmp_path, monkeypatch, seeds_and_controls, seeds_and_controls.Controls, *options)
    assert not again


def test_a_call_whose_time_is_up_begins_nothing_further(tmp_path, monkeypatch):
    asked, _ = rehearse(tmp_path, monkeypatch, seeds_and_controls, seeds_and_controls.Controls, "--seconds", "-1")
    assert not [name for task, name in asked if task in ("train_policy", "clone_successes")]


def test_a_world_model_from_nothing_is_trained_and_drawn_as_the_command_line_says(tmp_path, monkeypatch):
    options = (
        "--base-steps", "0", "--more-states", "2560", "--world-form", '{"noise": 0.0}',
        "--world-training", '{"pure_noise": 1.0, "self_rollout_steps": 1}', "--parts", "recipes", "--recipes",
        "corrected",
    )  # fmt: skip
    made: dict = {}
    monkeypatch.setattr(Rehearsal, "make", noting(Rehearsal.make, made))
    asked, _ = rehearse(tmp_path, monkeypatch, seeds_and_controls, seeds_and_controls.Controls, *options)
    assert ("pretrain_world_model", "world_mix") in asked and not [name for _, name in asked if name == "world_base"]
    params, inputs = made["world_mix"]
    assert params["training"]["pure_noise"] == 1.0 and params["training"]["self_rollout_steps"] == 1
    assert yaml.safe_load(Path(inputs["config"]).read_text())["noise"] == 0.0
    assert inputs["codec"].path == tmp_path / "lab/data/codec"
    assert "rollouts_more" in [source.path.name for source in made["data_mix"][1]["sources"]]
    with pytest.raises(ValueError, match="leaves no base"):
        rehearse(
            tmp_path / "again", monkeypatch, seeds_and_controls, seeds_and_controls.Controls, *options[:2],
            "--parts", "budgets", "--budget-arms", "in_world_from_base", "--budgets", "250",
        )  # fmt: skip


@pytest.mark.parametrize("text", ["{noise: 0}", "[1]", "1.0"])
def test_what_is_no_json_object_is_named(tmp_path, monkeypatch, capsys, text):
    with pytest.raises(SystemExit):
        rehearse(tmp_path, monkeypatch, seeds_and_controls, seeds_and_controls.Controls, "--world-form", text)
    assert f"{text!r} is no JSON object" in capsys.readouterr().err


def noting(inner, made: dict):
    """`make` that keeps what it was asked for, by name."""

    def make(self, task, name, params, **more):
        made[name] = (params, more)
        return inner(self, task, name, params, **more)

    return make


def test_a_second_round_refines_every_arm_and_trains_in_it(tmp_path, monkeypatch):
    asked, written = rehearse(tmp_path, monkeypatch, second_round, second_round.SecondRound)
    refined = {name.removeprefix("world_") for task, name in asked if task == "refine_world_model"}
    assert refined == set(second_round.ARMS) - {"more_training", "anew", "long", "long_old"}
    groups = written["second_round_pick_place_seeds"]
    assert set(groups) == {"first_round"} | {f"second_{arm}" for arm in second_round.ARMS}
    rows = {(row["metric"], row["arm"]) for row in written["second_round_pick_place"]}
    assert ("fake_success_mixed", "more_training") in rows and ("watched_discrimination", "forks") in rows


def test_every_system_collects_trains_and_is_shown_beside_what_was_published(tmp_path, monkeypatch):
    asked, written = rehearse(tmp_path, monkeypatch, four_systems, four_systems.Trial)
    names = set(system_variants.plain())
    for task in ("collect_rollouts", "train_world_model", "calibrate_reward", "admit_world_model"):
        assert {name for each, own in asked if each == task for name in names if name in own} == names
    assert {own for task, own in asked if task == "train_policy"} == {f"policy_{n}_{s}" for n in names for s in (0, 1)}
    rows = {(row["metric"], row["arm"]): row for row in written["four-systems"]}
    for name in names:
        gain = rows["gain", f"{name}, trained policy"]
        assert gain["value"] == pytest.approx(0.2) and gain["n"] == 2 and rows["seconds", name]["unit"] == "s"
        assert rows["success", f"{name}, start policy"]["value"] == 0.5
    page = (tmp_path / "out" / "four-systems.md").read_text()
    assert all(f"## {name}" in page for name in names)
    again, _ = rehearse(tmp_path, monkeypatch, four_systems, four_systems.Trial)
    assert not again


def test_a_call_whose_time_is_up_begins_no_further_system(tmp_path, monkeypatch):
    asked, _ = rehearse(tmp_path, monkeypatch, four_systems, four_systems.Trial, "--seconds", "-1")
    assert not asked


def test_a_system_without_a_file_is_refused_by_name(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="there is no system wordloop; there is: "):
        rehearse(tmp_path, monkeypatch, four_systems, four_systems.Trial, "--systems", "wordloop")


def test_a_variant_makes_anew_what_its_change_touches_and_nothing_else(tmp_path, monkeypatch):
    options = ("--systems", "worldloop", "worldloop_resnet")
    asked, written = rehearse(tmp_path, monkeypatch, four_systems, four_systems.Trial, *options)
    own = [name for task, name in asked if "resnet" in name and not name.startswith(("evaluation", "replay"))]
    policies = ["policy_worldloop_resnet_0", "policy_worldloop_resnet_1"]
    assert own == ["reward_worldloop_resnet", "admission_worldloop_resnet", *policies]
    assert {row["arm"].split(",")[0] for row in written["four-systems"] if row["metric"] == "gain" and "," in row["arm"]
            } == {"worldloop", "worldloop_resnet"}  # fmt: skip
    assert "`worldloop_resnet`: worldloop, but a ResNet" in (tmp_path / "out" / "four-systems.md").read_text()


@pytest.mark.parametrize("name", system_variants.VARIANTS)
def test_a_variant_fits_its_system_and_differs_from_it(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    variant = system_variants.VARIANTS[name]
    plain = system_variants.system(system_variants.Variant(variant.system, ""))
    changed = system_variants.system(variant)
    without = dict(claims=())
    assert (changed.model_copy(update=without) != plain.model_copy(update=without)) != bool(variant.demonstrations)
