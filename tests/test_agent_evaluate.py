"""Evaluations: each episode counted once, nothing disturbed, and statistics against formulas."""

import json
import math

import numpy as np
import pytest
import torch
from agent_games import OBJECTIVES, Orchard
from hypothesis import given, settings
from hypothesis import strategies as st

from envgen_nb.agent.evaluate import Evaluation, bootstrap_interval, evaluate, iqm, success_rates, wilson_interval
from envgen_nb.agent.fast import FastPPO
from envgen_nb.agent.presets import get_preset

PRESET = get_preset("symbols", hidden=(16, 16), rollout_steps=16, num_envs=8)


def an_agent(seed=0):
    venv = Orchard(8)
    return FastPPO(PRESET, venv.single_observation_space, venv.single_action_space, seed)


def test_every_sub_environment_plays_exactly_one_episode():
    "Episodes that end early must not be counted twice, and long ones not be left out."
    agent = an_agent()
    played = evaluate(agent, Orchard(200, seed=3, episodes=1), runs=2, seed=0)
    assert played.success.shape == (2, 2) and len(played.returns) == 200
    assert (played.lengths == 20).sum() > 80                          # those that were cut are all there
    again = evaluate(agent, Orchard(200, seed=3), runs=2, seed=0)     # others would go on: only the first counts
    assert again.to_dict() == played.to_dict()
    assert set(played.feedback(OBJECTIVES)) == set(OBJECTIVES)
    rates = success_rates(played.unlocked, np.ones_like(played.unlocked), OBJECTIVES)
    assert played.feedback(OBJECTIVES)["apple"][0] == pytest.approx(rates["apple"])


def test_it_disturbs_nothing_and_follows_its_seed():
    agent, twin = an_agent(), an_agent()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, second, other = (evaluate(agent, Orchard(50, episodes=1), 1, seed) for seed in (1, 1, 2))
    assert first.to_dict() == second.to_dict() != other.to_dict()
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(agent.act_generator.get_state(), twin.act_generator.get_state())
    assert all(torch.equal(w, twin.policy.state_dict()[k]) for k, w in agent.policy.state_dict().items())


def test_the_callback_counts_and_stops():
    agent, seen = an_agent(), []
    evaluate(agent, Orchard(30, episodes=1), 3, 0, callback=seen.append)
    assert seen == sorted(seen) and seen[-1] == 30
    assert evaluate(agent, Orchard(30, episodes=1), 3, 0, callback=lambda finished: finished >= 5) is None
    for runs in (0, 4, -3):
        with pytest.raises(ValueError, match="equal runs"):
            evaluate(agent, Orchard(30, episodes=1), runs, 0)


@st.composite
def evaluations(draw):
    runs, episodes, objectives = (draw(st.integers(1, n)) for n in (3, 4, 5))
    g = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = runs * episodes
    lengths = g.integers(1, 10_000, n).astype(np.int32)
    return Evaluation(runs, g.normal(size=n), lengths, g.random((n, objectives)) < 0.5)


@settings(deadline=None)
@given(evaluations())
def test_json_there_and_back(played):
    again = Evaluation.from_dict(json.loads(json.dumps(played.to_dict())))
    for name in ("runs", "returns", "lengths", "unlocked"):
        assert np.array_equal(getattr(again, name), getattr(played, name))
        assert np.asarray(getattr(again, name)).dtype == np.asarray(getattr(played, name)).dtype


@pytest.mark.parametrize("change", [
    {"runs": 0}, {"runs": "2"}, {"objectives": 1}, {"objectives": -1}, {"unlocked": [[0], [-1], [], []]},
    {"unlocked": [[0]]}, {"unlocked": None}, {"returns": [1.0]}, {"returns": "abcd"}, {"lengths": [2**40] * 4},
    {"unlocked": [["0"], [], [], []]}, {"unlocked": [[True], [], [], []]}, {"unlocked": [0, 1, 2, 3]}])
def test_broken_data_is_refused(change):
    good = {"runs": 2, "objectives": 2, "returns": [0.0] * 4, "lengths": [1] * 4, "unlocked": [[0], [1], [], [0, 1]]}
    Evaluation.from_dict(good)
    with pytest.raises(ValueError):
        Evaluation.from_dict(good | change)


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_iqm_is_the_trimmed_mean(scores):
    trim_mean = pytest.importorskip("scipy.stats").trim_mean
    assert iqm(np.array(scores)) == pytest.approx(trim_mean(scores, 0.25), rel=1e-9, abs=1e-6)


def test_bootstrap_covers_the_truth_as_often_as_it_says():
    "The mean of two tasks, 12 seeds each: percentile intervals of 90% hold the true mean in nearly 90% of experiments."
    g, hits = np.random.default_rng(0), 0
    for i in range(400):
        low, high = bootstrap_interval(g.normal([20, 80], [5, 10], (12, 2)), np.mean, samples=300, seed=i, level=0.9)
        hits += low <= 50 <= high
    assert 0.80 < hits / 400 < 0.94


def test_bootstrap_resamples_seeds_within_tasks():
    "The bootstrap variance of the mean is that within the tasks; what lies between tasks has no part in it."
    scores = np.random.default_rng(1).normal([0, 100, 1000], [1, 2, 3], (10, 3))
    low, high = bootstrap_interval(scores, np.mean, samples=20_000)
    expected = 1.96 * math.sqrt(scores.var(0).sum() / 10) / 3
    assert high - low == pytest.approx(2 * expected, rel=0.05)
    assert bootstrap_interval(scores[:, 0], np.mean, seed=5) == bootstrap_interval(scores[:, :1], np.mean, seed=5)


def test_wilson_solves_its_equation():
    "Its ends are the rates p at which the observed share is exactly z standard errors away."
    for k, n, level in ((1, 20, 0.95), (30, 60, 0.95), (99, 100, 0.99)):
        z = 1.959964 if level == 0.95 else 2.575829
        for end in wilson_interval(k, n, level):
            p = end / 100
            assert abs(k / n - p) == pytest.approx(z * math.sqrt(p * (1 - p) / n), rel=1e-4)
    assert wilson_interval(0, 5)[0] == 0 and wilson_interval(5, 5)[1] == 100
