"""Labelled frames: masks are the engine's state, files are read by those that they are for, splits share no map."""
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import minari
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from test_cycle_story import SMALL

from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import get_preset
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.extras.cli import main
from envgen_nb.frames import frames as module
from envgen_nb.frames.frames import frames, read_worlds, split_of
from envgen_nb.frames.masks import find_objects
from envgen_nb.frames.play import Policy, named_policy, play_frames
from envgen_nb.frames.png import encode_png
from envgen_nb.game.examples import Ice, Puck
from envgen_nb.game.simulator import Labels, get_simulator
from envgen_nb.game.world import check_world
from envgen_nb.game.world_files import save_worlds
from envgen_nb.simulators.crafter.reference import MATERIALS, Game, _textures, engine
from envgen_nb.simulators.crafter.symbols import OBJECTS
from envgen_nb.simulators.road.simulator import Wheel

CRAFTER = get_simulator("crafter")
EXTENDED = CRAFTER.world_class("extended")
NIGHT = EXTENDED(start_settings={"time_of_day": "night"}, creature_settings={"zombies": "very common"})
CAVE = EXTENDED(environment_settings={"target_biome": "mountain"},
                start_settings={"near": ["skeleton_tunnel", "ripe_plant"]})
WORLDS = [None, NIGHT, CAVE]
KINDS = ("image", "clean", "classes", "instances")


def decode(cell: dict) -> np.ndarray:
    """A picture of a file, as RGB, or a mask."""
    image = Image.open(io.BytesIO(cell["bytes"]))
    return np.asarray(image if cell["path"].endswith(("classes.png", "instances.png")) else image.convert("RGB"))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != ".lock"}


def rows(folder: Path, split: str = "*") -> list[dict]:
    return [row for path in sorted(folder.glob(f"data/{split}-*.parquet")) for row in pq.read_table(path).to_pylist()]


def texture(name: str, size: int = 7) -> np.ndarray:
    """(7, 7, 3 or 4), rows from above, of the package itself."""
    return _textures().get(name, (size, size)).swapaxes(0, 1)


def tiles(labeller) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Class of each look, pixels that a look covers, and bare ground, from the package's textures alone."""
    names = ["ripe_plant" if name == "plant-ripe" else name and name.partition("-")[0] for name in OBJECTS]
    looks = np.array([labeller.classes.index(name) if name else 0 for name in names])
    covered = np.stack([np.zeros((7, 7), bool) if name is None else texture(name)[..., 3] > 0 for name in OBJECTS])
    bare = np.stack([np.full((7, 7, 3), 127) if name is None else texture(name)[..., :3] for name in MATERIALS])
    return looks, covered, bare.astype(np.uint8)


def test_masks_are_the_state_of_the_engine():
    """10,000 frames at random: classes, objects, pictures and state against symbols and the package's textures."""
    labeller, random = CRAFTER.labeller(), np.random.default_rng(0)
    looks, covered, bare = tiles(labeller)
    counted = np.isin(MATERIALS, ("coal", "iron", "diamond", "table", "furnace"))
    seen, frames_seen = set(), 0
    venv = CRAFTER.make_vec(WORLDS, num_envs=20, seed=5, obs="both", length=120)
    obs, _ = venv.reset()
    while frames_seen < 10_000:
        found = labeller.labels(venv)
        assert (found.image == obs["pixels"]).all()
        material, thing = obs["material"].swapaxes(1, 2), obs["object"].swapaxes(1, 2)      # (N, 7, 9), rows first
        ground = material.repeat(7, 1).repeat(7, 2)
        over = covered[thing].transpose(0, 1, 3, 2, 4).reshape(-1, 49, 63)
        classes = np.where(over, looks[thing].repeat(7, 1).repeat(7, 2), ground)
        assert (found.classes[:, :49, :63] == classes).all()
        objects = over | (counted[ground] & ~(thing > 0).repeat(7, 1).repeat(7, 2))
        assert ((found.instances[:, :49, :63] > 0) == objects).all() and not found.instances[:, 49:].any()
        assert (found.instances.reshape(20, -1).max(1) == ((thing > 0) | counted[material]).sum((1, 2))).all()
        plain = bare[material].transpose(0, 1, 3, 2, 4, 5).reshape(-1, 49, 63, 3)
        drawn_over = (found.clean[:, :49, :63] != plain).any(-1)
        assert (drawn_over <= over).all() and drawn_over.any()
        assert (found.clean[:, 49:] == found.image[:, 49:]).all()
        bag = np.stack([*found.state["vitals"].values(), *found.state["inventory"].values()], 1)
        assert (bag == obs["inventory"]).all() and (found.state["daylight"] == obs["daylight"][:, 0]).all()
        seen |= set(np.unique(found.classes).tolist())
        frames_seen += len(found.image)
        obs, *_ = venv.step(random.integers(0, 17, 20))
    assert len(seen) >= 16 and {labeller.classes.index(name) for name in ("ripe_plant", "skeleton", "zombie")} <= seen


