"""Statistics against other programs' numbers and numbers worked out by hand; a run's summary, killed or not."""
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envgen_nb.cycle.folder import create_run
from envgen_nb.cycle.run import Training, run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.experiment.folder import ExperimentFolder
from envgen_nb.results import (
    Estimate,
    area_under_curve,
    edges,
    improvement,
    interval,
    iqm,
    mean,
    measure,
    paired,
    scores,
    steps_to,
    student_quantile,
    summary,
    tail,
    training_episodes,
    training_score,
    wilson_interval,
)
from envgen_nb.studio.experiment import plus_minus

ROOT = Path(__file__).parent.parent
SEEDS = [35.1, 36.9, 34.2, 37.0, 36.1, 35.0, 36.6, 34.9]
numbers = st.floats(-1e6, 1e6)


@pytest.fixture
def stats():
    return pytest.importorskip("scipy.stats")


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 9, 29, 77, 1000])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_student_quantile(stats, freedom, level):
    assert student_quantile(freedom, level) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=1e-6)


@pytest.mark.parametrize("count", [2, 5, 8, 10, 100])
def test_the_ends_are_hesterberg_s(stats, count):
    "The expanded percentile interval: Phi(-sqrt(n / (n - 1)) t), and the plain one for many seeds."
    expected = stats.norm.cdf(-math.sqrt(count / (count - 1)) * stats.t.ppf(0.975, count - 1))
    assert tail(count) == pytest.approx(expected, rel=1e-5) and tail(count) < 0.025
    assert tail(100_000) == pytest.approx(0.025, rel=1e-3)


def middle(x, axis):
    cut = x.shape[axis] // 4
    return np.sort(x, axis)[..., cut:x.shape[axis] - cut].mean(axis)


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("ours, theirs", [(mean, np.mean), (iqm, middle)])
def test_the_bootstrap_is_scipy_s(stats, ours, theirs, count):
    "The same resamples, and the percentiles at the level that the correction asks for."
    found = ours(SEEDS[:count])
    given = stats.bootstrap((SEEDS[:count],), theirs, n_resamples=10_000, method="percentile", axis=-1,
                            confidence_level=1 - 2 * tail(count), vectorized=True,
                            random_state=np.random.default_rng([0, 0])).confidence_interval
    assert (found.low, found.high) == pytest.approx((given.low, given.high), rel=1e-12)
    assert found.count == count and found.low <= found.value <= found.high


def test_the_mean_of_many_seeds_has_the_t_interval(stats):
    values = np.random.default_rng(1).normal(50, 8, 40)
    found, half = mean(values), stats.t.ppf(0.975, 39) * stats.sem(values)
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.15)


@settings(deadline=None)
@given(st.lists(numbers, min_size=1, max_size=40))
def test_iqm_is_the_trimmed_mean(values):
    trim_mean = pytest.importorskip("scipy.stats").trim_mean
    assert iqm(values).value == pytest.approx(trim_mean(values, 0.25), rel=1e-9, abs=1e-6)


@settings(deadline=None)
@given(*[st.lists(st.integers(0, 5), min_size=1, max_size=12)] * 2)
def test_improvement_is_mann_whitney_s(ours, base):
    statistic = pytest.importorskip("scipy.stats").mannwhitneyu(ours, base).statistic
    found = improvement(ours, base)
    assert found.value == pytest.approx(statistic / (len(ours) * len(base)), abs=1e-12)
    assert found.value + improvement(base, ours).value == pytest.approx(1)
    assert found.count == min(len(ours), len(base)) and (found.low is None) == (found.count == 1)
    assert found.low is None or 0 <= found.low <= found.high <= 1


def test_rliable_s_numbers_by_hand():
    """rliable (https://github.com/google-research/rliable): `aggregate_iqm` of one task is the mean of the middle half;
    `probability_of_improvement` is U / (m n) with ties half, here (0 + 0, 1 + 1/2, 1 + 1) of 6 pairs."""
    assert iqm([700, 3, 1, 2, 6, 4, 5, 0]).value == (2 + 3 + 4 + 5) / 4
    assert iqm([1, 2, 3, 4, 5]).value == 3 and iqm([1, 5, 9]).value == 5
    assert improvement([1, 3, 5], [2, 3]).value == pytest.approx(3.5 / 6)
    assert improvement(SEEDS, SEEDS).value == 0.5 and improvement([2, 3], [0, 1]) == Estimate(1, 1, 1, 2)


def test_few_seeds():
    "With two seeds all that can be said is what was seen; with one, nothing; with none, not even a value."
    assert mean([1, 3]) == Estimate(2, 1, 3, 2) and mean([4]) == Estimate(4, None, None, 1)
    assert str(mean([4])) == "4.0, 1 seed" and f"{mean([4]):.2f}" == "4.00" and f"{mean([1, 3])}" == str(mean([1, 3]))
    for nothing in (mean([]), iqm([None]), paired({1: 2.0}, {2: 3.0}), improvement([], [1, 2])):
        assert math.isnan(nothing.value) and (nothing.low, nothing.high, nothing.count) == (None, None, 0)
        assert str(nothing) == "–"
    assert interval([1.0], np.mean) is None


