"""Designed worlds as data for perception: a small network that reads Crafter's pictures, trained on frames of the
original game, of random worlds and of worlds that are designed for what it reads badly, as many frames each.

    python benchmarks/reader.py --out benchmarks/reader.jsonl    # ten seeds, a quarter of an hour on one core; goes on
    python benchmarks/reader.py --prompt                         # the next prompt to a language model, see below

Named before the first run on the seeds 820 to 829 (what is here was tried out on 990 and 991 alone):

- **Arms**, 2,400 frames and 450 updates each, played by rules in episodes of 400 steps, at most 40 frames of each.
  `original`: the original game. `balanced`: the same, its rare frames preferred (`--balance class`). `random`,
  `rules` and `model` have the first 1,200 frames of `original` and 1,200 of 12 worlds. `random`: drawn at random.
  `rules`: EnvGen's loop, three cycles; in each a new reader is trained on the frames so far, and for the four classes
  that it reads worst `worlds_for` chooses, of 32 random worlds, those that show them most. It reads validation frames
  of these data sets, never a test's. `model`: the same loop with a language model, once, on seed 990; its worlds are
  recorded and are the same for all seeds.
- **Tests**, on maps that no arm trains on, 2,000 frames each: the original game, and a game with other rarities
  (`OTHER`), of which no designer is informed.
- **Measures**: 1. recall of the rare classes (`RARE`, each below 1% of the cells in view on the seeds 990 and 991), the
  mean over those of which the test shows 30 cells or more (`SHOWN`); 2. IoU, mean over all such classes in view (not
  `nothing` and `inventory`); 3. cells in view that are read right by night (daylight below 0.5); 4. by how many steps
  the distance to the nearest zombie, skeleton, arrow and lava is off, mean over these kinds while in sight. The
  first one in the original game decides; all are compared with `original`, paired by seed, with 95% intervals.

`--prompt` writes cycle-K/prompt.md of nbs/lab/experiments/recordings/frames for the first K without a reply.
"""
import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from envgen_nb.designer.reply import read_reply
from envgen_nb.frames.frames import frames
from envgen_nb.frames.play import named_policy
from envgen_nb.frames.reader import (
    Pictures,
    Reader,
    confusion,
    distance_errors,
    draw_worlds,
    format_readings,
    iou,
    read,
    read_pictures,
    reader_prompt,
    recall,
    shown_classes,
    train_reader,
    worlds_for,
)
from envgen_nb.game.files import append_jsonl, machine, read_jsonl, write_text
from envgen_nb.game.simulator import get_simulator
from envgen_nb.game.world import World

SEEDS = range(820, 830)
FRAMES, TEST, CYCLES, WORLDS, CANDIDATES, SHOWN = 2_400, 2_000, 3, 4, 32, 30
RARE = ("lava", "iron", "diamond", "table", "furnace", "cow", "skeleton", "arrow", "plant", "ripe_plant")
HIDDEN = ("nothing", "inventory")
KINDS = ("zombie", "skeleton", "arrow", "lava")
RECORDINGS = Path(__file__).parent.parent / "nbs" / "lab" / "experiments" / "recordings" / "frames"
GAME = get_simulator("crafter")
MODEL, CLASSES, SCRIPTED = GAME.world_class("extended"), GAME.labeller().classes, named_policy(GAME, "scripted")
OTHER = MODEL.model_validate({
    "environment_settings": {"coal_rarity": "rare", "iron_rarity": "very common", "diamond_rarity": "common",
                             "tree_rarity": "rare"},
    "creature_settings": {"cows": "rare", "zombies": "very common", "skeletons": "very common"},
    "start_settings": {"time_of_day": "evening", "near": ["furnace", "ripe_plant"]}})


def played(folder: Path, name: str, worlds: Sequence[World | None], seed: int, count: int, **options: Any) -> Path:
    "Write a data set of frames."
    return frames(GAME, folder / name, worlds, "scripted", count, seed=seed, length=400,
                  **{"per_episode": 40, **options})


def trained(parts: Sequence[Pictures], seed: int) -> Reader:
    "Train a new reader on some frames."
    torch.manual_seed(seed)
    reader = Reader(CLASSES, KINDS, cell=7, shape=(9, 9), centre=(3, 4))
    train_reader(reader, np.concatenate([one.images for one in parts]), np.concatenate([one.cells for one in parts]),
                 seed=seed)
    return reader


def counted(reader: Reader, parts: Sequence[Pictures]) -> np.ndarray:
    "Return the confusion of a reader in some frames."
    return sum(confusion(one.cells, read(reader, one.images)[0], len(CLASSES)) for one in parts)


def part(pictures: Pictures, count: int) -> Pictures:
    "Return the first frames."
    return Pictures(pictures.images[:count], pictures.cells[:count], pictures.table.slice(0, count))


