"""The kit works with NumPy 1.26 and with NumPy 2, and computes the same bits with both."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

OLD = Path(sys.prefix) / "numpy-1.26"           # made by `make test-all`
PLAY = """
import hashlib
import numpy as np
import torch
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.train import train
from envgen_nb.simulators.heist.game import procgen_package
from envgen_nb.game.simulator import get_simulator, make_vec

digest = hashlib.sha256()
for name, obs in (("crafter", "pixels"), ("crafter", "symbols"), ("heist", "pixels")):
    if name == "heist" and not procgen_package():
        continue
    simulator = get_simulator(name)
    worlds = [None, *(simulator.practice(objective)[0] for objective in simulator.objectives[:3])]
    venv, rng = make_vec(name, worlds, 4, seed=3, obs=obs), np.random.default_rng(0)
    venv.reset()
    for row in rng.integers(len(simulator.actions), size=(150, 4)):
        seen, rewards, *_ = venv.step(row)
        for part in [rewards, *(seen.values() if obs == "symbols" else [seen])]:
            digest.update(np.ascontiguousarray(part).tobytes())
    venv.close()
torch.set_num_threads(1)
preset = get_preset("symbols", hidden=(32, 32), num_envs=8, rollout_steps=32)
venv = make_vec("crafter", num_envs=8, obs="symbols")
agent = PPO(preset, venv.single_observation_space, venv.single_action_space, seed=0)
train(agent, venv, 256)
for value in agent.policy.state_dict().values():
    digest.update(value.numpy().tobytes())
print(np.__version__, digest.hexdigest())
"""


def played(**environment: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", PLAY], env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.long
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="NumPy 1.26 has no build for this Python")
def test_the_same_bits_with_the_old_numpy_and_the_new():
    assert OLD.exists(), f"{OLD} is missing: `make test-all` installs it"
    (new, bits), (old, same) = played(), played(PYTHONPATH=f"{OLD}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert new.startswith("2.") and old.startswith("1.26.") and bits == same


def test_nobody_is_told_that_gym_is_old():
    code = ("from envgen_nb.game.simulator import make_vec; "
            "make_vec('heist', num_envs=2).reset(); make_vec('crafter').reset()")
    done = subprocess.run([sys.executable, "-W", "default", "-c", code], capture_output=True, text=True)
    assert "gym" not in done.stderr.lower() or "pip install 'envgen_nb[heist]'" in done.stderr
