"""What should a preset's numbers be? Crafter scores of settings of a preset, at equal steps, over several seeds.

    python benchmarks/agent_tuning.py --seeds 0 1 2 3 4 --jobs 2                    # the preset as it is
    python benchmarks/agent_tuning.py --seeds 0 1 2 3 4 --jobs 2 --set learning_rate=5e-4 epochs=3
    python benchmarks/agent_tuning.py --learner ppo-memory --steps 500000           # another learner than PPO
    python benchmarks/agent_tuning.py --table                                       # what has been tried, best first

Every run is one line of benchmarks/agent_tuning.jsonl. The score is given in both readings: over all training episodes
(as Crafter's published figures are), and of the final policy over 300 episodes that no training used.
`kept`, `own` and `compiled` are no fields of a preset: the first two are arguments of `AttentionPool` in
`agent.attention` and were changed there, `compiled=False` is attention computed by torch in bfloat16
(`agent.attention.LANES = 0`).
`parts=False` is `laptop` before its pictures were read a few at a time (`Patches`), which computes the same.
`contrast=1` is `laptop` before what is drawn on a square counted four times as much as its colour (`_of_bytes`).
`uniform` is no field either: so much of the probability was shared by all actions alike, whatever the policy says, as
in Hafner et al. 2023 (https://arxiv.org/abs/2301.04104). `clip_above` is the ε for ratios above 1, where it differed.
`agent_designs:…` are designs that were tried, see `agent_designs.py`; some became a part of the kit and are no longer
there: `Valued` is `ppo-rare` with rarity_coef=1, `Valued2` with 2, `Constrained` with retention_lr=2.5, too. From
`Both` `ppo-rare` was made, `Novelty` has imitation_steps=0, `Imitation` novelty_coef=0 and `Imitation4`
imitation_steps=4, too. These four differ from today's in how the returns of examples are computed, and count what is
rare over all episodes alike.
Rows without `learner` are of PPO. Rows with steps per second of CPU time were played on a busy machine, and so was the
first of `ppo-memory`: their steps/s are no speed. `next_goal_probe.py` adds its agents here, too.
"""

import argparse
import collections
import multiprocessing
import time
from pathlib import Path

import numpy as np
import torch
from agent_learning import fields, learn, play

from envgen_nb.agent.guards import keep_memory
from envgen_nb.agent.learner import Learner, learners
from envgen_nb.agent.presets import get_preset
from envgen_nb.game.episodes import Episodes
from envgen_nb.game.files import append_jsonl, read_jsonl
from envgen_nb.game.simulator import get_simulator
from envgen_nb.results.statistics import mean

RESULTS = Path(__file__).with_suffix(".jsonl")


def score(unlocked: np.ndarray) -> float:
    "The Crafter score of episodes, (E, objectives) bool."
    simulator = get_simulator("crafter")
    return simulator.score(dict(zip(simulator.objectives, (100 * unlocked.mean(0)).tolist(), strict=True)))


def run(name: str, changes: dict, seed: int, steps: int, learner: str) -> dict:
    "One agent from the beginning to the end of its training."
    return trained(name, changes, seed, steps, learner)[1]


def trained(name: str, changes: dict, seed: int, steps: int, learner: str) -> tuple[Learner, dict]:
    "Such an agent, and its line."
    torch.set_num_threads(1)
    keep_memory()
    learners.take(learner)                      # also a class of one's own, package.module:Class
    episodes, begin = [], time.process_time()
    agent, seconds = learn(get_preset(name, **changes), seed, steps, lambda report: episodes.append(report.episodes),
                           learner)
    cpu = time.process_time() - begin
    played, tested = Episodes.join(episodes), play(agent, 300)
    return agent, {
        "learner": learner, "preset": name, "changes": changes, "seed": seed, "steps": agent.steps,
        "score_training": round(score(played.unlocked), 2), "score_policy": round(score(tested.unlocked), 2),
        "return_policy": round(float(tested.returns.mean()), 2),
        "success": {name: round(100 * float(rate), 1) for name, rate in zip(
            get_simulator("crafter").objectives, tested.unlocked.mean(0), strict=True)},
        "steps_per_s": round(agent.steps / sum(seconds.values())), "steps_per_cpu_s": round(agent.steps / cpu),
        "seconds": {kind: round(value, 1) for kind, value in seconds.items()}}


def table() -> str:
    "Every setting that has been tried, the best over training first: means over seeds and their 95% intervals."
    tried = collections.defaultdict(list)
    for record in read_jsonl(RESULTS):
        changes = " ".join(f"{key}={value}" for key, value in sorted(record["changes"].items()))
        tried[record.get("learner", "ppo"), record["preset"], record["steps"], changes].append(record)
    rows = sorted(tried.items(), key=lambda item: -np.mean([r["score_training"] for r in item[1]]))
    lines = [f"{'learner':10} {'preset':12} {'steps':>9} {'seeds':>5} {'training':>18} {'policy':>18} {'steps/s':>8}"
             f" {'per CPU s':>9}  changes"]
    for (learner, preset, steps, changes), records in rows:
        found = [f"{mean(r[key] for r in records):.1f}" for key in ("score_training", "score_policy")]
        speed = np.median([r["steps_per_s"] for r in records])
        cpu = [r["steps_per_cpu_s"] for r in records if "steps_per_cpu_s" in r]
        lines.append(f"{learner:10} {preset:12} {steps:9,} {len(records):5} {found[0]:>18} {found[1]:>18} {speed:8,.0f}"
                     f" {f'{np.median(cpu):,.0f}' if cpu else '':>9}  {changes}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--learner", default="ppo")
    parser.add_argument("--preset", default="symbols")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="changes to the preset")
    parser.add_argument("--table", action="store_true", help="only print what has been tried")
    args = parser.parse_args()
    if not args.table:
        with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
            tasks = [pool.apply_async(run, (args.preset, fields(args.set), seed, args.steps, args.learner))
                     for seed in args.seeds]
            for task in tasks:
                append_jsonl(RESULTS, task.get())
    print(table())


if __name__ == "__main__":
    main()
