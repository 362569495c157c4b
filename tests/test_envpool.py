"""EnvPool's games: their episodes are EnvPool's own, and a run of one trains, goes on after a kill, and is shown."""
import copy
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from states import same

from envgen_nb import PPO, train
from envgen_nb.cycle import run as run_module
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.events import Evaluated, Training
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import SettingsError, make_settings
from envgen_nb.game.conformance import check_simulator
from envgen_nb.game.simulator import get_simulator, make_vec

ROOT = Path(__file__).parent.parent
needed = pytest.mark.skipif(importlib.util.find_spec("envpool") is None, reason="make test-all installs EnvPool")
SMALL = dict(simulator="envpool:CartPole-v1", num_cycles=1, cycle_steps=1024, final_steps=0, evaluation_runs=1,
             evaluation_episodes=4, threads=1, preset_options={"num_envs": 4, "rollout_steps": 64, "minibatches": 4})


def test_without_the_package_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(ValueError, match=r"pip install 'envgen_nb\[envpool\]'"):
        get_simulator("envpool:Acrobot-v1")


@needed
def test_it_keeps_the_contract(long):
    """But for exact states. With `long` also continuous actions, and a game with rewards below 0."""
    for name in ("CartPole-v1", *(("Pendulum-v1", "HalfCheetah-v5", "MountainCar-v0") if long else ())):
        check_simulator(get_simulator(f"envpool:{name}"), length=7)


@needed
@pytest.mark.parametrize("name", ["CartPole-v1", "LunarLander-v3"])
def test_its_episodes_are_those_of_envpool(name):
    """One copy beside EnvPool's own with the same seed: observations, rewards and endings, final observations where
    EnvPool has them, and first observations where EnvPool has its step that only resets."""
    venv = get_simulator(f"envpool:{name}").make_vec(num_envs=3, seed=[1, 2, 3], num_threads=1)
    obs, _ = venv.reset()
    theirs = [venv.simulator.make_pool(1, [int(np.random.SeedSequence((seed, 0)).generate_state(1)[0]) >> 1], 1)
              for seed in (1, 2, 3)]
    assert np.array_equal(obs, np.concatenate([pool.reset()[0] for pool in theirs]))
    random, ends = np.random.default_rng(0), 0
    for _ in range(150):
        actions = random.integers(2, size=3)
        obs, rewards, terminated, truncated, infos = venv.step(actions)
        for i, pool in enumerate(theirs):
            seen, (reward,), (over,), (cut,), _ = pool.step(actions[i:i + 1])
            ended = over or cut
            assert (rewards[i], terminated[i], truncated[i]) == (reward, over, cut)
            assert infos.get("_final_obs", np.zeros(3, bool))[i] == ended == infos.get("_results", np.zeros(3, bool))[i]
            assert np.array_equal((infos["final_obs"] if ended else obs)[i], seen[0])
            if ended:
                assert np.array_equal(obs[i], pool.step(actions[i:i + 1])[0][0])
                ends += 1
    assert ends > 3


@needed
def test_a_step_limit_and_a_quota():
    venv = make_vec("envpool:CartPole-v1", num_envs=3, seed=1, obs="vector", length=5, episodes=2)
    venv.reset()
    for step in range(1, 13):
        _, rewards, terminated, truncated, _ = venv.step([0, 1, step % 2])
        assert truncated.all() == (step in (5, 10)) and not terminated.any() and rewards.any() == (step <= 10)
    assert venv.finished.all()


@needed
def test_a_picture_of_atari_is_read_by_a_network():
    """Pong: 84 × 84 × 4, frames as EnvPool has them, and its defaults train."""
    pong = get_simulator("envpool:Pong-v5")
    venv = pong.make_vec(num_envs=2, seed=1, num_threads=1)
    seen, _ = venv.reset()
    newest = venv.step([2, 2])[0]
    assert np.array_equal(newest[..., :3], seen[..., 1:]) and newest.shape == (2, 84, 84, 4)
    settings = make_settings(simulator="envpool:Pong-v5")
    preset = settings.agent_preset.replace(num_envs=2, rollout_steps=8)
    assert preset.network.encoder == "nature" and preset.network.channels == (32, 64, 64)
    learner = PPO(preset, venv.single_observation_space, venv.single_action_space, 0)
    before = copy.deepcopy(learner.policy.state_dict())
    train(learner, venv, 2 * preset.batch)
    assert not same(before, learner.policy.state_dict())


@needed
def test_a_run_that_is_killed_begins_new_episodes(tmp_path, monkeypatch):
    """A copy of the folder in the middle of training, as a kill leaves it, goes on to the end."""
    monkeypatch.setattr(run_module, "CHECKPOINT_SECONDS", 0.0)
    path, rollouts = create_run(make_settings(**SMALL), tmp_path / "run").path, 0
    measured = []
    for event in run_cycles(path):
        rollouts += isinstance(event, Training)
        measured += [event] if isinstance(event, Evaluated) else []
        if rollouts == 3 and not (tmp_path / "killed").exists():
            shutil.copytree(path, tmp_path / "killed")
    assert RunFolder(path).finished() and set(measured[-1].success) == {"return_119", "return_238", "return_475"}
    list(run_cycles(tmp_path / "killed"))
    assert RunFolder(tmp_path / "killed").finished()


@needed
def test_nothing_is_designed(tmp_path):
    with pytest.raises(SettingsError, match="envpool:CartPole-v1 has no settings.*set the designer to none"):
        make_settings(**SMALL, designer="rules")


@needed
def test_the_command_of_the_guide_runs(tmp_path):
    """In the clone, whose settings.ini names a designer."""
    guide = (ROOT / "docs" / "guides" / "envpool.md").read_text()
    command = re.search(r"^envgen (run envpool:CartPole-v1 .*)", guide, re.MULTILINE)[1]
    words = shlex.split(command.replace("200000", "4096"))
    subprocess.run([sys.executable, "-m", "envgen_nb", *words, "-p", "folder", tmp_path / "run"], cwd=ROOT, check=True)
    assert RunFolder(tmp_path / "run").finished()


@needed
def test_the_studio_shows_it(tmp_path):
    from envgen_nb.studio.studio import PAGES, Studio

    studio = Studio(create_run(make_settings(**SMALL), tmp_path / "run"))
    for page in PAGES:
        studio.open_page(page)
    assert not studio.session.error