def test_what_is_missing_is_left_out():
    assert mean([1, None, 3, float("nan")]) == mean([1, 3]) == mean(np.array([1, np.nan, 3]))
    ours, base = {3: 5.0, 1: 4.0, 2: None, 7: 9.0}, {1: 1.0, 2: 1.0, 3: 1.0, 5: float("nan")}
    assert paired(ours, base) == mean([3.0, 4.0]) and paired(ours, base).count == 2


def test_pairs_leave_out_what_the_seeds_share():
    luck = np.random.default_rng(0).normal(30, 10, 8)
    base = dict(enumerate(luck))
    found = paired({seed: value + 1 + 0.1 * seed for seed, value in base.items()}, base)
    assert found.value == pytest.approx(1.35) and 1 < found.low < found.high < 1.7


def test_the_same_numbers_give_the_same_interval_and_the_global_state_is_left_alone():
    before = np.random.get_state()[1].tolist()
    assert mean(SEEDS) == mean(list(SEEDS)) and np.random.get_state()[1].tolist() == before
    assert interval(SEEDS, lambda x: x.mean(-1), seed=1) != interval(SEEDS, lambda x: x.mean(-1), seed=2)


def test_a_shift_and_a_scale_pass_through():
    one, other = mean(SEEDS), mean([10 * value + 3 for value in SEEDS])
    assert (other.value, other.low, other.high) == pytest.approx([10 * x + 3 for x in (one.value, one.low, one.high)])


def test_it_covers_the_truth_more_often_than_the_plain_percentiles():
    random, hits, plain = np.random.default_rng(0), 0, 0
    for values in random.normal(50, 5, (400, 5)):
        found = mean(values)
        hits += found.low <= 50 <= found.high
        low, high = np.quantile(values[random.integers(0, 5, (1000, 5))].mean(1), [0.025, 0.975])
        plain += low <= 50 <= high
    assert plain / 400 < 0.89 < hits / 400 < 0.98


def test_wilson_solves_its_equation():
    "Its ends are the rates p at which the observed share is exactly z standard errors away."
    for k, n, level in ((1, 20, 0.95), (30, 60, 0.95), (99, 100, 0.99)):
        z = 1.959964 if level == 0.95 else 2.575829
        for end in wilson_interval(k, n, level):
            p = end / 100
            assert abs(k / n - p) == pytest.approx(z * math.sqrt(p * (1 - p) / n), rel=1e-4)
    assert wilson_interval(0, 5)[0] == 0 and wilson_interval(5, 5)[1] == 100


@given(st.lists(st.tuples(st.integers(1, 100), numbers), min_size=1, max_size=12), numbers)
def test_curves(points, level):
    steps, values = np.cumsum([step for step, _ in points]).tolist(), [value for _, value in points]
    area = area_under_curve(steps, values)
    assert min(values) - 1e-6 <= area <= max(values) + 1e-6
    if len(steps) > 1:
        assert area == pytest.approx(np.trapezoid(values, steps) / (steps[-1] - steps[0]), abs=1e-6)
    first = steps_to(steps, values, level)
    assert (first is None) == (max(values) < level)
    if first is not None:
        assert steps[0] <= first <= steps[-1] and (first == steps[0]) == (values[0] >= level or first == steps[0])
        if first > steps[0]:
            assert np.interp(first, steps, values) == pytest.approx(level, rel=1e-6, abs=1e-2)


SMALL = dict(num_cycles=1, num_worlds=2, cycle_steps=4_096, final_steps=2_048, evaluation_runs=1, threads=1, seed=5,
             evaluation_episodes=2, agent_options={"num_envs": 8, "rollout_steps": 128})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = create_run(make_settings(**SMALL), tmp_path_factory.mktemp("whole") / "run")
    assert summary(run) | {"versions": 0} == summary(run) | {"versions": 0}           # nothing has happened in it yet
    assert not summary(run)["finished"] and summary(run)["curve"]["returns"] == [None] == measures(summary(run))
    list(run_cycles(run.path))
    return run


def measures(record):
    "All kinds of measures, those that differ once."
    names = ("area under the curve", "score at the end", "score over training", "reward at the end",
             "success at wake_up", "steps to a score of 0.5")
    found = [measure(name)(record) for name in names]
    return [None] if found == [None] * len(found) else found


