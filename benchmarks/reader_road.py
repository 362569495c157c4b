"""Designed scenes as data for driving: a small network that reads the distance to the car ahead, the lane's marks and
the heading from pictures of `road`, trained on frames of the original game, of random scenes and of critical ones.

    python benchmarks/reader_road.py --out benchmarks/reader_road.jsonl    # ten seeds; goes on where it was stopped

Named before the first run on the seeds 840 to 849 (what is here was tried out on 992 alone):

- **Arms**, 2,400 frames and 400 updates each, random actions, episodes of 30 steps, at most 20 frames of each.
  `original`: the original game. `random` and `critical` have the first 1,200 of them and 1,200 of 8 scenes: drawn at
  random; or written by hand for what is rare (`CRITICAL`: full traffic, a car that brakes, stands, cuts in or merges).
- **Tests**, 2,000 frames each on other maps: the original game, and a game with other rarities (`OTHER`), which is none
  of the scenes that are trained on.
- **Measures**: 1. metres by which the distance to a car ahead is off while it is nearer than `NEAR`; 2. the same, up to
  `FAR`; 3. metres by which the lane's marks are off; 4. degrees by which the heading is off; means over frames. The
  first one in the original game decides; all are compared with `original`, paired by seed, with 95% intervals.
"""
import argparse
import io
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

from envgen_nb.frames.frames import frames
from envgen_nb.frames.reader import draw_worlds
from envgen_nb.game.files import append_jsonl, machine, read_jsonl
from envgen_nb.simulators.road.simulator import Road, RoadWorld

SEEDS = range(840, 850)
COUNT, TEST, UPDATES, NEAR, FAR = 2_400, 2_000, 400, 20.0, 60.0
READ = "distance_ahead", "left_mark", "right_mark", "heading"
SCALE = np.array([FAR, 4, 4, 0.1], np.float32)                  # metres, metres, metres, rad: all about one
CRITICAL = [RoadWorld(**settings) for settings in (
    {"ahead": "stopped car", "gap": 90, "density": 1}, {"ahead": "stopped car", "gap": 110, "lanes": 2, "density": 1.5},
    {"ahead": "braking car", "gap": 50, "density": 1.5}, {"ahead": "braking car", "gap": 60, "lanes": 1},
    {"density": 2, "speed": 15}, {"density": 2, "aggressive": 0.8}, {"density": 1.5, "braking": 0.5},
    {"merging": 4, "density": 1.5})]
OTHER = RoadWorld(lanes=4, density=1.75, aggressive=0.4, braking=0.2, speed=20, merging=2, start_speed=20)


def played(folder: Path, worlds: list[RoadWorld | None], seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    "Return images, (F, 80, 120, 3) uint8: every second pixel; and what is to be read, (F, 4) float32."
    frames(Road(), folder, worlds, "random", count, seed=seed, length=30, per_episode=20)
    table = pq.read_table(folder / "data")
    images = [np.asarray(Image.open(io.BytesIO(one["bytes"])).convert("RGB"))[::2, ::2]
              for one in table["image"].to_pylist()]
    truth = np.stack([np.array(table[name].to_pylist(), np.float32) for name in READ], 1)       # None: nan, no car
    truth[:, 0] = np.nan_to_num(truth[:, 0], nan=FAR).clip(max=FAR)
    return np.stack(images), truth


class RoadReader(nn.Module):
    "Reads pictures, (B, H, W, 3) uint8, as (B, 4): what `READ` names, divided by `SCALE`."

    def __init__(self):
        super().__init__()
        layers, width = [], 3
        for wide in (16, 32, 48, 64):
            layers += [nn.Conv2d(width, wide, 3, 2, 1), nn.BatchNorm2d(wide), nn.ReLU()]
            width = wide
        self.net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 5 * 8, 64), nn.ReLU(), nn.Linear(64, len(READ)))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images.permute(0, 3, 1, 2) / 255)


def trained(images: np.ndarray, truth: np.ndarray, seed: int, batch: int = 64) -> RoadReader:
    "Train a new reader with Adam, whose steps get smaller to the end."
    torch.manual_seed(seed)
    reader, seen, wanted = RoadReader(), torch.from_numpy(images), torch.from_numpy(truth / SCALE)
    optimizer = torch.optim.Adam(reader.parameters(), 0.002)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, UPDATES)
    order = torch.cat([torch.randperm(len(seen)) for _ in range(-(-UPDATES * batch // len(seen)))])
    for chosen in order.split(batch)[:UPDATES]:
        loss = F.smooth_l1_loss(reader(seen[chosen]), wanted[chosen], beta=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return reader.eval()


@torch.no_grad()
def measured(reader: RoadReader, images: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    "Measure a reader on a test."
    said = torch.cat([reader(part) for part in torch.from_numpy(images).split(256)]).numpy() * SCALE
    off, ahead = np.abs(said - truth), truth[:, 0]
    return {name: round(float(value), 4) for name, value in (
        ("near", off[ahead < NEAR, 0].mean()), ("distance", off[ahead < FAR, 0].mean()), ("marks", off[:, 1:3].mean()),
        ("heading", np.degrees(off[:, 3]).mean()))}


def run(seed: int) -> dict[str, Any]:
    "Train and measure all arms."
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        original = played(folder / "original", [None], seed, COUNT)
        arms = {"original": original}
        drawn = draw_worlds(Road(), "default", 8, seed)
        for name, worlds, first in (("random", drawn, 1_000), ("critical", CRITICAL, 2_000)):
            half = played(folder / name, worlds, seed + first, COUNT // 2)
            arms[name] = tuple(np.concatenate([one[:COUNT // 2], two]) for one, two in zip(original, half, strict=True))
        tests = {name: played(folder / f"test-{name}", [world], seed + first, TEST)
                 for name, world, first in (("original", None, 10_000), ("other", OTHER, 20_000))}
    readers = {name: trained(*found, seed) for name, found in arms.items()}
    return {"seed": seed, "machine": machine(), "frames": {name: len(one[0]) for name, one in arms.items()},
            "near": {name: int((truth[:, 0] < NEAR).sum()) for name, (_, truth) in {**arms, **{
                f"test {name}": test for name, test in tests.items()}}.items()},
            "tests": {name: {arm: measured(reader, *test) for arm, reader in readers.items()}
                      for name, test in tests.items()},
            "cpu_seconds": round(time.process_time() - begun, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--out", type=Path, help="append a line for each seed; those that are there are not run again")
    args = parser.parse_args()
    torch.set_num_threads(1)
    done = [one["seed"] for one in read_jsonl(args.out)] if args.out else []
    for seed in args.seeds:
        if seed not in done:
            found = run(seed)
            print(seed, found["near"], found["tests"], found["cpu_seconds"], flush=True)
            if args.out:
                append_jsonl(args.out, found)


if __name__ == "__main__":
    main()