def test_the_clean_picture_is_what_the_package_draws_by_day():
    """The reference engine plays the same night, and is drawn by full daylight, awake."""
    venv, labeller = CRAFTER.make_vec([NIGHT], num_envs=1, seed=[7]), CRAFTER.labeller()
    random = np.random.default_rng(1)
    venv.reset()
    game = Game(NIGHT, 7)
    game.reset()
    dark = 0
    for _ in range(60):
        found, (x, y) = labeller.labels(venv), game._player.pos.tolist()
        assert found.state["position"][0].tolist() == [x, y] and found.state["facing"][0] == {
            (-1, 0): "left", (1, 0): "right", (0, -1): "up", (0, 1): "down"}[tuple(game._player.facing)]
        dark += game._world.daylight < 0.5
        light, game._world.daylight = game._world.daylight, 1.0
        assert (found.clean[0] == game.glance(64)).all()
        game._world.daylight = light
        things = {(thing.pos[0], thing.pos[1]): thing for thing in game._world.objects}
        for x, y, health in zip(*(found.objects[name][0] for name in ("x", "y", "health")), strict=True):
            if (x, y) in things:
                assert things[x, y].health == health
        action = int(random.integers(1, 6))
        venv.step([action])
        game.advance(action)
        game.skip_picture()
    assert dark > 20 and isinstance(game._local_view, engine.LocalView)


def test_png_is_lossless_and_rle_is_coco():
    random = np.random.default_rng(2)
    for colours in (2, 200, 300, 70_000):
        picture = random.integers(0, 256, (colours, 3), np.uint8)[random.integers(0, colours, (33, 70))]
        assert (np.asarray(Image.open(io.BytesIO(encode_png(picture))).convert("RGB")) == picture).all()
    masks = (random.integers(0, 6, (60, 37, 29)) * (random.random((60, 37, 29)) < 0.4)).astype(np.uint8)
    masks[0], masks[1], masks[2] = 0, 255, 0
    masks[2, -1, -1] = 9
    found = find_objects(masks, masks)
    for n, mask in enumerate(masks):
        there = range(found.offsets[n], found.offsets[n + 1])
        assert found.number[list(there)].tolist() == [k for k in np.unique(mask) if k]
        for k in there:
            runs = coco_mask.encode(np.asfortranarray(mask == found.number[k]).astype(np.uint8))
            assert runs["counts"] == found.text[found.ends[k]:found.ends[k + 1]].tobytes()
            assert coco_mask.toBbox(runs).tolist() == found.bbox[k].tolist() and coco_mask.area(runs) == found.area[k]


@pytest.fixture(scope="module")
def export(tmp_path_factory) -> Path:
    """300 frames in three worlds, played by rules, in several files."""
    folder = tmp_path_factory.mktemp("frames") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SHARD", 70)
        frames(CRAFTER, folder, WORLDS, "scripted", count=300, length=50)
    return folder


