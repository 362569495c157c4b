"""How fast can a step of training be? Its operations, the matrix products alone, and these at the processor's peak.

    python benchmarks/agent_limit.py --out benchmarks/agent_limit.json      # the preset symbols; about 50 s
    python benchmarks/agent_limit.py --preset laptop

Everything is of one environment step of `train` with PPO in Crafter: choosing an action, and `epochs` gradients. The
matrix products are recorded with their shapes, types and strides, and each is computed alone, again and again, on
numbers that the cache holds. The peak is that of the fastest of three square products. Seconds are of the CPU, so
that another program on the machine changes little; only the speed with two threads is by the clock. The shares of the
operations are torch.profiler's, of what it sees: without the game, and without what Python does between operations.
"""

import argparse
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from gymnasium.vector import VectorEnv
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from envgen_nb.agent.guards import keep_memory
from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import train
from envgen_nb.game.files import write_json
from envgen_nb.game.simulator import make_vec


class Products(TorchDispatchMode):
    "Count the matrix products within: (operation, shape, strides and type of each operand) → how many."

    def __init__(self):
        super().__init__()
        self.found: Counter[tuple[Any, ...]] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in flop_registry:
            self.found[func, *((tuple(x.shape), x.stride(), x.dtype) for x in args)] += 1
        return func(*args, **(kwargs or {}))


def seconds(act: Callable[[], object], at_least: float) -> float:
    "CPU seconds of a call, which is repeated for that long."
    act()
    count, begin = 0, time.process_time()
    while (took := time.process_time() - begin) < at_least:
        act()
        count += 1
    return took / count


def alone(product: tuple[Any, ...], at_least: float) -> tuple[float, int]:
    "CPU seconds of one product, and its floating point operations."
    func, *operands = product
    made = [torch.empty_strided(shape, strides, dtype=dtype).fill_(0.5) for shape, strides, dtype in operands]
    flops = flop_registry[func.overloadpacket](*made, out_val=func(*made))
    return seconds(lambda: func(*made), at_least), flops


def peak(dtype: torch.dtype) -> float:
    "Floating point operations per CPU second in the best of three square products."
    found = []
    for n in (256, 512, 1024):
        a = torch.full((n, n), 0.5, dtype=dtype)
        found.append(2 * n**3 / seconds(lambda a=a: a @ a, 1.0))
    return max(found)


def per_step(agent: PPO, venv: VectorEnv, steps: int, clock: Callable[[], float] = time.process_time,
             **options: Any) -> float:
    "Seconds of an environment step in a training."
    first, begin = agent.steps, clock()
    train(agent, venv, steps, **options)
    return (clock() - begin) / (agent.steps - first)


def profiled(agent: PPO, venv: VectorEnv, steps: int) -> list[tuple[str, float, int]]:
    "Return the operations of a training: name, share of the profiled seconds without its parts', and calls."
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        train(agent, venv, steps)
    events = profiler.key_averages()
    whole = sum(event.self_cpu_time_total for event in events)
    found = [(event.key, event.self_cpu_time_total / whole, event.count) for event in events]
    return sorted(found, key=lambda one: -one[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="symbols")
    parser.add_argument("--steps", type=int, default=122_880, help="that are timed")
    parser.add_argument("--out", help="write all of it as JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    preset = get_preset(args.preset)
    with contextlib.closing(make_vec("crafter", num_envs=preset.num_envs, seed=0, obs=preset.obs)) as venv:
        agent = PPO(preset, venv.single_observation_space, venv.single_action_space, 0)
        agent.speed_up(1)
        train(agent, venv, 10 * preset.batch)
        shares = Counter[str]()
        whole = per_step(agent, venv, args.steps, callback=lambda report: shares.update(report.seconds))
        agent.speed_up(2)
        two = per_step(agent, venv, args.steps, time.perf_counter)
        agent.speed_up(1)
        first, products = agent.steps, Products()
        with products:
            train(agent, venv, 5 * preset.batch)
        steps = agent.steps - first
        listed = profiled(agent, venv, 5 * preset.batch)
    flops, took, least = Counter[Any](), Counter[Any](), 0.0
    peaks = {dtype: peak(dtype) for dtype in (torch.float32, torch.bfloat16)}
    for product, count in products.found.items():
        each, operations = alone(product, 0.2)
        dtype = product[-1][-1]
        flops[dtype] += count * operations / steps
        took[dtype] += count * each / steps
        least += count * operations / steps / peaks[dtype]
    print(f"{preset.name}, one thread, per environment step: {whole * 1e6:.1f} µs ({1 / whole:,.0f} steps per second)")
    print("  of it " + ", ".join(f"{name} {100 * value / shares.total():.0f}%" for name, value in shares.items()))
    for dtype in flops:
        print(f"  matrix products in {str(dtype).removeprefix('torch.')}: {flops[dtype] / 1e6:.2f} MFLOP, alone "
              f"{took[dtype] * 1e6:.1f} µs ({flops[dtype] / took[dtype] / 1e9:.0f} GFLOP/s; the peak is "
              f"{peaks[dtype] / 1e9:.0f})")
    print(f"  matrix products together: {sum(took.values()) * 1e6:.1f} µs ({100 * sum(took.values()) / whole:.0f}%); "
          f"at the peak {least * 1e6:.1f} µs ({100 * least / whole:.0f}%)")
    print(f"learning with two threads: {two * 1e6:.1f} µs by the clock ({1 / two:,.0f} steps per second)")
    for name, share, calls in listed[:12]:
        print(f"  {100 * share:4.1f}% {name} ({calls:,} calls)")
    if args.out:
        write_json(args.out, {
            "preset": preset.name, "step": whole * 1e6, "two_threads": two * 1e6, "least": least * 1e6,
            "shares": {name: value / shares.total() for name, value in shares.items()},
            "products": {str(dtype).removeprefix("torch."): {
                "mflop": flops[dtype] / 1e6, "alone": took[dtype] * 1e6, "peak": peaks[dtype] / 1e9}
                for dtype in flops},
            "operations": listed})


if __name__ == "__main__":
    main()
