"""Continuous actions: conformance, bits, checkpoints, refusals, and a whole run that is killed and goes on."""
import copy
import io
import pickle
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import ClipAction
from states import same

from envgen_nb.agent import ppo
from envgen_nb.agent.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from envgen_nb.agent.clips import record
from envgen_nb.agent.continuous import GAUSSIAN
from envgen_nb.agent.evaluate import evaluate
from envgen_nb.agent.learner import RandomLearner, generators, learners
from envgen_nb.agent.networks import Policy
from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import Trainer, train
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.runs import load_agent
from envgen_nb.cycle.settings import make_settings
from envgen_nb.game.conformance import check_simulator
from envgen_nb.game.examples import Ice, IceWorld
from envgen_nb.studio.play import watched

SMALL = get_preset("vector", num_envs=8, rollout_steps=32, minibatches=4, epochs=2, learning_rate=1e-3)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make(name="ppo", seed=1, preset=SMALL, length=20):
    venv = Ice().make_vec([None, IceWorld(distance=0.3)], preset.num_envs, seed, length=length)
    kind = learners.find(name).for_game(Ice(), preset)
    return kind(preset, venv.single_observation_space, venv.single_action_space, seed), venv


def bits(learner):
    return b"".join(value.numpy().tobytes() for value in learner.policy.state_dict().values())


def test_the_contract():
    check_simulator(Ice(), length=8)


class Outside(Ice):
    "It plays actions that are outside the bounds."
    def make_vec(self, *arguments, **options):
        venv = super().make_vec(*arguments, **options)
        venv.checked_actions = lambda actions: np.asarray(actions)
        return venv


@pytest.mark.parametrize("changes, said", [
    ({"action_space": spaces.Box(-1, 1, (3,), np.float32)}, "a number for each name"),
    ({"action_space": spaces.Box(-np.inf, 1, (2,), np.float32)}, "finite"),
    ({"action_space": spaces.Box(-1, 1, (2,), np.float64)}, "float32"),
    ({"action_space": spaces.MultiDiscrete([2, 2])}, "Discrete or a Box"), ({"keys": {"push up": "ArrowUp"}}, "key")])
def test_what_breaks_the_contract_is_named(changes, said):
    with pytest.raises(AssertionError, match=said):
        check_simulator(type("Changed", (Ice,), changes)())


def test_actions_outside_the_bounds_are_refused():
    with pytest.raises(AssertionError, match="is not refused"):
        check_simulator(Outside(), length=8)
    venv = Ice().make_vec(num_envs=2)
    venv.reset()
    for wrong in (np.full((2, 2), 1.5), np.full((2, 2), np.nan), np.zeros((2, 3)), np.zeros((2, 2), int)):
        with pytest.raises(ValueError, match="actions"):
            venv.step(wrong)


def test_the_probability_is_that_of_the_action_before_it_is_clipped():
    learner, venv = make()
    with torch.no_grad():
        learner.policy.log_std.fill_(1.0)                          # most actions are outside
    taken, step = [], venv.step
    venv.step = lambda actions: taken.append(actions.copy()) or step(actions)
    trainer = Trainer(learner, venv)
    before = copy.deepcopy(learner.policy)
    trainer.rollout()
    rollout, played = trainer.kept, torch.from_numpy(np.stack(taken))
    assert (rollout.actions.abs() > 1).float().mean() > 0.5
    assert torch.equal(played, rollout.actions.clamp(-1, 1)) and played.abs().max() == 1
    with torch.no_grad():
        mean, log_std = before(rollout.obs.flatten(0, 1))[0].chunk(2, -1)
    expected = torch.distributions.Normal(mean, log_std.exp()).log_prob(rollout.actions.flatten(0, 1)).sum(-1)
    torch.testing.assert_close(rollout.extras["log_probs"].flatten(), expected, rtol=1e-5, atol=1e-5)


