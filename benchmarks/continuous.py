"""PPO with continuous actions beside that of stable-baselines3, with the same numbers: a point mass, then Pendulum-v1.

    python benchmarks/continuous.py --out benchmarks/continuous.json   # three seeds each, minutes on one core
    python benchmarks/continuous.py --tasks point-mass --seeds 0

Both play the same environments for the same steps, with rollouts, minibatches, learning rate, discount and clip of
the same size, two layers of 64 with tanh, and normalised observations. What differs is what either always does: ours
has one network with two heads and predicts returns in units of their standard deviation; theirs has a network for each
head, and its wrapper `VecNormalize` scales rewards. The point mass is `envgen_nb.game.examples.Ice`. Measured are
returns of 100 episodes of other seeds, with sampled actions.
"""
import argparse
import itertools
import time
from collections.abc import Callable
from statistics import mean
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3 import PPO as TheirPPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import Preset, get_preset
from envgen_nb.agent.train import train
from envgen_nb.extras.sb3 import SB3VecEnv
from envgen_nb.game.examples import Ice
from envgen_nb.game.files import machine, write_json

EPISODES = 100
TASKS = {
    "point-mass": (23_040, get_preset("vector", num_envs=16, rollout_steps=60, minibatches=15, learning_rate=1e-3,
                                      gamma=0.95)),
    "Pendulum-v1": (102_400, get_preset("vector", num_envs=4, rollout_steps=1024, minibatches=16, learning_rate=1e-3,
                                        gamma=0.9)),       # as in stable-baselines3's zoo, with minibatches of 256
}


def make(task: str, num_envs: int, seed: int) -> VectorEnv:
    "Make the environments of a task."
    if task == "point-mass":
        return Ice().make_vec(num_envs=num_envs, seed=seed)
    return gymnasium.make_vec(task, num_envs=num_envs, vectorization_mode="sync",
                              vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP})


def returns(task: str, act: Callable[[np.ndarray], np.ndarray]) -> float:
    "Return the mean return of one episode in each of many environments."
    venv = make(task, EPISODES, 1_000_000)
    obs, _ = venv.reset(seed=1_000_000)
    total, playing = np.zeros(EPISODES), np.ones(EPISODES, bool)
    while playing.any():
        obs, rewards, terminated, truncated, _ = venv.step(act(obs))
        total += rewards * playing
        playing &= ~(terminated | truncated)
    venv.close()
    return round(float(total.mean()), 1)


def ours(task: str, preset: Preset, steps: int, seed: int) -> dict[str, Any]:
    "Train the kit's PPO and measure it."
    venv = make(task, preset.num_envs, seed)
    agent = PPO(preset, venv.single_observation_space, venv.single_action_space, seed)
    generator = torch.Generator().manual_seed(seed)

    def act(obs: np.ndarray) -> np.ndarray:
        return agent.env_actions(agent.act(obs, generator=generator)[0])

    before, begun = returns(task, act), time.perf_counter()
    venv.reset(seed=seed)
    train(agent, venv, steps)
    return {"before": before, "seconds": round(time.perf_counter() - begun, 1), "steps": agent.steps,
            "after": returns(task, act)}


def theirs(task: str, preset: Preset, steps: int, seed: int) -> dict[str, Any]:
    "Train the PPO of stable-baselines3 with the same numbers and measure it."
    algorithm, n = preset.algorithm, preset.num_envs
    plain: VecEnv = SB3VecEnv(make(task, n, seed)) if task == "point-mass" else make_vec_env(task, n, seed=seed)
    venv = VecNormalize(plain, gamma=algorithm.gamma)
    agent = TheirPPO(
        "MlpPolicy", venv, seed=seed, device="cpu", n_steps=algorithm.rollout_steps,
        batch_size=preset.batch // algorithm.minibatches, n_epochs=algorithm.epochs, gamma=algorithm.gamma,
        gae_lambda=algorithm.gae_lambda, learning_rate=algorithm.learning_rate, clip_range=algorithm.clip,
        ent_coef=algorithm.entropy_coef, vf_coef=algorithm.value_coef, max_grad_norm=algorithm.max_grad_norm,
        policy_kwargs={"net_arch": list(preset.network.hidden)})

    def act(obs: np.ndarray) -> np.ndarray:
        return agent.predict(venv.normalize_obs(obs), deterministic=False)[0]      # clipped by `predict`

    before, begun = returns(task, act), time.perf_counter()
    agent.learn(steps)
    return {"before": before, "seconds": round(time.perf_counter() - begun, 1), "steps": agent.num_timesteps,
            "after": returns(task, act)}


TRAINERS = {"envgen_nb": ours, "stable-baselines3": theirs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="instead of a task's own")
    parser.add_argument("--out", help="write all of it as JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    runs = []
    for seed, task, (trainer, learn) in itertools.product(args.seeds, args.tasks, TRAINERS.items()):
        steps, preset = TASKS[task]
        runs.append({"task": task, "trainer": trainer, "seed": seed, **learn(task, preset, args.steps or steps, seed)})
        print("{task}, {trainer}, seed {seed}: {before} before, {after} after {steps:,} steps, {seconds} s".format(
            **runs[-1]), flush=True)
        if args.out:                                       # after each run: what is there can be read
            write_json(args.out, {"machine": machine(), "episodes": EPISODES, "runs": runs,
                                  "presets": {task: TASKS[task][1].numbers() for task in args.tasks}})
    for task, trainer in itertools.product(args.tasks, TRAINERS):
        found = [run["after"] for run in runs if (run["task"], run["trainer"]) == (task, trainer)]
        print(f"{task}, {trainer}: {mean(found):.1f}, mean of {len(found)} seeds")


if __name__ == "__main__":
    main()
