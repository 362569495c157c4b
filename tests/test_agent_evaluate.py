"""Evaluations: each episode counted once, nothing disturbed."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envgen_nb.agent.evaluate import Evaluation, evaluate, success_rates
from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import get_preset
from envgen_nb.game.examples import OBJECTIVES, Orchard

PRESET = get_preset("symbols", hidden=(16, 16), rollout_steps=16, num_envs=8)


def an_agent(seed=0):
    venv = Orchard(8)
    return PPO(PRESET, venv.single_observation_space, venv.single_action_space, seed)


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
