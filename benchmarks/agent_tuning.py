"""What should a preset's numbers be? Crafter scores of settings of a preset, at equal steps, over several seeds.

    python benchmarks/agent_tuning.py --seeds 0 1 2 3 4 --jobs 2                    # the preset as it is
    python benchmarks/agent_tuning.py --seeds 0 1 2 3 4 --jobs 2 --set learning_rate=5e-4 epochs=3
    python benchmarks/agent_tuning.py --table                                       # what has been tried, best first

Every run is one line of benchmarks/agent_tuning.jsonl. The score is told in both readings: over all training episodes
(as Crafter's published figures are), and of the final policy over 300 episodes that no training used.
"""

import argparse
import ast
import collections
import json
import math
import multiprocessing
import time
from pathlib import Path

import numpy as np
import torch

from envgen_nb.agent.evaluate import evaluate
from envgen_nb.agent.networks import get_preset
from envgen_nb.agent.ppo import Agent, Episodes, train
from envgen_nb.files import append_jsonl
from envgen_nb.world import get_simulator, make_vec

RESULTS = Path(__file__).with_suffix(".jsonl")
EVALUATION_SEED = 1_000_000     # base seed of the evaluation's episodes: far from those of training
T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}     # Student's t, by seeds


def score(unlocked: np.ndarray) -> float:
    "The Crafter score of episodes, (E, objectives) bool."
    simulator = get_simulator("crafter")
    return simulator.score(dict(zip(simulator.objectives, (100 * unlocked.mean(0)).tolist(), strict=True)))


def run(name: str, changes: dict, seed: int, steps: int) -> dict:
    "One agent from the beginning to the end of its training."
    torch.set_num_threads(1)
    preset, episodes, seconds = get_preset(name, **changes), [], collections.Counter()

    def count(report) -> None:
        episodes.append(report.episodes)
        seconds.update(report.seconds)

    venv, started = make_vec("crafter", num_envs=preset.num_envs, seed=seed, obs=preset.obs), time.perf_counter()
    agent = Agent(preset, venv.single_observation_space, venv.single_action_space, seed)
    train(agent, venv, steps, callback=count)
    took, played = time.perf_counter() - started, Episodes.join(episodes)
    tested = evaluate(agent, make_vec("crafter", num_envs=300, seed=EVALUATION_SEED, obs=preset.obs, episodes=1), 3,
                      EVALUATION_SEED)
    return {"preset": name, "changes": changes, "seed": seed, "steps": agent.steps,
            "score_training": round(score(played.unlocked), 2), "score_policy": round(score(tested.unlocked), 2),
            "return_policy": round(float(tested.returns.mean()), 2), "steps_per_s": round(agent.steps / took),
            "seconds": {kind: round(value, 1) for kind, value in seconds.items()}}


def interval(values: list[float]) -> str:
    "Mean and 95% interval."
    half = T95.get(len(values), 1.96) * np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{np.mean(values):5.1f} ± {half:4.1f}"


def table() -> str:
    "Every setting that has been tried, the best over training first."
    tried = collections.defaultdict(list)
    for line in RESULTS.read_text().splitlines():
        record = json.loads(line)
        changes = " ".join(f"{key}={value}" for key, value in sorted(record["changes"].items()))
        tried[record["preset"], record["steps"], changes].append(record)
    rows = sorted(tried.items(), key=lambda item: -np.mean([r["score_training"] for r in item[1]]))
    lines = [f"{'preset':8} {'steps':>9} {'seeds':>5} {'training':>12} {'policy':>12} {'steps/s':>8}  changes"]
    for (preset, steps, changes), records in rows:
        found = [interval([r[key] for r in records]) for key in ("score_training", "score_policy")]
        speed = np.median([r["steps_per_s"] for r in records])
        lines.append(f"{preset:8} {steps:9,} {len(records):5} {found[0]:>12} {found[1]:>12} {speed:8,.0f}  {changes}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--preset", default="symbols")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="changes to the preset")
    parser.add_argument("--table", action="store_true", help="only print what has been tried")
    args = parser.parse_args()
    if not args.table:
        changes = {name: ast.literal_eval(value) for name, value in (pair.split("=", 1) for pair in args.set)}
        with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
            tasks = [pool.apply_async(run, (args.preset, changes, seed, args.steps)) for seed in args.seeds]
            for task in tasks:
                append_jsonl(RESULTS, task.get())
    print(table())


if __name__ == "__main__":
    main()
