"""Statistics against other programs' numbers and numbers worked out by hand; a run's summary, killed or not."""
import json
import math
import re
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
import records
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.events import Training
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.results import (
    learning_curve,
    measure,
    measure_all,
    on_one_grid,
    parse_summary,
    played,
    scores,
    summary,
    training_episodes,
    training_score,
)
from envgen_nb.results.figures import table_text
from envgen_nb.results.statistics import (
    MIN_SEEDS,
    Estimate,
    area_under_curve,
    improvement,
    iqm,
    mean,
    paired,
    steps_to,
    wilson_interval,
)
from envgen_nb.studio.experiment_view import _sentence, plus_minus

ROOT = Path(__file__).parent.parent
SEEDS = [35.1, 36.9, 34.2, 37.0, 36.1, 35.0, 36.6, 34.9]
numbers = st.floats(-1e6, 1e6)


TRIALS = 2_000
TRUTH = {"mean": 0.0, "iqm": 0.0, "paired": 0.0, "improvement": 0.5}


def estimates(ours, base):
    "Each statistic of two groups of seeds that do not differ."
    return {"mean": mean(ours), "iqm": iqm(ours), "improvement": improvement(ours, base),
            "paired": paired(dict(enumerate(ours)), dict(enumerate(base)))}


@pytest.mark.parametrize("count", [5, 8, 10, 20])
def test_intervals_hold_the_truth_as_often_as_they_say(count):
    "Of normal noise, in which there is nothing to find: 95% of the intervals hold the true value."
    found = [estimates(*pair) for pair in np.random.default_rng(count).standard_normal((TRIALS, 2, count))]
    for name, true in TRUTH.items():
        held = sum(one[name].low <= true <= one[name].high for one in found)
        assert 0.93 <= held / TRIALS <= 0.97, name


@pytest.mark.parametrize("count", [5, 10])
@pytest.mark.parametrize("effect", [0.5, 1, 2])
def test_the_interval_of_an_improvement_holds_the_truth_where_there_is_one(count, effect):
    true = NormalDist().cdf(effect / 2 ** 0.5)
    found = [improvement(ours + effect, base) for ours, base in
             np.random.default_rng(0).standard_normal((TRIALS, 2, count))]
    assert 0.93 <= sum(one.low <= true <= one.high for one in found) / TRIALS <= 0.98


@pytest.mark.parametrize("count", [2, 3, 4])
def test_fewer_than_five_seeds_have_no_interval(count):
    ours, base = SEEDS[:count], SEEDS[count:2 * count]
    for name, one in estimates(ours, base).items():
        assert (one.low, one.high, one.count) == (None, None, count), name
    assert mean(ours).values == tuple(ours) == iqm(ours).values and improvement(ours, base).values == ()
    assert f"{mean([1, 3.25]):+.1f}" == "+2.1 (+1.0, +3.2)" and plus_minus(mean([1, 3])) == "2.0 (1.0, 3.0)"
    assert mean(SEEDS[:MIN_SEEDS]).low is not None and mean(SEEDS[:MIN_SEEDS]).values == tuple(SEEDS[:MIN_SEEDS])


@pytest.mark.parametrize("count", [5, 8, 10, 20])
def test_the_mean_has_student_s_interval(count):
    values = np.random.default_rng(1).normal(50, 8, count)
    expected = stats.t.interval(0.95, count - 1, values.mean(), stats.sem(values))
    assert (mean(values).low, mean(values).high) == pytest.approx(expected)


@pytest.mark.parametrize("count", [5, 8, 20])
def test_the_iqm_has_the_standard_error_of_scipy_s_trimmed_mean(count):
    values = np.random.default_rng(2).normal(50, 8, count)
    found, cut = iqm(values), count // 4
    low, high = stats.mstats.trimmed_mean_ci(values, (0.25, 0.25), alpha=0.05)        # with Student's quantile
    wider = (found.high - found.low) / (high - low)
    assert found.value - found.low == pytest.approx(found.high - found.value) and 1 <= wider < 1.2
    assert (low + high) / 2 == pytest.approx(found.value) == np.sort(values)[cut:count - cut].mean()


def test_newcombe_s_interval():
    """Its ends are the probabilities whose own standard error, Hanley and McNeil's with the mean of both orders, is
    1.96 times in the distance; and it stays between 0 and 1."""
    found = improvement([1, 2, 4, 6, 8, 9], [0, 3, 5, 7, 7])
    m, n = 6, 5
    for end in (found.low, found.high):
        q1, q2 = end / (2 - end), 2 * end ** 2 / (1 + end)
        middle = (m + n) / 2 - 1
        variance = (end * (1 - end) + middle * (q1 - end ** 2) + middle * (q2 - end ** 2)) / (m * n)
        assert abs(found.value - end) == pytest.approx(1.959964 * variance ** 0.5, rel=1e-4)
    best = improvement(range(5, 10), range(5))
    assert (best.value, best.high) == (1, 1) and 0.5 < best.low < 0.9
    assert improvement(range(5), range(5, 10)).low == 0


