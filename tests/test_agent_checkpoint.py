"""Checkpoints that were cut, changed, made by others, or could not be written."""

import io
import os
import pickle
import random
import resource
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from envgen_nb.agent.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import train
from envgen_nb.game.examples import Orchard

PRESET = get_preset("symbols", hidden=(16, 16), rollout_steps=16, num_envs=8)


def trained():
    venv = Orchard(8)
    agent = PPO(PRESET, venv.single_observation_space, venv.single_action_space, seed=0)
    train(agent, venv, PRESET.batch)
    return agent, venv


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("checkpoints") / "whole.pt"
    agent, venv = trained()
    save_checkpoint(path, {"agent": agent.state_dict(), "venv": venv.get_state(), "cycle": 3})
    return path, path.read_bytes()


def test_there_and_back(tmp_path):
    state = {"none": None, "yes": True, "int": 2**70, "float": float("inf"), "text": "ä ∑ \x00", "empty": b"",
             "bytes": bytes(range(256)), "list": [1, [2.5]], "tuple": (1, ("a",)), "tensors": {1: torch.arange(3)}}
    save_checkpoint(tmp_path / "a.pt", state)
    loaded = load_checkpoint(tmp_path / "a.pt")
    assert torch.equal(loaded["tensors"].pop(1), state["tensors"].pop(1)) and loaded == state


def test_cut_at_any_length(saved, tmp_path):
    _, whole = saved
    lengths = {0, 1, 2, 3, 4, 30, len(whole) - 1, len(whole) - 2, len(whole) - 22} | set(range(0, len(whole), 997))
    for length in lengths:
        (tmp_path / "cut.pt").write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="cut short"):
            load_checkpoint(tmp_path / "cut.pt")


def test_a_flipped_bit_is_noticed_wherever_it_matters(saved, tmp_path):
    "Some bytes of a zip file mean nothing (padding, times); all others are noticed."
    path, whole = saved
    def plain(state):
        return pickle.dumps({k: v.numpy() for k, v in state["agent"]["policy"].items()}), state["venv"], state["cycle"]
    expected, rng, noticed = plain(load_checkpoint(path)), random.Random(0), 0
    for _ in range(300):
        changed = bytearray(whole)
        changed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        (tmp_path / "flip.pt").write_bytes(changed)
        try:
            assert plain(load_checkpoint(tmp_path / "flip.pt")) == expected
        except CheckpointError:
            noticed += 1
    assert noticed > 150


@given(data=st.binary(max_size=300))
def test_anything_else_is_refused(data, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "noise.pt"
    for content in (data, pickle.dumps(data), b"PK\x03\x04" + data):
        path.write_bytes(content)
        with pytest.raises(CheckpointError):
            load_checkpoint(path)


def test_other_versions_and_other_files(tmp_path):
    ours = {"format": "envgen_nb checkpoint", "version": 2, "state": {}}
    for content, words in [(ours | {"version": 1}, "version 1.*reads version 2"),
                           (ours | {"format": "something"}, "no checkpoint of this program"),
                           ({"format": ours["format"], "version": 2}, "no checkpoint of this program"),
                           ([1, 2], "no checkpoint of this program"), (torch.zeros(3), "no checkpoint")]:
        torch.save(content, tmp_path / "other.pt")
        with pytest.raises(CheckpointError, match=words):
            load_checkpoint(tmp_path / "other.pt")
    with zipfile.ZipFile(tmp_path / "photos.zip", "w") as file:
        file.writestr("cat.txt", "meow")
    for path, words in [(tmp_path / "photos.zip", "another kind of file"), (tmp_path, "cannot read"),
                        (tmp_path / "none.pt", "there is no checkpoint")]:
        with pytest.raises(CheckpointError, match=words):
            load_checkpoint(path)


class Trap:
    def __reduce__(self):
        return os.mkdir, (os.environ["TRAP"],)


def test_nothing_in_a_file_is_run(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAP", str(tmp_path / "it ran"))
    torch.save({"format": "envgen_nb checkpoint", "version": 1, "state": Trap()}, tmp_path / "new.pt")
    torch.save(Trap(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(Trap()))
    for name in ("new", "old", "raw"):
        with pytest.raises(CheckpointError):
            load_checkpoint(tmp_path / f"{name}.pt")
    assert not (tmp_path / "it ran").exists()


@pytest.mark.parametrize("value", [np.float32(1), np.zeros(2), {1, 2}, object(), 1j, torch.nn.Parameter(torch.ones(1))])
def test_what_could_not_be_read_is_not_written(value, tmp_path):
    with pytest.raises(TypeError, match=r"state\['a'\]\[1\]"):
        save_checkpoint(tmp_path / "a.pt", {"a": [0, value]})
    assert list(tmp_path.iterdir()) == []


def test_another_network(saved):
    state = load_checkpoint(saved[0])["agent"]
    venv = Orchard(8)
    other = PPO(get_preset("symbols", hidden=(16, 8), rollout_steps=16, num_envs=8), venv.single_observation_space,
                  venv.single_action_space, seed=0)
    with pytest.raises(CheckpointError, match="preset 'symbols'.*hidden"):
        other.load_state_dict(state)


def test_no_room_left(saved, tmp_path):
    "The disk is full: here, the process may write no file above 4 kB. What was there stays, nothing else appears."
    path, whole = saved
    target = tmp_path / "full.pt"
    target.write_bytes(whole)
    code = ("import sys, torch; from envgen_nb.agent.checkpoint import save_checkpoint\n"
            "try: save_checkpoint(sys.argv[1], {'x': torch.zeros(10_000)})\n"
            "except OSError as error: print(error)\nelse: print('written')")
    done = subprocess.run([sys.executable, "-c", code, str(target)], capture_output=True, text=True, timeout=120,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    assert "cannot write full.pt" in done.stdout and "untouched" in done.stdout, done.stdout + done.stderr
    assert target.read_bytes() == whole and [p.name for p in tmp_path.iterdir()] == ["full.pt"]


def test_a_file_is_what_it_was_when_saved(tmp_path):
    agent, venv = trained()
    save_checkpoint(tmp_path / "a.pt", agent.state_dict())
    before = (tmp_path / "a.pt").read_bytes()
    train(agent, venv, PRESET.batch)
    assert (tmp_path / "a.pt").read_bytes() == before
    buffer = io.BytesIO(before)                                       # it is an ordinary file of PyTorch's
    assert torch.load(buffer, weights_only=True)["state"]["steps"] == PRESET.batch
