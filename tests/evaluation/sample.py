"""A round's records with numbers as a study measured them, for the report's tests."""

from pathlib import Path

import torch

from coevo.core import random
from coevo.evaluation import strips
from coevo.evaluation.drive import drive, reached
from coevo.evaluation.report.data import Curve, EarlierRound, ReportData, Source
from coevo.records.base import read_yaml
from coevo.records.outcomes import (
    Admission,
    Breakdown,
    Calibration,
    Criterion,
    Decision,
    Evaluation,
    Fidelity,
    FidelitySlice,
    Figure,
    HorizonPoint,
    Interval,
    Mismatch,
    NoiseSpread,
    OtherThreshold,
    StateFidelity,
    StateScore,
    TruthStability,
)
from coevo.records.system import System
from tests.doubles import TOY, ToyDream, ToyReward, ToySimulator, toy_state

SYSTEM = Path(__file__).resolve().parents[2] / "configs/system/rl_inside_world_models.yaml"
REWARD, REFEREE = "default/start/reward", "default/start/referee"
BEFORE, AFTER = "default/start/world_model_expert", "default/i001/world_model"


def interval(value, n, half=0.05, floor=0.0):
    return Interval(value=value, low=max(value - half, floor), high=min(value + half, 1.0), n=n)


def fidelity(arm, fakes, recalls, counts=((154, 134), (81, 87), (73, 47)), reader=REWARD):
    return tuple(
        Fidelity(
            arm=arm,
            reader=reader,
            subset=subset,
            fake_success=interval(fake, failures),
            recall=interval(recall, successes),
        )
        for subset, fake, recall, (failures, successes) in zip(
            ("all", "mixed", "same"), fakes, recalls, counts, strict=True
        )
    )


def sliced(name, arm, fake, recall, counts, kind=""):
    row = dict(arm=arm, reader=REWARD, slice=name, kind=kind, subset="all")
    return FidelitySlice(**row, fake_success=interval(fake, counts[0]), recall=interval(recall, counts[1]))


def breakdown():
    """Where the fidelity of `sample` comes from."""
    kinds = {"none": (0.24, 0.84), "early_release": (0.31, 0.9), "weak_grip": (0.62, 0.88), "near success": (0.55, 0.5)}
    return Breakdown(
        slices=(
            *(sliced("kind", AFTER, fake, recall, (40, 32), kind) for kind, (fake, recall) in kinds.items()),
            *(sliced("kind", "simulator", 0.05, 0.99, (40, 32), kind) for kind in kinds),
            sliced("recorded_history", AFTER, 0.15, 0.93, (154, 134)),
            sliced("stable_truth", AFTER, 0.19, 0.87, (120, 118)),
            sliced("seen_states", AFTER, 0.18, 0.9, (130, 126)),
        ),
        horizon=tuple(
            HorizonPoint(
                arm=arm,
                reader=REWARD,
                decision=decision,
                fake_success=interval(top * (decision - 4) / 6, 154),
                recall=interval(0.5 + 0.05 * (decision - 4), 134),
                first_disagreements=decision,
            )
            for arm, top in (("simulator", 0.058), (BEFORE, 0.883), (AFTER, 0.24))
            for decision in range(5, 11)
        ),
        states=(
            StateFidelity(state="pick-place-3f2a", failures=3, faked=2, successes=1, missed=1, wrong_before=1),
            StateFidelity(state="pick-place-77c0", failures=4, faked=3, successes=0, missed=0, wrong_before=4),
            StateFidelity(state="pick-place-9b41", failures=2, faked=0, successes=2, missed=0, wrong_before=2),
        ),
        noise=NoiseSpread(
            arm=AFTER,
            reader=REWARD,
            draws=4,
            flipped=interval(0.11, 288),
            flipped_mixed=interval(0.17, 168),
            fake_success=(0.24, 0.22, 0.25, 0.24),
            recall=(0.84, 0.85, 0.84, 0.83),
        ),
        truth=TruthStability(
            pixels=0.25, metres=0.002, reruns=4, flipped=interval(0.06, 288), unstable_states=("pick-place-77c0",)
        ),
        threshold=OtherThreshold(
            arm=AFTER, reader=REWARD, ranked_right=interval(0.88, 288), recall=0.8, threshold=0.93,
            fidelity=fidelity(AFTER, (0.15, 0.21, 0.08), (0.806, 0.82, 0.78)),
        ),
        pairs_told_apart=interval(0.71, 90),
        not_measured=("No episode of overshoot: what the world model does with such faults is not known.",),
    )