def test_the_learner_is_the_chapter():
    learner, venv = make(seed=3)
    policy = Policy(SMALL.network, venv.single_observation_space, venv.single_action_space, generators(3, 1)[0])
    ppo.train(ClipAction(make(seed=3)[1]), policy, SMALL.algorithm, 3, seed=3, distribution=GAUSSIAN)
    train(learner, venv, 3 * SMALL.batch)
    for name, value in policy.state_dict().items():
        torch.testing.assert_close(learner.policy.state_dict()[name], value, rtol=1e-5, atol=1e-6)


def test_observations_are_normalised_by_what_was_seen_before():
    learner, venv = make()
    trainer, norm = Trainer(learner, venv), learner.policy.encoder.norm
    seen = []
    for _ in range(3):
        trainer.rollout()
        seen.append(trainer.kept.obs.flatten(0, 1).double().clone())
        every = torch.cat(seen)
        assert norm.count == len(every)
        torch.testing.assert_close(norm.mean, every.mean(0))
        torch.testing.assert_close(norm.var, every.var(0, correction=0))
    before = bits(learner)
    evaluate(learner, Ice().make_vec(num_envs=4, seed=7, episodes=1, length=10), runs=2, seed=0)
    assert bits(learner) == before                                 # a measurement changes nothing


@pytest.mark.parametrize("name", ["ppo", "ppo-memory", "random"])
def test_saved_and_loaded_it_goes_on_with_the_same_bits(name, tmp_path):
    whole, venv = make(name)
    trainer = Trainer(whole, venv)
    for _ in range(2):
        trainer.rollout()
    save_checkpoint(tmp_path / "half.pt", trainer.state_dict())
    rest = [trainer.rollout() for _ in range(2)]
    other, venv = make(name, seed=9)
    again = Trainer(other, venv)
    again.venv.reset(seed=1)
    again.load_state_dict(load_checkpoint(tmp_path / "half.pt"))
    more = [again.rollout() for _ in range(2)]
    assert [r.metrics for r in rest] == [m.metrics for m in more]
    assert torch.equal(trainer.kept.actions, again.kept.actions)
    if name != "random":
        assert bits(whole) == bits(other)
        assert bits(copy.deepcopy(whole)) == bits(pickle.loads(pickle.dumps(whole))) == bits(whole)


def test_a_checkpoint_of_other_actions_is_refused():
    learner, _ = make()
    other = PPO(SMALL, learner.observation_space, spaces.Box(-1, 1, (3,), np.float32), 0)
    with pytest.raises(CheckpointError, match="other observations or actions"):
        other.load_state_dict(learner.state_dict())
    discrete = PPO(SMALL, learner.observation_space, spaces.Discrete(2), 0)
    with pytest.raises(CheckpointError, match="other observations or actions"):
        discrete.load_state_dict(learner.state_dict())
    plain = PPO(SMALL.replace(normalize_obs=False), learner.observation_space, learner.action_space, 0)
    with pytest.raises(CheckpointError, match="normalize_obs"):
        plain.load_state_dict(learner.state_dict())


def test_the_preset_plays_discrete_actions_too():
    space = spaces.Box(-1, 1, (3,), np.float32)
    learner = PPO(SMALL, space, spaces.Discrete(4), 0)
    actions, _, _ = learner.act(torch.zeros(5, 3))
    assert actions.dtype == torch.int64 and learner.probabilities(torch.zeros(5, 3)).shape == (5, 4)


@pytest.mark.parametrize("name", ["ppo-rare", "ad"])
def test_learners_of_discrete_actions_say_so(name):
    with pytest.raises(ValueError, match="discrete actions, and here they are continuous"):
        make(name)


@pytest.mark.parametrize("changes, observations, actions, said", [
    ({"prediction_coef": 1.0}, (4,), spaces.Box(-1, 1, (2,)), "prediction_coef is for discrete"),
    ({}, (4,), spaces.Box(-np.inf, np.inf, (2,)), "finite bounds"), ({}, (4, 4), spaces.Box(-1, 1, (2,)), "vectors"),
    ({}, (4,), spaces.Box(-1, 1, (2, 2)), r"Box \(A,\)")])
