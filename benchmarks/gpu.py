"""How fast agents train on a GPU, beside the cores of the same machine, and how many runs one GPU is worth.

    python benchmarks/gpu.py                       # all of it, ten minutes; benchmarks/gpu.jsonl
    python benchmarks/gpu.py --only paper --seconds 5
    python benchmarks/gpu.py --runs runs/crafter-20261126-025348       # what whole runs took, from their folders

Each row is one measurement of training in the original game: environment steps per second without the first rollout,
in which a GPU's functions are recorded, and where the time went. With several processes they train at the same moment,
each with its own copy of the network, as runs of an experiment with `--gpus-per-run` do; the speed is that of all
together. `docs/tables.py` makes the tables of docs/guides/gpu.md from the rows.
"""

import argparse
import contextlib
import multiprocessing
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from envgen_nb.agent.guards import keep_memory
from envgen_nb.agent.learner import learners
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import train
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.game.files import append_jsonl, machine, read_jsonl
from envgen_nb.game.simulator import get_simulator, make_vec
from envgen_nb.results import scores, training_score

AGENTS = [("paper", "ppo"), ("laptop", "ppo"), ("symbols", "ppo"), ("laptop", "ppo-memory"), ("symbols", "ppo-memory"),
          ("symbols", "ppo-rare"), ("symbols-long", "ad")]
TOGETHER = (2, 4, 8)


def train_for(agent: str, learner: str, device: str, seconds: float, seed: int, ready: Any = None) -> dict:
    "One agent, for about so long after its first rollout, which begins when all are ready."
    torch.set_num_threads(1)
    keep_memory()
    preset, begun, counted, split = get_preset(agent), 0.0, 0, Counter()

    def count(report):
        nonlocal begun, counted
        if report.rollout == 1:
            if ready:
                ready.wait()
            begun = time.perf_counter()
        else:
            counted += preset.batch
            split.update(report.seconds)
        return report.rollout > 1 and time.perf_counter() - begun > seconds

    with contextlib.closing(make_vec("crafter", num_envs=preset.num_envs, seed=seed, obs=preset.obs,
                                     copy=False)) as venv:
        made = learners.find(learner).for_game(get_simulator("crafter"), preset)
        one = made(preset, venv.single_observation_space, venv.single_action_space, seed, device)
        threads = 1 if ready else one.speed_up()
        train(one, venv, 1 << 40, callback=count)
    took = time.perf_counter() - begun
    return {"threads": threads, "steps_per_s": round(counted / took),
            "split": {kind: round(value / took, 3) for kind, value in split.items()}}


def _in_process(name: tuple, ready: Any, found: Any) -> None:
    found.put(train_for(*name, ready))


def together(count: int, agent: str, learner: str, device: str, seconds: float) -> dict:
    "So many at the same moment."
    context = multiprocessing.get_context("spawn")
    ready, found = context.Barrier(count), context.Queue()
    processes = [context.Process(target=_in_process, args=((agent, learner, device, seconds, seed), ready, found))
                 for seed in range(count)]
    for process in processes:
        process.start()
    rows = [found.get() for _ in processes]
    for process in processes:
        process.join()
    return {"threads": 1, "steps_per_s": sum(row["steps_per_s"] for row in rows)}


def of_run(run: RunFolder) -> dict:
    "What a whole run took: the seconds of its work, without the start of Python and of its notebook, and its scores."
    events, seconds = read_jsonl(run.path / "events.jsonl"), Counter()
    for record in (record for cycle in run.cycles for record in run.metrics(cycle)):
        seconds.update(record["seconds"])
    seconds["evaluate"] = sum(event["seconds"] for event in events if event["event"] == "Evaluated")
    return {"agent": run.settings.preset, "learner": run.settings.learner, "device": run.settings.device,
            "run": run.settings.model_dump(mode="json"), "steps": events[0]["steps"], "took": events[-1]["seconds"],
            "seconds": {kind: round(value, 1) for kind, value in seconds.items()},
            "score_policy": round(scores(run)["final"], 1), "score_training": round(training_score(run), 1),
            "machine": run.info["machine"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--only", nargs="*", help="these presets")
    parser.add_argument("--devices", nargs="*", default=["cuda", "cpu"])
    parser.add_argument("--together", type=int, nargs="*", default=TOGETHER, help="so many processes at once, of paper")
    parser.add_argument("--runs", type=Path, nargs="*", default=[], help="only read these folders of runs")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".jsonl"))
    args = parser.parse_args()
    for folder in args.runs:
        append_jsonl(args.out, of_run(RunFolder(folder)))
    if args.runs:
        return
    here = machine() | {"gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else ""}

    def tell(agent: str, learner: str, device: str, processes: int, row: dict) -> None:
        row = {"agent": agent, "learner": learner, "device": device, "processes": processes} | row
        append_jsonl(args.out, row | {"machine": here})
        print(row, flush=True)

    for device in args.devices:
        for agent, learner in AGENTS:
            if not args.only or agent in args.only:
                tell(agent, learner, device, 1, train_for(agent, learner, device, args.seconds, 0))
    for count in args.together:
        tell("paper", "ppo", args.devices[0], count, together(count, "paper", "ppo", args.devices[0], args.seconds))


if __name__ == "__main__":
    main()
