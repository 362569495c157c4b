"""The agent learns on Crafter: one seed, two more in the long form, and the record of the full size.

The full claim (200,000 steps, also eat_cow) takes minutes: `python benchmarks/agent_learning.py`. Its results are kept
in benchmarks/agent_learning.json.
"""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import get_preset
from envgen_nb.game.simulator import get_simulator, make_vec

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
STEPS, EPISODES = 80_000, 90


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("agent_learning", BENCHMARKS / "agent_learning.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def untrained(benchmark):
    preset = get_preset("symbols")
    venv = make_vec("crafter", num_envs=1, obs="symbols")
    agent = PPO(preset, venv.single_observation_space, venv.single_action_space, seed=0)
    venv.close()
    return benchmark.play(agent, EPISODES)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_success_rates_rise(benchmark, untrained, seed):
    "After 80,000 steps the 95% intervals of collect_wood and place_table lie above the untrained policy's."
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        agent, _ = benchmark.learn(get_preset("symbols"), seed, STEPS)
        trained = benchmark.play(agent, EPISODES)
    finally:
        torch.set_num_threads(threads)
    objectives = get_simulator("crafter").objectives
    for name in ("collect_wood", "place_table"):
        before, after = (benchmark.rate(e, objectives.index(name)) for e in (untrained, trained))
        assert after["low"] > before["high"], (name, before, after)
    assert trained.episode_return()[0] > untrained.episode_return()[0]


def test_the_record_of_the_full_run_holds_the_claim():
    record = json.loads((BENCHMARKS / "agent_learning.json").read_text())
    now = get_preset("symbols").numbers() | {"name": "symbols"}
    assert all(now[name] == (tuple(value) if isinstance(value, list) else value)
               for name, value in record["preset"].items()
               if name != "pieces"), "the preset has changed: make the record again"
    assert record["steps"] == 200_000 and len(record["runs"]) >= 3
    for run in record["runs"]:
        assert abs(run["steps"] - 200_000) <= get_preset("symbols").batch / 2
        for name in ("collect_wood", "place_table", "eat_cow"):
            assert run["rates"][name]["low"] > record["untrained"]["rates"][name]["high"], (run["seed"], name)
