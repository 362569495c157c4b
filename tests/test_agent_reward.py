"""A reward of one's own: what the function sees, that agents learn from it, and what is refused."""
import re
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from states import same

from envgen_nb import make_vec, train
from envgen_nb.agent.learner import RandomLearner, learners
from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.reward import RewardError, rewards
from envgen_nb.agent.train import Trainer
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.runs import open_run
from envgen_nb.cycle.settings import SettingsError, changed_settings, checked_settings, load_settings, make_settings
from envgen_nb.game.simulator import get_simulator

GUIDE = (Path(__file__).parent.parent / "docs" / "guides" / "reward.md").read_text()
MORE = """
def nothing(step):
    return np.zeros(len(step.reward), np.float32)


number = 3
"""
SMALL = dict(num_envs=8, rollout_steps=16, minibatches=2, hidden=(32, 24))


@pytest.fixture
def my_kit(tmp_path, monkeypatch):
    "The guide's function, and another one, in a file `my_kit.py`."
    (tmp_path / "my_kit.py").write_text("\n".join(re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)) + MORE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(rewards, "written", {"my_kit:tools", "my_kit:nothing"})
    yield
    sys.modules.pop("my_kit", None)


def trainer(game="crafter", learner="ppo", worlds=(None,), length=40, reward=None, seed=0, **changes):
    simulator = get_simulator(game)
    preset = get_preset("symbols" if "symbols" in simulator.observations else "laptop", **SMALL | changes)
    venv = simulator.make_vec(list(worlds), num_envs=8, seed=1, obs=preset.obs, length=length, copy=False)
    made = learners.find(learner).for_game(simulator, preset)
    agent = made(preset, venv.single_observation_space, venv.single_action_space, seed)
    return Trainer(agent, venv, reward=reward) if reward else Trainer(agent, venv)


@pytest.mark.parametrize("game", ["crafter", "minigrid", "heist"])
def test_the_function_sees_what_the_step_did(game):
    "Beside what an environment of the same seed tells, played with the same actions."
    simulator, steps = get_simulator(game), []

    def seen(step):
        steps.append(step._replace(obs=copied(step.obs), next_obs=copied(step.next_obs)))
        return step.reward

    def copied(obs):
        return {name: value.copy() for name, value in obs.items()} if isinstance(obs, dict) else obs.copy()

    def rows(obs):
        return obs if isinstance(obs, dict) else {"": obs}

    worlds = [None, *simulator.practice(simulator.objectives[0])[:1]]
    one = trainer(game, worlds=worlds, length=12, reward=seen)
    for _ in range(2):
        one.rollout()
    other = simulator.make_vec(worlds, num_envs=8, seed=1, obs=one.learner.preset.obs, length=12)
    obs, _ = other.reset()
    reached, world, ends = np.zeros_like(other.unlocked), other.running["world"], 0
    for step in steps:
        after, reward, terminated, truncated, infos = other.step(step.actions)
        ended = terminated | truncated
        last = infos.get("final_obs", after)
        for name, value in rows(step.obs).items():
            assert np.array_equal(value, rows(obs)[name])
            assert np.array_equal(rows(step.next_obs)[name][ended], rows(last)[name][ended])
            assert np.array_equal(rows(step.next_obs)[name][~ended], rows(after)[name][~ended])
        unlocked = np.where(ended[:, None], infos["results"]["unlocked"], other.unlocked) if ended.any() else \
            other.unlocked
        assert np.array_equal(step.unlocked, unlocked) and np.array_equal(step.new, unlocked & ~reached)
        assert np.array_equal(step.world, world) and step.worlds == other.worlds
        assert np.array_equal(step.reward, reward.astype(np.float32))
        assert np.array_equal(step.terminated | step.truncated, ended)
        obs, reached, world, ends = after, other.unlocked, other.running["world"], ends + ended.sum()
    assert len(steps) == 32 and ends >= 16


def test_the_game_s_reward_as_a_function_is_the_game_s_reward():
    plain, own = trainer(), trainer(reward=lambda step: step.reward)
    for _ in range(3):
        here, there = plain.rollout(), own.rollout()
    assert same(plain.learner.state_dict(), own.learner.state_dict())
    assert there.metrics.keys() - here.metrics.keys() == {"training_reward"}


@pytest.mark.parametrize("learner", ["ppo", "ppo-memory", "ppo-rare", "ad", "random"])
def test_every_learner_learns_from_it(learner):
    "What it was learned from is recorded; what an episode returned is the game's own; the state goes on bit by bit."
    def steps_count(step):
        return np.full(len(step.reward), 0.25, np.float32)

    one, other = (trainer(learner=learner, reward=steps_count, phase_rollouts=2, phase_epochs=1) for _ in range(2))
    reports = [one.rollout() for _ in range(3)]
    assert all(report.metrics["training_reward"] == 0.25 for report in reports)
    returns = np.concatenate([report.episodes.returns for report in reports])
    assert len(returns) and (returns < 10).all() and (one.kept.rewards >= 0.25).all()
    other.load_state_dict(one.state_dict())
    one.rollout(), other.rollout()
    assert same(one.learner.state_dict(), other.learner.state_dict())


