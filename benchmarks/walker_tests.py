"""The agents of walker runs in the six levels of ACCEL's test.

    python benchmarks/walker_tests.py FOLDER                       # all runs in it, also those of an experiment
    python benchmarks/walker_tests.py FOLDER --out FILE.json

The agent that was measured last plays so many episodes in each level, with sampled actions, up to 2,000 steps. An
episode is solved if its return is above 230. Written after each run, so that one that is stopped loses nothing.
"""
import argparse
from pathlib import Path
from typing import Any

from envgen_nb.agent.evaluate import evaluate
from envgen_nb.agent.learner import Learner
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.runs import load_agent
from envgen_nb.game.files import write_json
from envgen_nb.simulators.walker import Walker
from envgen_nb.simulators.walker_test_set import SOLVED, TESTS

SEED = 3_000_000      # of the episodes; no training uses it


def measure(agent: Learner, episodes: int) -> dict[str, dict[str, Any]]:
    "Play the six levels; return of each the share that is solved, the returns and the lengths."
    found = {}
    for name, worlds in TESTS.items():
        venv = Walker().make_vec(worlds, num_envs=episodes, seed=SEED, obs=agent.preset.obs, episodes=1)
        played = evaluate(agent, venv, runs=1, seed=SEED)
        venv.close()
        found[name] = {"solved": float((played.returns > SOLVED).mean()), "return": float(played.returns.mean()),
                       "returns": played.returns.round(1).tolist(), "lengths": played.lengths.tolist()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--episodes", type=int, default=100, help="in each level (default 100)")
    parser.add_argument("--out", help="write all of it as JSON")
    args = parser.parse_args()
    runs = {}
    for path in sorted(file.parent for file in args.folder.rglob("run.json")):
        name = path.relative_to(args.folder).as_posix()
        runs[name] = measure(load_agent(RunFolder(path)), args.episodes)
        print(name, *(f"{level} {one['solved']:.0%} ({one['return']:.0f})" for level, one in runs[name].items()),
              sep="   ", flush=True)
        if args.out:
            write_json(args.out, {"episodes": args.episodes, "seed": SEED, "solved": SOLVED, "runs": runs})


if __name__ == "__main__":
    main()
