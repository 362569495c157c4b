"""Does the agent learn? Success rates on Crafter before and after training, for several seeds, with 95% intervals.

    python benchmarks/agent_learning.py                                    # 3 seeds × 200,000 steps, prints a table
    python benchmarks/agent_learning.py --out benchmarks/agent_learning.json
    python benchmarks/agent_learning.py --steps 50000 --seeds 5 6 --set learning_rate=5e-4

The untrained policy and every trained one play the same episodes, which no training used: one each, actions sampled.
"""

import argparse
import ast
import platform
import time
from typing import Any

import numpy as np
import torch

from envgen_nb.agent.evaluate import Evaluation, evaluate
from envgen_nb.agent.learner import Learner, learners
from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import Preset, get_preset
from envgen_nb.agent.train import train
from envgen_nb.game.files import write_json
from envgen_nb.game.simulator import get_simulator, make_vec
from envgen_nb.results.statistics import wilson_interval

HEADLINES = ("collect_wood", "place_table", "eat_cow")
EVALUATION_SEED = 1_000_000     # base seed of the evaluation's episodes: far from those of training


def play(agent: Learner, episodes: int) -> Evaluation:
    "Three runs, `episodes` in all, in the original game."
    venv = make_vec("crafter", num_envs=episodes, seed=EVALUATION_SEED, obs=agent.preset.obs, episodes=1)
    try:
        return evaluate(agent, venv, runs=3, seed=EVALUATION_SEED)
    finally:
        venv.close()


def learn(preset: Preset, seed: int, steps: int, callback=None,
          learner: str = "ppo") -> tuple[Learner, dict[str, float]]:
    "An agent after so many steps in the original game, and the seconds they took by kind of work."
    venv, seconds = make_vec("crafter", num_envs=preset.num_envs, seed=seed, obs=preset.obs), {}

    def count(report):
        for kind, value in report.seconds.items():
            seconds[kind] = seconds.get(kind, 0.0) + value
        if callback:
            callback(report)

    try:
        made = learners.find(learner).for_game(get_simulator("crafter"), preset)
        agent = made(preset, venv.single_observation_space, venv.single_action_space, seed)
        train(agent, venv, steps, callback=count)
        return agent, seconds
    finally:
        venv.close()


def fields(pairs: list[str]) -> dict[str, Any]:
    "What --set says: NAME=VALUE of each field that differs."
    return {name: ast.literal_eval(value) for name, value in (pair.split("=", 1) for pair in pairs)}


def rate(evaluation: Evaluation, objective: int) -> dict[str, float]:
    "A success rate with its interval, in percent."
    low, high = wilson_interval(int(evaluation.unlocked[:, objective].sum()), len(evaluation.returns))
    return {"rate": 100 * float(evaluation.unlocked[:, objective].mean()), "low": low, "high": high}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="symbols")
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE", help="change fields of the preset")
    parser.add_argument("--steps", type=int, default=200_000, help="environment steps per seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=1500, help="evaluation episodes per policy, a multiple of 3")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--out", help="write all of it as JSON")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    preset = get_preset(args.preset, **fields(args.set))
    objectives = get_simulator("crafter").objectives
    venv = make_vec("crafter", num_envs=1, obs=preset.obs)
    untrained = play(PPO(preset, venv.single_observation_space, venv.single_action_space, args.seeds[0]),
                     args.episodes)
    venv.close()
    runs = []
    for seed in args.seeds:
        begin = time.perf_counter()
        agent, seconds = learn(preset, seed, args.steps)
        trained = time.perf_counter() - begin
        result = play(agent, args.episodes)
        runs.append({"seed": seed, "steps": agent.steps, "steps_per_second": agent.steps / trained, "seconds": seconds,
                     "return": result.episode_return()[0], "length": float(result.lengths.mean()),
                     "rates": {name: rate(result, i) for i, name in enumerate(objectives)}})
        print(f"seed {seed}: {agent.steps:,} steps, {agent.steps / trained:,.0f}/s "
              f"({', '.join(f'{kind} {value:.0f} s' for kind, value in seconds.items())}), "
              f"episode return {runs[-1]['return']:.2f}, "
              + ", ".join(f"{name} {runs[-1]['rates'][name]['rate']:.1f}%" for name in HEADLINES), flush=True)
    before = {name: rate(untrained, i) for i, name in enumerate(objectives)}
    print(f"\n{'':20} {'untrained':>20}" + "".join(f"{'seed ' + str(run['seed']):>20}" for run in runs))
    for name in sorted(objectives, key=lambda name: -np.mean([run["rates"][name]["rate"] for run in runs])):
        cells = [before[name], *(run["rates"][name] for run in runs)]
        print(f"{name:20} " + "".join(f"{c['rate']:6.1f} [{c['low']:4.1f},{c['high']:5.1f}]" for c in cells))
    if args.out:
        write_json(args.out, {
            "preset": {"name": preset.name} | preset.numbers(), "steps": args.steps, "episodes": args.episodes,
            "threads": args.threads, "python": platform.python_version(), "torch": torch.__version__,
            "machine": platform.machine(), "untrained": {"return": untrained.episode_return()[0], "rates": before},
            "runs": runs})


if __name__ == "__main__":
    main()