@pytest.mark.parametrize("wrong, said", [
    (lambda step: 1.0, r"returned a float, and has to return a float32 array of shape \(8,\)"),
    (lambda step: step.reward[:, None], r"an array \(8, 1\) of float32"),
    (lambda step: step.reward.astype(float), r"an array \(8,\) of float64"),
    (lambda step: step.reward + np.float32("inf") * (np.arange(8) == 2), "nan for sub-environment 0")])
def test_what_is_no_reward_is_refused_by_name(wrong, said):
    one = trainer(reward=wrong)
    before = one.learner.state_dict()
    with np.errstate(invalid="ignore"), pytest.raises(RewardError, match=f"test_agent_reward:<lambda>: .*{said}"):
        one.rollout()
    assert same(before["policy"], one.learner.state_dict()["policy"])


def test_a_run_with_a_reward_of_ones_own(my_kit, tmp_path):
    "Whole cycles: what was learned from is in the record and in TensorBoard's, results are the game's own."
    options = {name: list(value) if isinstance(value, tuple) else value for name, value in SMALL.items()}
    run = open_run(tmp_path / "run", preset_options=options, designer="fixed", num_cycles=1, num_worlds=2, threads=1,
                   cycle_steps=512, final_steps=0, evaluation_runs=1, evaluation_episodes=4, reward="my_kit:nothing")
    for _ in run_cycles(run.path):
        pass
    records = run.metrics("cycle-1")
    assert [record["metrics"]["training_reward"] for record in records] == [0] * len(records)
    assert run.evaluation("cycle-1").returns.any()
    rewards.written.clear()                                 # another process that has only been given the folder
    settings = checked_settings(run.settings.model_dump())
    with pytest.raises(ValueError, match="the reward my_kit:nothing is a function that only the run's folder names"):
        changed_settings(settings, seed=4)


def test_a_reward_is_a_setting(my_kit, tmp_path):
    ini = tmp_path / "settings.ini"
    ini.write_text("[agent]\nreward = my_kit:tools\n")
    assert load_settings(ini).reward == "my_kit:tools" and make_settings().reward == "game"
    for name, said in [("my_kit:other", "the reward my_kit:other cannot be imported"), ("gold", "no reward is called"),
                       ("my_kit:number", "the reward my_kit:number is no function")]:
        with pytest.raises(SettingsError, match=said):
            make_settings(reward=name)


def test_the_function_of_the_guide(my_kit):
    "Two more for each tool, at the step in which it is made."
    tools, made = rewards.find("my_kit:tools"), []

    def watched(step):
        found = tools(step)
        names = get_simulator("crafter").objectives
        new = [[name for name, reached in zip(names, row, strict=True) if reached] for row in step.new]
        made.extend(name for row in new for name in row)
        extra = np.array([2.0 * sum(name.startswith("make_") for name in row) for row in new], np.float32)
        assert np.array_equal(found, step.reward + extra)
        return found

    world = get_simulator("crafter").practice("make_wood_pickaxe")[0]
    one = trainer(worlds=[world], length=100, reward=watched)
    for _ in range(12):
        one.rollout()
    assert "make_wood_pickaxe" in made


def test_training_alone_takes_it_too():
    venv = make_vec("crafter", num_envs=8, seed=0, obs="symbols")
    agent = PPO(get_preset("symbols", **SMALL), venv.single_observation_space, venv.single_action_space, 0)
    found = []
    train(agent, venv, 256, callback=found.append, reward=lambda step: (step.actions == 0).astype(np.float32))
    assert all(0 < report.metrics["training_reward"] < 1 for report in found)


def test_any_environment_of_gymnasium_can_be_trained_in():
    """It need not be a game of the kit: a plain one has no worlds and no objectives, and a reward may be one's own."""
    preset = get_preset("symbols", num_envs=8, rollout_steps=32)
    venv = gymnasium.make_vec("CartPole-v1", num_envs=8, vectorization_mode="sync", max_episode_steps=15,
                              vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP})
    seen = []

    def upright(step):
        seen.append((step.unlocked.shape, step.worlds, step.world.tolist()))
        return 1 - np.abs(step.next_obs[:, 2], dtype=np.float32)

    learner = RandomLearner(preset, venv.single_observation_space, venv.single_action_space, 0)
    reports = []
    train(learner, venv, 512, callback=reports.append, reward=upright)
    assert [report.steps for report in reports] == [256, 512] and 0.8 < reports[-1].metrics["training_reward"] < 1
    assert set(map(str, seen)) == {str(((8, 0), (None,), [0] * 8))}
