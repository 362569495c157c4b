"""What happens to the trainer when another program uses one of its cores? Gradients per second, idle and busy.

    python benchmarks/agent_busy.py                       # the preset symbols; about 40 s
    python benchmarks/agent_busy.py --preset laptop

The competitor computes without a pause, on one core, to which it is bound. Each row finds the gradient of the preset's
own minibatch, again and again: with a pool of one thread, with one of two, and with torch's own two threads.
"""

import argparse
import contextlib
import multiprocessing
import os
import time

import torch

from envgen_nb.agent.guards import keep_memory
from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import get_preset
from envgen_nb.game.simulator import make_vec


def compete(core: int) -> None:
    "Take a core for as long as one may."
    os.sched_setaffinity(0, {core})
    while True:
        pass


def speed(agent: PPO, threads: int, pool: int, seconds: float) -> float:
    "Gradients per second, with that many threads of torch and a pool of that many."
    torch.set_num_threads(threads)
    preset = agent.preset
    batch, done = agent.example_batch(preset.batch // preset.algorithm.minibatches), 0
    agent.speed_up(pool)
    agent.gradients(batch)
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        agent.gradients(batch)
        done += 1
    return done / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="symbols")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each number")
    args = parser.parse_args()
    preset = get_preset(args.preset)
    keep_memory()
    with contextlib.closing(make_vec("crafter", num_envs=1, obs=preset.obs)) as venv:
        agent = PPO(preset, venv.single_observation_space, venv.single_action_space, 0)
    rows = {"one thread": (1, 1), "a pool of two": (1, 2), "torch's two threads": (2, 1)}
    found = {}
    for state in ("idle", "busy"):
        other = multiprocessing.get_context("spawn").Process(target=compete, args=(0,), daemon=True)
        if state == "busy":
            other.start()
            time.sleep(2)
        found[state] = {name: speed(agent, *how, args.seconds) for name, how in rows.items()}
        if state == "busy":
            other.terminate()
    print(f"{preset.name}, gradients of a minibatch per second\n{'':22} {'idle':>8} {'busy':>8}")
    for name in rows:
        print(f"{name:22} {found['idle'][name]:8.1f} {found['busy'][name]:8.1f}")


if __name__ == "__main__":
    main()
