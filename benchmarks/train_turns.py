"""Does training run as fast as before, and what do other settings cost? In turns, by environment steps per CPU second.

    git worktree add ../before 8e71adc5           # another checkout of this repository
    python benchmarks/train_turns.py ../before --out benchmarks/train_turns.json

A turn is one training of each of two, in a process of its own with one thread. The first turn, which compiles, does not
count. What counts are the ratios within a turn: a busy machine changes them less than the speeds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from envgen_nb.game.files import write_json

HERE = Path(__file__).parents[1]
TRAIN = """
import json, sys, time
import torch
from agent_learning import learn
from envgen_nb.agent.guards import keep_memory
from envgen_nb.agent.presets import get_preset
torch.set_num_threads(1)
keep_memory()
preset, learner, changes, steps = json.loads(sys.argv[1])
preset = get_preset(preset, **changes)
learn(preset, 0, preset.batch, None, learner)
begin = time.process_time()
agent, _ = learn(preset, 0, steps, None, learner)
print(agent.steps / (time.process_time() - begin))
"""


class Training(NamedTuple):
    "What is timed."
    checkout: Path = HERE
    preset: str = "symbols"
    learner: str = "ppo"
    changes: dict = {}

    def speed(self, steps: int) -> float:
        "Return the environment steps per CPU second."
        paths = os.pathsep.join(map(str, (self.checkout, self.checkout / "benchmarks")))
        done = subprocess.run([sys.executable, "-c", TRAIN, json.dumps([*self[1:], steps])], check=True, text=True,
                              stdout=subprocess.PIPE, cwd=self.checkout, env=os.environ | {"PYTHONPATH": paths})
        return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the other checkout")
    parser.add_argument("--steps", type=int, default=98_304)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", help="write all of it as JSON")
    args = parser.parse_args()
    before, today, rows = args.before.resolve(), Training(), {}
    for name, (first, second) in {
            "PPO, `symbols`: today beside before": (Training(before), today),
            "`ppo-rare`, `symbols-long`: today beside before": (
                Training(before, "symbols-long", "ppo-rare"), Training(HERE, "symbols-long", "ppo-rare")),
            "PPO: `symbols-long` beside `symbols`": (today, Training(HERE, "symbols-long")),
            "`symbols-long`: `ppo-rare` beside PPO": (
                Training(HERE, "symbols-long"), Training(HERE, "symbols-long", "ppo-rare")),
            "PPO, `symbols`: an encoder without attention beside its own": (
                today, Training(HERE, changes={"encoder": "agent_designs:Plain"}))}.items():
        turns = [[one.speed(args.steps) for one in (first, second)] for _ in range(args.turns + 1)][1:]
        ratios = sorted(new / old for old, new in turns)
        rows[name] = {"speeds": [statistics.median(speeds) for speeds in zip(*turns, strict=True)], "ratios": ratios}
        print(f"{name}: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); "
              + " and ".join(f"{speed:,.0f}" for speed in rows[name]["speeds"]), flush=True)
        if args.out:
            write_json(args.out, {"steps": args.steps, "rows": rows, "before": subprocess.check_output(
                ["git", "rev-parse", "--short", "HEAD"], cwd=before, text=True).strip()})


if __name__ == "__main__":
    main()