@settings(deadline=None)
@given(st.lists(numbers, min_size=1, max_size=40))
def test_iqm_is_the_trimmed_mean(values):
    assert iqm(values).value == pytest.approx(stats.trim_mean(values, 0.25), rel=1e-9, abs=1e-6)


@settings(deadline=None)
@given(*[st.lists(st.integers(0, 5), min_size=1, max_size=12)] * 2)
def test_improvement_is_mann_whitney_s(ours, base):
    statistic = stats.mannwhitneyu(ours, base).statistic
    found = improvement(ours, base)
    assert found.value == pytest.approx(statistic / (len(ours) * len(base)), abs=1e-12)
    assert found.value + improvement(base, ours).value == pytest.approx(1)
    assert found.count == min(len(ours), len(base)) and (found.low is None) == (found.count < MIN_SEEDS)
    assert found.low is None or 0 <= found.low <= found.value <= found.high <= 1


def test_rliable_s_numbers_by_hand():
    """rliable (https://github.com/google-research/rliable): `aggregate_iqm` of one task is the mean of the middle half;
    `probability_of_improvement` is U / (m n) with ties half, here (0 + 0, 1 + 1/2, 1 + 1) of 6 pairs."""
    assert iqm([700, 3, 1, 2, 6, 4, 5, 0]).value == (2 + 3 + 4 + 5) / 4
    assert iqm([1, 2, 3, 4, 5]).value == 3 and iqm([1, 5, 9]).value == 5
    assert improvement([1, 3, 5], [2, 3]).value == pytest.approx(3.5 / 6)
    assert improvement(SEEDS, SEEDS).value == 0.5 and improvement([2, 3], [0, 1]) == Estimate(1, None, None, 2)


def test_one_seed_and_none():
    "With one seed all that can be said is what was seen; with none, not even a value."
    assert mean([4]) == Estimate(4, None, None, 1, (4,)) and iqm([4]) == mean([4])
    assert str(mean([4])) == "4.0, 1 seed" and f"{mean([4]):.2f}" == "4.00" and f"{mean([1, 3])}" == str(mean([1, 3]))
    for nothing in (mean([]), iqm([None]), paired({1: 2.0}, {2: 3.0}), improvement([], [1, 2])):
        assert math.isnan(nothing.value) and (nothing.low, nothing.high, nothing.count) == (None, None, 0)
        assert str(nothing) == "–"


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
    assert mean(SEEDS) == mean(list(SEEDS)) and iqm(SEEDS) == iqm(list(SEEDS))
    assert np.random.get_state()[1].tolist() == before


def test_a_shift_and_a_scale_pass_through():
    for statistic in (mean, iqm):
        one, other = statistic(SEEDS), statistic([10 * value + 3 for value in SEEDS])
        assert (other.value, other.low, other.high) == pytest.approx(
            [10 * x + 3 for x in (one.value, one.low, one.high)])


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
             evaluation_episodes=2, preset_options={"num_envs": 8, "rollout_steps": 128})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = create_run(make_settings(**SMALL), tmp_path_factory.mktemp("whole") / "run")
    assert summary(run) | {"versions": 0} == summary(run) | {"versions": 0}           # nothing has happened in it yet
    assert not summary(run)["finished"] and summary(run)["curve"]["returns"] == [None] == measures(summary(run))
    list(run_cycles(run.path))
    return run