class Loop:
    "EnvGen's loop with a reader: the frames so far, and what is read badly."

    def __init__(self, folder: Path, seed: int, name: str):
        original = folder / "original"
        self.folder, self.seed, self.name, self.worlds = folder, seed, name, []
        self.train = [part(read_pictures(original, 7, "train"), FRAMES // 2)]
        self.validation = [read_pictures(original, 7, "validation")]

    def confusion(self) -> np.ndarray:
        "Train a new reader on the frames so far, and return its confusion in the validation frames."
        return counted(trained(self.train, self.seed), self.validation)

    def add(self, worlds: Sequence[World], share: int = CYCLES) -> None:
        "Play worlds, and add their frames: one of so many shares of those of designed worlds."
        done, count = len(self.worlds), round(FRAMES / 2 / share)
        path = played(self.folder, f"{self.name}-{done}", worlds, self.seed + 1_000 + done, -(-count * 10 // 8) + 10)
        self.worlds += worlds
        self.train.append(part(read_pictures(path, 7, "train"), count))
        self.validation.append(read_pictures(path, 7, "validation"))


def recorded(cycle: int) -> list[World]:
    "Return the worlds of a recorded reply; `ValueError` if something is wrong in it."
    found = read_reply((RECORDINGS / f"cycle-{cycle}" / "reply.md").read_text(), MODEL, WORLDS)
    if found.complaints:
        raise ValueError("\n".join(map(str, found.complaints)))
    return [design.world for design in found.designs]


def by_rules(loop: Loop) -> None:
    "Play the three cycles with the designer by rules."
    for cycle in range(CYCLES):
        candidates = draw_worlds(GAME, "extended", CANDIDATES, 10 * loop.seed + cycle)
        shown = shown_classes(GAME, SCRIPTED, candidates, 10 * loop.seed)
        loop.add(worlds_for(recall(loop.confusion()), shown, candidates, WORLDS))


def arms(folder: Path, seed: int) -> tuple[dict[str, list[Pictures]], list[World]]:
    "Make the frames of each arm, and return the worlds of `rules`, too."
    count = FRAMES * 10 // 8
    original, balanced = (read_pictures(played(folder, name, [None], seed, count, balance=balance), 7, "train")
                          for name, balance in (("original", None), ("balanced", "class")))
    loops = {name: Loop(folder, seed, name) for name in ("random", "rules", "model")}
    loops["random"].add(draw_worlds(GAME, "extended", CYCLES * WORLDS, seed), share=1)
    by_rules(loops["rules"])
    for cycle in range(1, CYCLES + 1):
        loops["model"].add(recorded(cycle))
    return ({"original": [original], "balanced": [balanced], **{name: loop.train for name, loop in loops.items()}},
            loops["rules"].worlds)


def measured(reader: Reader, test: Pictures) -> dict[str, Any]:
    "Measure a reader on a test; what the test does not show is None."
    cells, steps = read(reader, test.images)
    counts, hidden = confusion(test.cells, cells, len(CLASSES)), [CLASSES.index(name) for name in HIDDEN]
    dark = ~np.isin(test.cells, hidden) & (np.array(test.table["daylight"]) < 0.5)[:, None, None]

    def named(names: Sequence[str], values: np.ndarray) -> dict[str, float | None]:
        return {name: None if np.isnan(value) else round(float(value), 4)
                for name, value in zip(names, values, strict=True)}
    return {"recall": named(CLASSES, recall(counts)), "iou": named(CLASSES, iou(counts)),
            "night": round(float((cells == test.cells)[dark].mean()), 4),
            "steps_off": named(KINDS, distance_errors(test.cells, steps, reader))}


def run(seed: int) -> dict[str, Any]:
    "Train and measure all arms."
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        made, worlds = arms(folder, seed)
        tests = {name: read_pictures(played(folder, f"test-{name}", [world], seed + first, TEST, per_episode=30), 7)
                 for name, world, first in (("original", None, 10_000), ("other", OTHER, 20_000))}
        readers = {name: trained(parts, seed) for name, parts in made.items()}
    return {"seed": seed, "machine": machine(), "rare": RARE, "shown": SHOWN, "hidden": HIDDEN,
            "frames": {name: sum(len(one.images) for one in parts) for name, parts in made.items()},
            "worlds": [world.settings() for world in worlds],
            "cells": {name: dict(zip(CLASSES, np.bincount(test.cells.ravel(), minlength=len(CLASSES)).tolist(),
                                     strict=True)) for name, test in tests.items()},
            "tests": {name: {arm: measured(reader, test) for arm, reader in readers.items()}
                      for name, test in tests.items()},
            "cpu_seconds": round(time.process_time() - begun, 1)}


def write_prompt(seed: int = 990) -> Path:
    "Write the next prompt to a language model, after the replies that are there."
    with tempfile.TemporaryDirectory() as place:
        folder, cycle = Path(place), 1
        played(folder, "original", [None], seed, FRAMES * 10 // 8)
        loop = Loop(folder, seed, "model")
        while (RECORDINGS / f"cycle-{cycle}" / "reply.md").exists():
            loop.add(recorded(cycle))
            cycle += 1
        shown = np.concatenate([one.cells for one in loop.train]).reshape(-1, 81)
        share = np.stack([(shown == kind).any(1).mean() for kind in range(len(CLASSES))])
        prompt = reader_prompt(GAME, format_readings(CLASSES, loop.confusion(), share), "extended", WORLDS, loop.worlds)
    path = RECORDINGS / f"cycle-{cycle}" / "prompt.md"
    path.parent.mkdir(parents=True)
    write_text(path, prompt)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--out", type=Path, help="append a line for each seed; those that are there are not run again")
    parser.add_argument("--prompt", action="store_true", help="write the next prompt to a language model")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.prompt:
        print(write_prompt())
        return
    done = [one["seed"] for one in read_jsonl(args.out)] if args.out else []
    for seed in args.seeds:
        if seed in done:
            continue
        found = run(seed)
        for test, arms_of in found["tests"].items():
            for arm, one in arms_of.items():
                rare = [one["recall"][name] for name in RARE if found["cells"][test][name] >= SHOWN]
                print(f"seed {seed}, {test}, {arm}: rare {np.mean(rare):.1%}, night {one['night']:.1%}", flush=True)
        if args.out:
            append_jsonl(args.out, found)


if __name__ == "__main__":
    main()