def test_frames_come_back_as_they_were_played(export):
    """Parquet without loss: pictures, masks, state, actions and returns against the same episodes played again."""
    found, policy = rows(export), named_policy(CRAFTER, "scripted")
    assert sorted(row["frame"] for row in found) == list(range(300))
    for split, batch in (("train", range(8)), ("test", [9])):
        own = [row for row in found if split_of(row["seed"]) == split]
        number = min(row["episode"] for row in own) // module._ROOM
        shard = [row for row in own if row["episode"] // module._ROOM == number]
        seeds = list(dict.fromkeys(row["seed"] for row in shard))
        worlds = [next(row["world"] for row in shard if row["seed"] == seed) for seed in seeds]
        again = play_frames(CRAFTER, policy, [WORLDS[k] for k in worlds], seeds, 50)
        place = {(seeds[e], s): k for k, (e, s) in enumerate(zip(
            again.columns["episode"], again.columns["step"], strict=True))}
        for row in shard:
            k = place[row["seed"], row["step"]]
            for kind, name in enumerate(KINDS):
                assert (decode(row[name]) == again.take(kind, np.array([k]))[0]).all()
            for name in ("action", "reward", "return_to_go", "terminated", "truncated"):
                assert row[name] == again.columns[name][k]
            assert row["vitals"]["health"] == again.columns["state"]["vitals"]["health"][k]
            names = np.array(CRAFTER.objectives)[again.columns["unlocked"][k]].tolist()
            assert row["achievements"] == names
            world = WORLDS[row["world"]]
            assert json.loads(row["world_settings"]) == (world.settings() if world else {})
        assert {row["seed"] % 10 for row in own} <= set(batch)


def test_coco_has_the_same_objects(export, capsys):
    for split in ("train", "validation", "test"):
        coco = COCO(str(export / f"instances-{split}.json"))
        own = rows(export, split)
        assert sorted(coco.imgs) == [row["frame"] for row in own]
        for row in own:
            mask, left = decode(row["instances"]), decode(row["instances"]).copy()
            assert coco.imgs[row["frame"]]["file_name"] == row["image"]["path"]
            for one in coco.imgToAnns[row["frame"]]:
                pixels = coco.annToMask(one).astype(bool)
                assert (pixels == (mask == one["attributes"]["number"])).all() and pixels.sum() == one["area"]
                assert set(decode(row["classes"])[pixels].tolist()) == {one["category_id"]}
                left[pixels] = 0
            assert not left.any()
    assert [one["name"] for one in coco.loadCats(coco.getCatIds())] == list(CRAFTER.labeller().classes[1:])


def test_datasets_reads_it(export, tmp_path):
    """`load_dataset` without a script and without a network: pictures are pictures, classes have names."""
    from datasets import ClassLabel, load_dataset
    from datasets import Image as ImageFeature
    read = {split: str(export / "data" / f"{split}-*.parquet") for split in ("train", "validation", "test")}
    for data in (load_dataset("parquet", data_files=read, cache_dir=str(tmp_path / "a")),
                 load_dataset(str(export), cache_dir=str(tmp_path / "b"))):             # the splits of the data card
        assert {split: len(part) for split, part in data.items()} == {"train": 240, "validation": 30, "test": 30}
        assert all(isinstance(data["train"].features[name], ImageFeature) for name in KINDS)
        assert isinstance(data["train"].features["action"], ClassLabel)
        assert data["train"].features["action"].names == list(CRAFTER.actions)
        row, own = data["train"][17], rows(export, "train")[17]
        for name in KINDS:
            written = Image.open(io.BytesIO(own[name]["bytes"]))
            written = written.convert("RGB") if name in ("image", "clean") else written       # not a palette's numbers
            assert (np.asarray(row[name]) == np.asarray(written)).all()
        assert row["objects"]["bbox"] == own["objects"]["bbox"]


def test_no_map_of_the_test_is_in_training(export, tmp_path):
    """Not in one data set, and not in two with other worlds and another policy."""
    other = frames(CRAFTER, tmp_path / "other", [CAVE], "random", count=100, length=20, per_episode=4)
    seeds = {split: {row["seed"] for folder in (export, other) for row in rows(folder, split)}
             for split in ("train", "validation", "test")}
    assert sum(map(len, seeds.values())) == len(set.union(*seeds.values()))
    assert all(split_of(seed) == split for split, own in seeds.items() for seed in own)
    maps = {}
    for split, own in seeds.items():
        venv = CRAFTER.make_vec([None], num_envs=len(own), seed=sorted(own), obs="symbols")
        venv.reset()
        maps[split] = {one.tobytes() for one in venv.semantic()}
        assert len(maps[split]) == len(seeds[split])
    assert not maps["train"] & (maps["test"] | maps["validation"]) and not maps["test"] & maps["validation"]
    fresh = frames(CRAFTER, tmp_path / "fresh", [None], count=20, length=20, seed=1)
    assert not {row["seed"] for row in rows(fresh)} & set.union(*seeds.values())


EXPORT = """
import resource, sys, time
from envgen_nb.frames import frames as module
from envgen_nb.simulators.crafter.simulator import Crafter
module.SHARD = 40
limit = int(sys.argv[2])

def progress(done, total):
    if limit and done >= int(sys.argv[3]):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    else:
        time.sleep(0.02)

module.frames(Crafter(), sys.argv[1], [None], "scripted", 400, progress, minari=True, length=60, unique=True)
"""


def export_here(folder: Path) -> dict[str, bytes]:
    """The same export in this process: its files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SHARD", 40)
        frames(CRAFTER, folder, [None], "scripted", 400, minari=True, length=60, unique=True)
    return files(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, bytes]:
    """The files of an export that nothing has stopped."""
    return export_here(tmp_path_factory.mktemp("whole") / "out")


@pytest.mark.parametrize("written, count", [
    ("data/*.parquet", 3), pytest.param("minari/.crafter-train-v0/data/*/part-0.*", 2, marks=pytest.mark.long)])
def test_a_killed_export_goes_on_with_the_same_bytes(whole, tmp_path, written, count):
    process = subprocess.Popen([sys.executable, "-c", EXPORT, tmp_path / "out", "0"])
    while len(list((tmp_path / "out").glob(written))) < count and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    there = {name: data for name, data in files(tmp_path / "out").items() if not re.search(r"(^|/)\.", name)}
    assert 3 < len(there) < len(whole) and all(whole[name] == data for name, data in there.items())
    found = export_here(tmp_path / "out")
    assert {name: found[name] for name in whole} == whole


@pytest.mark.parametrize("frames_before, file", [
    (100, "train-"), pytest.param(500, "crafter/train-v0", marks=pytest.mark.long)])
def test_a_full_disk_leaves_whole_files(whole, tmp_path, frames_before, file):
    done = subprocess.run([sys.executable, "-c", EXPORT, tmp_path / "out", "3000", str(frames_before)],
                          capture_output=True, text=True)
    assert done.returncode and f"cannot write {file}" in done.stderr and "File too large" in done.stderr, done.stderr
    there = files(tmp_path / "out")
    assert 1 < len(there) < len(whole) and all(whole[name] == data for name, data in there.items())
    assert export_here(tmp_path / "out") == whole


def test_minari_reads_the_episodes_without_loss(tmp_path, monkeypatch):
    """What its loader reads is what the game does again with these actions, and what is in the files of frames."""
    out = frames(CRAFTER, tmp_path / "out", WORLDS, "scripted", count=120, minari=True, length=30, per_episode=20)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(out / "minari"))
    for split in ("train", "validation", "test"):
        data = minari.load_dataset(f"crafter/{split}-v0")
        own = {(row["episode"], row["step"]): row for row in rows(out, split)}
        for about, episode in zip(data.storage.get_episode_metadata(data.episode_indices), data, strict=True):
            options, world = about["options"], WORLDS[about["options"]["world"]]
            assert split_of(about["seed"]) == split and json.loads(options["world_settings"]) == (
                world.settings() if world else {})
            venv = CRAFTER.make_vec([world], num_envs=1, seed=[about["seed"]], length=30, episodes=1)
            seen = [venv.reset()[0][0]]
            for step, action in enumerate(episode.actions):
                obs, reward, terminated, truncated, _ = venv.step([action])
                seen.append(obs[0])
                assert (episode.rewards[step], episode.terminations[step], episode.truncations[step]) == (
                    np.float32(reward[0]), terminated[0], truncated[0])
                row = own.pop((options["episode"], step), None)
                if row:
                    for name, pictures in {"image": episode.observations, **episode.infos}.items():
                        assert name not in KINDS or (decode(row[name]) == pictures[step]).all()
                    assert row["vitals"]["food"] == episode.infos["vitals.food"][step]
                    assert row["facing"] == episode.infos["facing"][step]
                    assert row["achievements"] == [name for name in CRAFTER.objectives
                                                   if episode.infos[f"achievements.{name}"][step]]
            assert (episode.observations == np.array(seen)).all() and (terminated | truncated)[0]
            last = CRAFTER.labeller().labels(venv)
            assert all((episode.infos[name][-1] == getattr(last, name)[0]).all() for name in KINDS[1:])
        assert not own
    clone_behaviour(minari.load_dataset("crafter/train-v0"))


def clone_behaviour(data: minari.MinariDataset) -> None:
    """Behaviour cloning (Pomerleau 1989): the network learns to do what was done."""
    seen = torch.tensor(np.concatenate([episode.observations[:-1] for episode in data])).permute(0, 3, 1, 2) / 255
    done = torch.tensor(np.concatenate([episode.actions for episode in data]))
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 8, 4), torch.nn.ReLU(), torch.nn.Flatten(),
                              torch.nn.Linear(16 * 15 * 15, int(data.action_space.n)))
    optimizer, losses = torch.optim.Adam(net.parameters(), 1e-3), []
    for _ in range(60):
        batch = torch.randint(len(seen), (64,))
        losses.append(torch.nn.functional.cross_entropy(net(seen[batch]), done[batch]))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert np.mean([loss.item() for loss in losses[-5:]]) < 0.7 * losses[0].item()


def test_what_is_kept_is_what_was_asked_for(tmp_path):
    def share(folder: Path, name: str) -> float:
        return np.mean([name in row["present"] for row in rows(folder)])

    def export(name: str, **options) -> Path:
        return frames(CRAFTER, tmp_path / name, [None], "scripted", count=200, length=60, **options)

    plain, balanced = export("plain"), export("balanced", balance="class")
    few = export("few", per_episode=3, unique=True)
    rare = [name for name in CRAFTER.labeller().classes if 0 < share(plain, name) < 0.1]
    assert rare and np.mean([share(balanced, name) for name in rare]) > 1.5 * np.mean(
        [share(plain, name) for name in rare])
    episodes = [row["episode"] for row in rows(few)]
    assert max(map(episodes.count, episodes)) == 3
    layouts = [row["layout"] for row in rows(few)]
    assert len(set(layouts)) == len(layouts) and len({row["layout"] for row in rows(plain)}) < 200
    early = export("early", balance="objective")
    assert np.mean([len(row["achievements"]) for row in rows(early)]) > np.mean(
        [len(row["achievements"]) for row in rows(plain)])
    with pytest.raises(ValueError, match="other settings .length."):
        frames(CRAFTER, tmp_path / "plain", [None], "scripted", count=200, length=90)
    with pytest.raises(ValueError, match="is not empty"):
        frames(CRAFTER, tmp_path, [None], count=100)
    with pytest.raises(ValueError, match="balance is one of class, objective, world, not 'colour'"):
        frames(CRAFTER, tmp_path / "new", [None], count=100, balance="colour")


def test_minigrid_says_how_doors_are(tmp_path):
    pytest.importorskip("minigrid")
    found = rows(frames("minigrid", tmp_path / "out", count=200, length=100))
    doors = [(row, k) for row in found for k, one in enumerate(row["objects"]["category"]) if one == 2]
    assert doors and {row["objects"]["state"][k] for row, k in doors} <= {"open", "closed", "locked"}
    for row in found:
        mask = decode(row["instances"])
        assert set(np.unique(mask).tolist()) - {0} == set(row["objects"]["number"])
        assert row["objects"]["category"].count(7) == 1 and row["target"] == "blue ball"


def test_the_worlds_and_the_agent_of_a_run(tmp_path, capsys):
    """On the command line; a second call does nothing, another agent is refused."""
    run = create_run(make_settings(**SMALL, designer="random"), tmp_path / "run")
    list(run_cycles(run.path))
    command = ["frames", "crafter", "--worlds", str(run.path), "--original", "--policy", str(run.path),
               "--frames", "60", "--length", "30", "--out", str(tmp_path / "out")]
    assert main(command) == 0 and "60 frames" in capsys.readouterr().out
    found, designed = rows(tmp_path / "out"), [world for _, world in run.archive()]
    used = {row["world"]: json.loads(row["world_settings"]) for row in found}
    assert used[0] == {} and all(used[k] == designed[k - 1].settings() for k in used if k)
    about = json.loads((tmp_path / "out" / "frames.json").read_text())["policy"]
    assert about["cycle"] == "cycle-2" and str(tmp_path) not in (tmp_path / "out" / "README.md").read_text()
    before = files(tmp_path / "out")
    assert main(command) == 0 and files(tmp_path / "out") == before
    save_worlds(designed, tmp_path / "worlds.json")
    assert read_worlds(CRAFTER, tmp_path / "worlds.json", run.settings.vocabulary) == designed
    capsys.readouterr()
    assert main(["frames", "crafter", "--policy", str(tmp_path), "--out", str(tmp_path / "no")]) == 2
    assert "random, scripted or the folder of a run" in capsys.readouterr().err
    assert main(["frames", "heist", "--out", str(tmp_path / "no")]) == 2


class Seen(Puck):
    def labels(self):
        picture = self.picture()
        puck = (picture == (40, 100, 190)).all(-1).astype(np.uint8)
        return Labels(picture, picture, puck, puck, {}, {})


class SeenIce(Ice):
    game, label_classes = Seen, ("ice", "puck")


def test_continuous_actions_are_those_that_were_played():
    """An agent draws actions beyond the bounds, which the game refuses: they are clipped, as in training."""
    venv = SeenIce().make_vec(num_envs=2)
    learner = PPO(get_preset("vector"), venv.single_observation_space, venv.single_action_space, 0)
    with torch.no_grad():
        learner.policy.log_std.fill_(1.0)
    action = play_frames(SeenIce(), Policy(learner, "vector"), [None, None], [1, 2], 20).columns["action"]
    assert action.shape == (40, 2) and np.abs(action).max() == 1


def test_continuous_actions_are_vectors_of_numbers(tmp_path):
    out = frames(Wheel(), tmp_path / "out", [None], "random", count=20, length=10, per_episode=4)
    actions = [row["action"] for row in pq.read_table(sorted((out / "data").glob("train-*"))[0]).to_pylist()]
    assert len(actions) == 16 and all(len(action) == 2 and -1 <= min(action) <= max(action) <= 1 for action in actions)


def test_worlds_that_start_from_moments_of_an_agent_are_refused(tmp_path):
    world, _ = check_world(CRAFTER.world_class("extended"), {"start_settings": {"start_from": "after collect_iron"}})
    with pytest.raises(ValueError, match="starts from moments of the agent's own episodes"):
        frames(CRAFTER, tmp_path / "out", [None, world], "random", count=20)