def test_what_cannot_be_played_is_refused(changes, observations, actions, said):
    with pytest.raises(ValueError, match=said):
        PPO(SMALL.replace(**changes), spaces.Box(-1, 1, observations, np.float32), actions, 0)


def test_random_actions_and_recordings():
    venv = Ice().make_vec(num_envs=2)
    learner = RandomLearner(SMALL, venv.single_observation_space, venv.single_action_space, 0)
    found = evaluate(learner, Ice().make_vec(num_envs=4, episodes=1, length=15), runs=2, seed=0)
    assert found.lengths.tolist() == [15] * 4
    for agent in (None, make()[0]):
        recording = record(Ice(), IceWorld(distance=0.3), agent, seed=2, steps=6, tell=True)
        assert recording.length == 6 and all(venv.single_action_space.contains(one) for one in recording.actions)
        assert recording.probabilities is None
        again = record(Ice(), IceWorld(distance=0.3), agent, seed=2, steps=6)
        assert np.array_equal(recording.actions, again.actions)


GUIDE = (Path(__file__).parent.parent / "docs" / "guides" / "continuous.md").read_text()
GO = """
import sys
from envgen_nb.cycle import run
from envgen_nb.cycle.create import trust
trust(sys.argv[1])
run.CHECKPOINT_SECONDS = 0.0
for event in run.run_cycles(sys.argv[1]):
    print(type(event).__name__, flush=True)
"""


@pytest.fixture
def guide(tmp_path, monkeypatch):
    "The game of the guide can be imported, here and in other processes; a program that goes on with a run."
    (tmp_path / "pendulum.py").write_text(re.search(r"```python\n(.*?)```", GUIDE, re.DOTALL)[1])
    (tmp_path / "go.py").write_text(GO)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def go(folder, run):
    return subprocess.Popen([sys.executable, folder / "go.py", run], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def test_a_run_of_the_guide_that_is_killed_goes_on_with_the_same_bits(guide):
    settings = make_settings(
        simulator="pendulum:Pendulums", num_cycles=1, num_worlds=2, cycle_steps=4096, final_steps=1024, world_length=50,
        evaluation_runs=1, evaluation_episodes=4, threads=1, seed=3,
        preset_options={"num_envs": 8, "rollout_steps": 64, "minibatches": 4, "epochs": 2})
    assert settings.preset == "vector"
    runs = [create_run(settings, guide / name).path for name in ("whole", "killed")]
    _, errors = (process := go(guide, runs[0])).communicate(timeout=300)
    assert process.returncode == 0, errors
    for events in (6, 10):                             # of its stream, before it is killed
        process = go(guide, runs[1])
        said = [process.stdout.readline() for _ in range(events)]
        process.kill()
        process.communicate()
        assert all(said) and not RunFolder(runs[1]).finished()
    _, errors = (process := go(guide, runs[1])).communicate(timeout=300)
    assert process.returncode == 0, errors
    whole, killed = (RunFolder(run) for run in runs)
    states = [load_checkpoint(run.path / "checkpoint.pt")["learner"] for run in (whole, killed)]
    assert states[0]["policy"]["encoder.norm.count"] == states[0]["steps"] > 0 and same(*states)
    for cycle in whole.cycles:
        assert whole.evaluation(cycle).to_dict() == killed.evaluation(cycle).to_dict()
    agent = load_agent(killed, "final")
    films = watched(killed, who=["final", "random"], steps=5)
    assert isinstance(agent, PPO) and all(len(film["actions"]) == len(film["chosen"]) == 5 for film in films)
    assert films[0]["actions"][0].startswith("torque ")


def test_gymnasiums_own_vector_environment_can_be_learned_from():
    venv = gymnasium.make_vec("Pendulum-v1", num_envs=SMALL.num_envs, vectorization_mode="sync",
                              vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP})
    learner = PPO(SMALL, venv.single_observation_space, venv.single_action_space, 0)
    trainer = train(learner, venv, 2 * SMALL.batch)
    assert trainer.learner.steps == 2 * SMALL.batch
    buffer = io.BytesIO()
    torch.save(learner.state_dict(), buffer)