def toy_strips():
    starts = [toy_state(column) for column in range(6)]
    actions = torch.tensor(TOY.action.null).repeat(6, TOY.horizon, 1)
    actions[:, :, 0] = 1.0
    keys = random.row_keys("sample", rows=[start.id for start in starts])
    worlds = {"simulator": ToySimulator(), BEFORE: ToyDream(fakes="all"), AFTER: ToyDream(fakes={"dot-0-7"})}
    driven = {arm: drive(world, starts, actions, keys) for arm, world in worlds.items()}
    truth = reached(driven["simulator"].success, TOY.success_from).numpy()
    frames = {arm: found.frames.numpy() for arm, found in driven.items()}
    read = {arm: ToyReward().verdicts(found.frames, [""] * 6).success.numpy() for arm, found in driven.items()}
    return tuple(strips.choose([start.id for start in starts], truth, frames, read, 6))


def evaluation(seed, success, gain, role="sealed"):
    return Evaluation(
        policy=f"default/i001/policy-{seed}",
        states=f"default/start/{role}_states",
        role=role,
        sampling="sampled",
        scores=tuple(StateScore(state=f"s{i}", successes=1, episodes=2) for i in range(144)),
        success=interval(success, 144),
        start_policy="default/start/policy",
        start_success=interval(0.462, 144),
        gain=interval(gain, 144, floor=-1.0),
    )