def test_a_summary_says_what_the_folder_says(run):
    short = summary(run)
    assert json.loads(json.dumps(short, allow_nan=False)) == short and short["finished"]
    assert short["cycles"] == run.cycles and short["steps"] == [0, 4_096, 6_144] == [
        json.loads(run.text(cycle, "evaluation.json"))["step"] for cycle in run.cycles]
    assert short["scores"] == [round(score, 3) for score in scores(run).values()]
    assert short["returns"][-1] == round(run.evaluation("final").episode_return()[0], 3)
    assert set(short["success"]) == set(run.simulator.objectives) and len(short["success"]["wake_up"]) == 3
    told = training_episodes(run)
    assert short["training"] == {"score": round(training_score(run), 3), "episodes": len(told),
                                 "cut": int(told.cut.sum())}
    assert len(short["curve"]["steps"]) == len(edges([run])) - 1 == 6
    assert short["settings"]["seed"] == short["seed"] == 5
    assert any(value is not None for value in short["curve"]["returns"])
    seconds, cost = short["cost"]["seconds"], short["cost"]
    assert seconds["training"] > 0 and seconds["measuring"] > 0 and seconds["designing"] >= 0
    assert (cost["calls"], cost["tokens_in"], cost["price"]) == (0, 0, None) and short["versions"]["versions"]["numpy"]
    assert None not in measures(short)[:5]


def test_a_run_that_was_killed_and_resumed_has_the_same_summary(run, tmp_path):
    again, told = create_run(run.settings, tmp_path / "again"), 0

    def kill():
        if told == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for event in run_cycles(again.path, check=kill):
            told += isinstance(event, Training)
    halfway = summary(again)
    assert not halfway["finished"] and halfway["steps"] == [0] and measure("score at the end")(halfway) is None
    list(run_cycles(again.path))

    def without_times(record):
        return record | {"cost": record["cost"] | {"seconds": None}}

    assert without_times(summary(again)) == without_times(summary(run))


def test_measures_by_name():
    record = {"finished": True, "steps": [0, 10, 20], "scores": [0.0, 10.0, 10.0], "returns": [1.0, 2.0, 3.0],
              "success": {"wood": [1.0, 50.0]}, "training": {"score": 7.0}}
    found = {name: measure(name)(record) for name in (
        "area under the curve", "score at the end", "score over training", "reward at the end", "success at wood",
        "steps to a score of 2.5", "steps to a score of 11")}
    assert list(found.values()) == [7.5, 10, 7, 3, 50, 2.5, None]
    assert measure("steps to a score of 5")(record | {"finished": False}) == 5
    for wrong, hint in [("score at end", "did you mean 'score at the end'"), ("nonsense", "success at OBJECTIVE"),
                        ("steps to a score of -1", "steps to a score of N"), ("success at ", "success at OBJECTIVE")]:
        with pytest.raises(ValueError, match=hint):
            measure(wrong)
    with pytest.raises(ValueError, match="did you mean 'wood'"):
        measure("success at wod", ["wood", "stone"])
    with pytest.raises(ValueError, match="did you mean 'wood'"):
        measure("success at wod")(record)


def test_the_record_of_eight_runs_with_a_language_model(stats):
    """Its table is that of the scores that were recorded, beside the arms of the same commit, seed by seed."""
    recorded = ROOT / "nbs" / "lab" / "experiments" / "recordings" / "live"
    read = [[json.loads(line) for line in path.read_text().splitlines()]
            for path in (recorded / "results.jsonl", ROOT / "benchmarks" / "paper_comparison.jsonl")]
    for who, line in (("plain", "more than the plain run"), ("fixed", "more than the run with fixed worlds")):
        base = {one["seed"]: one["scores"] for one in read[1] if one["who"] == who and "protocol" not in one}
        gains = np.array([np.subtract(one["scores"], base[one["seed"]]) for one in read[0]])[:, 1:]
        half = stats.t.ppf(0.975, len(gains) - 1) * gains.std(0, ddof=1) / math.sqrt(len(gains))
        found = re.search(rf"\| {line}.*?\| (.*) \|$", (recorded / "README.md").read_text(), re.MULTILINE)
        assert found[1].split(" | ") == [f"{a:+.1f} ± {b:.1f}" for a, b in zip(gains.mean(0), half, strict=True)]


def test_the_guide_says_what_came_out():
    "The table of the experiment `paper`, and the difference between worlds that follow the agent and fixed ones."
    folder = ExperimentFolder(ROOT / "benchmarks" / "experiments" / "paper")
    measured = [folder.measured(name) for name in folder.experiment.measures]
    readme = (ROOT / "docs" / "guides" / "results.md").read_text()
    for arm in folder.experiment.arms:
        row = re.search(rf"^\| `{arm}`: [^|]*\|(.*)\|$", readme, re.MULTILINE)[1]
        expected = []
        for values in measured:
            assert len(values[arm]) == 10
            expected += [plus_minus(mean(list(values[arm].values()))),
                         "" if arm == "plain" else plus_minus(paired(values[arm], values["plain"]), signed=True)]
        assert [cell.strip() for cell in row.split("|")] == expected, arm
    for values in measured:
        assert f" by {plus_minus(paired(values['rules'], values['fixed']), signed=True)} in " in readme