def measures(record):
    "All kinds of measures, those that differ once."
    names = ("area under the curve", "score at the end", "score over training", "return at the end",
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
    assert len(short["curve"]["steps"]) == len(learning_curve(run)[0]) == 6
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


def test_every_step_that_was_played_is_counted(tmp_path):
    """Those of training, of trying worlds out, and of the measurements that the designer read, all but the last one's.
    A summary from before they were counted says which measurements these were, and not how long."""
    game = SMALL | {"num_cycles": 2, "cycle_steps": 8_192, "preset_options": {"num_envs": 8, "rollout_steps": 64}}
    found = {}
    for designer, options in (("rules", {}), ("adversarial", {"candidates": 3, "episodes": 1})):
        run = create_run(make_settings(**game, designer=designer, designer_options=options), tmp_path / designer)
        list(run_cycles(run.path))
        found[designer] = one = summary(run)
        tried = sum(part["steps"] for cycle in run.cycles for part in run.selection(cycle))
        assert one["tried"][0] == 0 and one["tried"][-1] == tried and played(one)[-1] == one["steps"][-1] + tried
        old = parse_summary(json.dumps({name: one[name] for name in one if name not in ("tried", "fed_back")}).encode())
        assert max(abs(a - b) for a, b in zip(old["tried"], one["tried"], strict=True)) <= 256      # half a rollout
        assert old["fed_back"]["measurements"] == one["fed_back"]["measurements"]
    read = RunFolder(tmp_path / "rules")
    steps = sum(int(read.evaluation(cycle).lengths.sum()) for cycle in ("cycle-0", "cycle-1"))
    assert found["rules"]["fed_back"] == {"measurements": 2, "steps": steps} and found["rules"]["tried"][-1] == 0
    assert found["adversarial"]["fed_back"] == {"measurements": 0, "steps": 0} and found["adversarial"]["tried"][-1] > 0
    assert f"{steps:,} of 2 measurements that the designer read" in table_text(read)


@pytest.mark.parametrize("often", [9, 17, 33, 100])
def test_an_agent_has_the_same_area_however_often_it_was_measured(often):
    "A curve that rises ever more slowly, at equal steps, and at those of a run with four cycles and a million more."
    def invented(steps, tried=0):
        values = 36 * (1 - np.exp(-np.add(steps, tried) / 500_000))
        return {"finished": True, "steps": list(steps), "tried": tried, "scores": values, "returns": values}

    seldom = [0, 237_568, 475_136, 712_704, 950_272, 1_949_696]
    arms = {"often": {0: invented(np.linspace(0, 1_966_080, often))}, "seldom": {0: invented(seldom)},
            "tried": {0: invented([0, *(step - 50_000 for step in seldom[1:])], [0] + [50_000] * 5)}}
    area = {arm: of[0] for arm, of in measure_all("area under the curve", arms).items()}
    raw = measure("area under the curve")(arms["often"][0])
    assert raw - area["seldom"] > 0.4 and abs(area["often"] - area["seldom"]) < 0.1
    assert area["tried"] == area["seldom"] and played(arms["tried"][0]) == seldom
    one = on_one_grid(arms)
    assert one["often"][0]["steps"] == one["seldom"][0]["steps"] == seldom
    assert np.allclose(one["often"][0]["scores"], one["seldom"][0]["scores"], atol=1)
    assert measure_all("score at the end", arms)["often"][0] == arms["often"][0]["scores"][-1]


def test_measures_by_name():
    record = {"finished": True, "steps": [0, 10, 20], "scores": [0.0, 10.0, 10.0], "returns": [1.0, 2.0, 3.0],
              "success": {"wood": [1.0, 50.0]}, "training": {"score": 7.0}}
    found = {name: measure(name)(record) for name in (
        "area under the curve", "score at the end", "score over training", "return at the end", "success at wood",
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


def test_fewer_steps_are_better_and_a_run_that_never_gets_there_counts():
    """Of ten seeds five never reach the score: such an arm is worse, though those that do are no slower."""
    def run(scores):
        return {"finished": True, "steps": [0, 500, 1000], "tried": 0, "scores": scores, "returns": scores}

    arms = {arm: {seed: run([0.0, 10.0 + seed / 100, 12.0] if seed < reach else [0.0, 3.0, 4.0])
                  for seed in range(10)} for arm, reach in (("always", 10), ("seldom", 5))}
    name = "steps to a score of 10"
    found = measure_all(name, arms)
    assert found["seldom"] == {seed: found["always"][seed] if seed < 5 else 1000 for seed in range(10)}
    assert list(measure_all(name, arms, reached=True)["seldom"]) == [0, 1, 2, 3, 4]
    more = paired(found["seldom"], found["always"])
    assert more.low > 0 and _sentence("seldom", "always", name, more).startswith("seldom is worse than always: +")
    assert _sentence("a", "b", "score at the end", more).startswith("a is better than b: +")


def test_the_record_of_eight_runs_with_a_language_model():
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
    folder = records.opened("paper")
    names = (*folder.experiment.measures, "return at the end")
    measured = [folder.measured(name) for name in names]
    readme = (ROOT / "docs" / "guides" / "results_worlds.md").read_text()
    for arm in folder.experiment.arms:
        row = re.search(rf"^\| `{arm}`: [^|]*\|(.*)\|$", readme, re.MULTILINE)[1]
        expected = []
        for name, values in zip(names, measured, strict=True):
            assert len(values[arm]) == 10
            expected += [plus_minus(mean(list(values[arm].values()))),
                         *[plus_minus(iqm(list(values[arm].values())))] * (name == "score at the end"),
                         "" if arm == "plain" else plus_minus(paired(values[arm], values["plain"]), signed=True)]
        assert [cell.strip() for cell in row.split("|")] == expected, arm
    for values in measured[:len(folder.experiment.measures)]:
        assert f" by {plus_minus(paired(values['rules'], values['fixed']), signed=True)} in " in readme