def sample(admitted=True, seeds=5, earlier=False, films=None):
    """A round that was admitted and promoted, or one that was refused."""
    criterion = Criterion(
        recall_floor=0.8, fake_success_ceiling=0.35, fake_success_mixed_ceiling=0.45, mismatch_ceiling=0.4
    )
    after = ((0.240, 0.296, 0.178), (0.843, 0.885, 0.766)) if admitted else ((0.463, 0.540, 0.378), (0.664, 0.60, 0.75))
    reasons = (
        ()
        if admitted
        else (
            "fake success is 0.463 (n=154), 0.113 above its ceiling of 0.350",
            "recall is 0.664 (n=134), 0.136 below its floor of 0.800",
        )
    )
    gains = (0.240, 0.253, 0.222, 0.264, 0.201)[:seeds] if admitted else (0.0,) * seeds
    admission = Admission(
        admitted=admitted,
        reasons=reasons,
        criterion=criterion,
        criterion_sha256="c" * 64,
        fidelity=(
            *fidelity("simulator", (0.058, 0.024, 0.095), (0.993, 1.0, 0.98)),
            *fidelity(BEFORE, (0.883, 0.951, 0.808), (1.0, 1.0, 1.0)),
            *fidelity(AFTER, *after),
            *fidelity(AFTER, (0.25, 0.31, 0.18), (0.85, 0.88, 0.80), reader=REFEREE),
        ),
        mismatch=interval(0.302, 63, 0.09),
        world_model=AFTER,
        reward_model=REWARD,
        breakdown=breakdown(),
    )
    names = [f"default/i001/policy-{seed}" for seed in range(seeds)]
    mismatches = (0.276, 0.279, 0.246, 0.228, 0.294)
    control = "default/i001/world_model_success_only"
    steps = tuple(float(step) for step in range(0, 1200, 20))
    updates = tuple(float(update) for update in range(1, 13))
    return ReportData(
        task="pick-place",
        instruction="put the green block on the blue dot",
        admission=admission,
        decision=Decision(
            outcome="promote" if admitted else "not_admitted",
            round="i001",
            reason="Promoted: the gain on validation states is +0.235 [+0.181, +0.290] over 96 states."
            if admitted
            else "The world model was not admitted: " + "; ".join(reasons) + ". The old policy is kept.",
            parents={
                "dataset": "i001",
                "world_model": "i001",
                "policy": "i001" if admitted else "start",
                "reward": "start",
            },
        ),
        sealed=tuple(evaluation(seed, 0.462 + gain, gain) for seed, gain in enumerate(gains)),
        validation=tuple(evaluation(seed, 0.462 + gain, gain - 0.02, "validation") for seed, gain in enumerate(gains)),
        replays=tuple(
            Mismatch(
                policy=name, world_model=AFTER, dreamed=144, dreamed_success=0.86, mismatch=interval(value, 124, 0.08)
            )
            for name, value in zip(names, mismatches, strict=False)
        )
        if admitted
        else (),
        controls=(
            Admission(
                admitted=False,
                reasons=("fake success",),
                criterion=criterion,
                criterion_sha256="c" * 64,
                fidelity=fidelity(control, (0.812, 0.901, 0.712), (1.0, 1.0, 1.0)),
                mismatch=None,
                world_model=control,
                reward_model=REWARD,
            ),
        ),
        calibration=Calibration(
            threshold=0.62,
            frames_given=21,
            frames_read=21,
            fps=20.0,
            precision=0.985,
            recall=0.993,
            false_positive_rate=0.016,
            balanced_accuracy=0.988,
            n=128,
            weights_sha256="d" * 64,
        ),
        pixels=tuple(
            Figure(
                metric=metric, arm=arm, task="pick-place", value=value, n=48, unit="dB" if "psnr" in metric else "index"
            )
            for arm, values in ((BEFORE, (24.7, 27.0, 0.91, 0.93)), (AFTER, (26.9, 28.1, 0.93, 0.94)))
            for metric, value in zip(
                ("psnr_failures", "psnr_successes", "ssim_failures", "ssim_successes"), values, strict=True
            )
        ),
        strips=films if films is not None else toy_strips(),
        replay_strips=(films if films is not None else toy_strips())[:2] if admitted else (),
        curves=(
            Curve(
                "World model loss",
                "seed 0",
                steps,
                tuple(0.08 * 0.997**step + 0.012 + 0.002 * (step % 60 == 0) for step in steps),
            ),
            *(
                Curve(
                    panel,
                    f"seed {seed}",
                    updates,
                    tuple(low + (high - low) * (1 - 0.8**u) + 0.01 * ((u * (seed + 3)) % 3) for u in updates),
                )
                for seed in range(seeds)
                for panel, low, high in (
                    ("Success in training episodes, as the reward reads it", 0.44, 0.9),
                    ("Success on validation states", 0.46, 0.72),
                    ("Share of frames that carry gradient", 0.8, 0.45),
                    ("KL to the policy that acted", 0.0, 0.03),
                )
                if admitted
            ),
        ),
        earlier=(
            EarlierRound(
                "i000",
                "keep",
                (
                    Figure(
                        metric="policy_success",
                        arm="trained policy",
                        task="pick-place",
                        value=0.5,
                        n=5,
                        low=0.45,
                        high=0.55,
                    ),
                    Figure(
                        metric="fake_success", arm="after", task="pick-place", value=0.41, n=154, low=0.35, high=0.47
                    ),
                    Figure(metric="recall", arm="after", task="pick-place", value=0.79, n=134, low=0.73, high=0.85),
                ),
            ),
        )
        if earlier
        else (),
        sources=tuple(
            Source(role, id, f"tasks.{stage}", 0, f"{index:x}" * 64)
            for index, (role, id, stage) in enumerate(
                (
                    ("admission", "default/i001/admission", "admit_world_model"),
                    ("world model", AFTER, "train_world_model"),
                    ("reward", REWARD, "calibrate_reward"),
                    ("decision", "default/i001/decision", "decide_round"),
                )
            )
        ),
        seeds={name: index for index, name in enumerate(names)},
        system=System.parse(read_yaml(SYSTEM), str(SYSTEM)),
    )
