"""Does the agent learn Heist? How often it takes the gem in small mazes, before, during and after a short training.

    python benchmarks/heist_learning.py                    # 400,000 steps of `laptop`, about four minutes on two cores
    python benchmarks/heist_learning.py --seeds 0 1 2 --out benchmarks/heist_learning.json

The mazes have 3 tiles on a side and no lock, and an episode is cut after 50 steps: in Procgen's own 1,000 steps an
agent that moves at random takes the gem of so small a maze nearly always. The mazes of the measurements are others than
those of the training; the untrained policy plays the same ones.
"""

import argparse
import contextlib

import numpy as np
import torch

from envgen_nb.agent.evaluate import evaluate
from envgen_nb.agent.guards import keep_memory
from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import Report, num_rollouts, train
from envgen_nb.game.files import machine, write_json
from envgen_nb.game.simulator import make_vec
from envgen_nb.results.statistics import wilson_interval
from envgen_nb.simulators.heist.world import HeistWorld

WORLD, LENGTH, EPISODES = HeistWorld(maze_size=3, locks=0), 50, 300


def measure(agent: PPO) -> list[float]:
    "In how many percent of 300 episodes the gem is taken, and the 95% interval of that."
    with contextlib.closing(make_vec("heist", [WORLD], EPISODES, seed=1_000_000, length=LENGTH, episodes=1)) as venv:
        taken = int(evaluate(agent, venv, runs=1, seed=1_000_000).unlocked[:, -1].sum())
    return [round(rate, 1) for rate in (100 * taken / EPISODES, *wilson_interval(taken, EPISODES))]


def learn(seed: int, steps: int) -> dict:
    "One agent from the beginning to the end of its training."
    preset, curve, part = get_preset("laptop"), [], []

    def watch(report: Report) -> None:
        part.append(report.episodes.unlocked)
        if len(part) == 8 or report.rollout == num_rollouts(steps, preset):
            taken = np.concatenate([unlocked for unlocked in part if len(unlocked)])[:, -1]
            curve.append([report.steps, round(100 * float(taken.mean()), 1)])
            print(f"seed {seed}, {report.steps:9,} steps: gem taken in {curve[-1][1]:5.1f}%", flush=True)
            part.clear()

    with contextlib.closing(make_vec("heist", [WORLD], preset.num_envs, seed=seed, length=LENGTH)) as venv:
        agent = PPO(preset, venv.single_observation_space, venv.single_action_space, seed)
        before = measure(agent)
        agent.speed_up()
        train(agent, venv, steps, callback=watch)
    return {"seed": seed, "steps": agent.steps, "before": before, "after": measure(agent), "training": curve}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", help="write all of it as JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    runs = [learn(seed, args.steps) for seed in args.seeds]
    for run in runs:
        texts = (f"{when} {rate}% [{low}, {high}]" for when in ("before", "after") for rate, low, high in [run[when]])
        print(f"seed {run['seed']}: gem taken " + ", ".join(texts))
    if args.out:
        write_json(args.out, {"machine": machine(), "preset": {"name": "laptop"} | get_preset("laptop").numbers(),
                              "world": WORLD.settings(), "length": LENGTH, "episodes": EPISODES, "runs": runs})


if __name__ == "__main__":
    main()
