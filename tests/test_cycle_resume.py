"""A run that is killed at random moments, again and again, ends with the bits of one that was not."""
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from device import DEVICE
from states import same

from envgen_nb.agent import on_policy
from envgen_nb.agent.checkpoint import load_checkpoint
from envgen_nb.agent.guards import NotFiniteError
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import num_rollouts
from envgen_nb.cycle import run as run_module
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.events import Training
from envgen_nb.cycle.folder import RunFolder, RunFolderError
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.game.files import FolderInUse, read_jsonl
from envgen_nb.simulators.crafter.vector import CrafterVectorEnv

SMALL = dict(vocabulary="extended", num_cycles=2, num_worlds=2, cycle_steps=24_576, final_steps=6_144,
             evaluation_runs=1, evaluation_episodes=4, threads=1, seed=5, device=DEVICE, deterministic=DEVICE != "cpu")

# Checkpoints after every rollout, so that kills meet many different positions.
GO = """
import sys
from envgen_nb.cycle import run
if __name__ == "__main__":
    run.CHECKPOINT_SECONDS = 0.0
    for event in run.run_cycles(sys.argv[1]):
        print(type(event).__name__, flush=True)
"""


def go(script: Path, folder: Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, script, folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def alive(marker: str) -> list[str]:
    """Command lines of living processes that mention the marker in their environment or arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if marker in (path / "environ").read_text(errors="ignore"):
                found.append((path / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(folder / "checkpoint.pt")["learner"]["policy"]


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "go.py"
    path.write_text(GO)
    return path


def undisturbed(script: Path, folder: Path, **settings) -> Path:
    """A run that nothing disturbed."""
    create_run(make_settings(**SMALL, **settings), folder)
    process = go(script, folder)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory, script):
    return undisturbed(script, tmp_path_factory.mktemp("whole") / "run")


def test_killed_at_random_moments(tmp_path, script, whole, long):
    kill(tmp_path / "run", script, whole, 6 if long else 2)


@pytest.mark.long
def test_killed_while_a_mixture_is_played(tmp_path, script):
    """Where a curriculum has episodes going on in designed worlds and in the original game at every moment."""
    whole = undisturbed(script, tmp_path / "whole", curriculum="constant")
    kill(tmp_path / "run", script, whole, 3, curriculum="constant")


@pytest.mark.long
def test_killed_while_worlds_are_chosen(tmp_path, script):
    """Where the agent plays in order to choose worlds, and the cycle's training is shorter by that."""
    adversarial = {"designer": "adversarial", "designer_options": {"candidates": 6, "episodes": 2}}
    whole = undisturbed(script, tmp_path / "whole", **adversarial)
    kill(tmp_path / "run", script, whole, 3, **adversarial)
    for cycle in ("cycle-1", "cycle-2"):
        assert RunFolder(tmp_path / "run").selection(cycle) == RunFolder(whole).selection(cycle) != []


LEARNERS = {"ppo-memory": {}, "ppo-rare": {"curriculum": "constant"},       # whose episodes a curriculum cuts
            "ad": {"preset": "symbols-long", "preset_options": {"phase_rollouts": 2, "phase_episodes": 8,
                                                              "phase_epochs": 1}},
            "taught": {"learner_options": {"anneal_steps": 20_000, "until_steps": 40_000}}}


@pytest.mark.long
@pytest.mark.skipif(DEVICE == "cpu", reason="is too slow without a GPU")
def test_killed_with_the_largest_network(tmp_path, script):
    """Convolutions in bfloat16, recorded as graphs."""
    whole = undisturbed(script, tmp_path / "whole", preset="paper")
    kill(tmp_path / "run", script, whole, 4, preset="paper")


@pytest.mark.long
@pytest.mark.parametrize("learner", LEARNERS)
def test_killed_whoever_learns(learner, tmp_path, script):
    """What a learner remembers is there again, all of it."""
    settings = {"learner": learner, **LEARNERS[learner]}
    whole = undisturbed(script, tmp_path / "whole", **settings)
    kill(tmp_path / "run", script, whole, 3, **settings)
    states = [load_checkpoint(folder / "checkpoint.pt")["learner"] for folder in (whole, tmp_path / "run")]
    assert same(*states)


def kill(folder: Path, script: Path, whole: Path, times: int, **settings) -> None:
    """A run that is killed so often ends as that one did, and leaves no process behind."""
    rng = random.Random(3)
    create_run(make_settings(**SMALL, **settings), folder)
    kills, marker = 0, f"ENVGEN_TEST_{os.getpid()}_{time.time_ns()}"
    os.environ[marker] = "1"                         # inherited by the run and by all that it starts
    try:
        for _ in range(60):
            process = go(script, folder)
            # The first kills come early, the later ones further along; the last attempts are left alone.
            if kills < times:
                started = process.stdout.readline()
                deadline = time.monotonic() + rng.uniform(0.0, 0.8)
                while time.monotonic() < deadline and process.poll() is None:
                    time.sleep(0.005)
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    kills += 1
                    assert started
                    continue
            output, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
            if RunFolder(folder).finished():
                break
    finally:
        del os.environ[marker]
    assert kills >= 0.8 * times
    assert RunFolder(folder).finished()
    assert same(weights(whole), weights(folder)), f"the weights differ after {kills} kills"
    for cycle in RunFolder(folder).cycles:             # and everything that was measured and logged on the way
        for name in ("prompt.md", "worlds.json"):
            assert RunFolder(folder).text(cycle, name) == RunFolder(whole).text(cycle, name)
        ours, theirs = RunFolder(folder).evaluation(cycle), RunFolder(whole).evaluation(cycle)
        assert ours.to_dict() == theirs.to_dict()
        strip = [{k: v for k, v in record.items() if k != "seconds"} for record in RunFolder(folder).metrics(cycle)]
        assert strip == [{k: v for k, v in r.items() if k != "seconds"} for r in RunFolder(whole).metrics(cycle)]
    for _ in range(100):                             # what a killed run had started ends with it
        if not alive(marker):
            break
        time.sleep(0.1)
    assert not alive(marker)


@pytest.mark.long
def test_polite_stop_loses_nothing(tmp_path, whole):
    """Closing the generator saves the position; going on repeats no rollout."""
    create_run(make_settings(**SMALL), tmp_path / "run")
    steps, stops = [], 0
    while not RunFolder(tmp_path / "run").finished():
        for event in run_cycles(tmp_path / "run"):
            if isinstance(event, Training):
                steps.append(event.done)
                if stops < 3:
                    stops += 1
                    break
    assert steps == sorted(set(steps)), "a rollout was repeated"
    assert same(weights(whole), weights(tmp_path / "run"))


def test_second_process_is_refused(tmp_path, script):
    create_run(make_settings(**SMALL), tmp_path / "run")
    process = go(script, tmp_path / "run")
    process.stdout.readline()                        # Started: it holds the folder now
    try:
        with pytest.raises(FolderInUse, match=str(process.pid)):
            next(run_cycles(tmp_path / "run"))
    finally:
        process.kill()
        process.wait()


def test_finished_run_does_nothing_more(whole):
    before = {p: p.stat().st_mtime_ns for p in whole.rglob("*.pt")}
    assert [type(e).__name__ for e in run_cycles(whole)] == ["Started", "Finished"]
    assert {p: p.stat().st_mtime_ns for p in whole.rglob("*.pt")} == before


def test_what_the_folder_tells(whole):
    run = RunFolder(whole)
    assert run.finished() and list(run.evaluations()) == ["cycle-0", "cycle-1", "cycle-2", "final"]
    assert "0%" in run.text("cycle-2", "prompt.md") and "collect_wood: " in run.text("cycle-2", "prompt.md")
    for cycle in ("cycle-1", "cycle-2"):
        assert len(run.worlds(cycle)) == len(run.purposes(cycle)) == 2
        assert (whole / cycle / "worlds.png").read_bytes().startswith(b"\x89PNG")
        rollouts = num_rollouts(SMALL["cycle_steps"] // 2, get_preset("symbols"))
        assert [r["phase"] for r in run.metrics(cycle)] == ["worlds"] * rollouts + ["original"] * rollouts
    assert {r["phase"] for r in run.metrics("final")} == {"original"}
    assert list((whole / "tensorboard").glob("events.*"))
    names = [record["event"] for record in read_jsonl(whole / "events.jsonl")]
    assert names[0] == "Started" and names[-1] == "Finished" and names.count("Evaluated") == 4
    text = (whole / "run.json").read_text() + (whole / "events.jsonl").read_text()
    assert os.environ["PATH"] not in text            # an allow-list of facts, not the environment
    info = json.loads((whole / "run.json").read_text())
    assert info["threads"] == 1 and ("gpu" in info["machine"]) == (DEVICE != "cpu")


def test_bad_checkpoints_are_explained(tmp_path, whole):
    """A checkpoint cut short or of another version: a clear error, and what was there stays."""
    folder = tmp_path / "run"
    subprocess.run(["cp", "-r", whole, folder], check=True)
    path = folder / "checkpoint.pt"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(RunFolderError, match="checkpoint.pt"):
        list(run_cycles(folder))
    assert path.read_bytes() == data[: len(data) // 2]
    content = torch.load(whole / "checkpoint.pt", weights_only=True)
    torch.save(content | {"version": 999}, path)
    with pytest.raises(RunFolderError, match="999"):
        list(run_cycles(folder))
    with pytest.raises(RunFolderError, match="not a run"):
        list(run_cycles(tmp_path))


@pytest.mark.long
def test_a_full_disk_is_explained(tmp_path, script, whole):
    """The disk fills up in the middle of a run: an error that says so, and the run goes on when there is room again."""
    folder = tmp_path / "run"
    create_run(make_settings(**SMALL), folder)
    limited = ("import resource, runpy, sys; "
               "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY)); "
               f"sys.argv = ['go.py', {str(folder)!r}]; runpy.run_path({str(script)!r}, run_name='__main__')")
    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "cannot write" in done.stderr and "checkpoint.pt" in done.stderr
    assert not list(folder.rglob("*.tmp"))
    process = go(script, folder)                     # room again
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert same(weights(whole), weights(folder))


def test_an_unwritable_folder_is_explained(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        create_run(make_settings(**SMALL), tmp_path / "file" / "run")
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_reward_that_is_no_number_stops_the_run_and_says_where_to_go_on(tmp_path, monkeypatch):
    """The error names step, number and checkpoint; the checkpoint is sound, and the run goes on when the game is."""
    folder = tmp_path / "run"
    create_run(make_settings(**SMALL | {"num_cycles": 1, "final_steps": 0}), folder)
    monkeypatch.setattr(run_module, "CHECKPOINT_SECONDS", 0.0)
    step = CrafterVectorEnv.step

    def broken(venv, actions):
        obs, rewards, *rest = step(venv, actions)
        return obs, rewards * float("nan"), *rest

    with pytest.raises(NotFiniteError, match=r"cycle-1, step 8,192: rewards not finite.*checkpoint.pt, of step "
                                             r"8,192"):
        for event in run_cycles(folder):
            if isinstance(event, Training) and event.done == 8192:
                monkeypatch.setattr(CrafterVectorEnv, "step", broken)
    assert all(weight.isfinite().all() for weight in weights(folder).values())
    monkeypatch.setattr(CrafterVectorEnv, "step", step)
    assert [type(event).__name__ for event in run_cycles(folder)][-1] == "Finished"


def test_threads_are_counted_once_and_written_down(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    create_run(make_settings(**SMALL | {"threads": None}), folder)
    assert json.loads((folder / "run.json").read_text())["threads"] is None
    next(events := run_cycles(folder))
    events.close()
    counted = json.loads((folder / "run.json").read_text())["threads"]
    assert 1 <= counted <= get_preset("symbols").algorithm.microbatches
    monkeypatch.setattr(on_policy, "usable_cores", lambda: 1 / 0)
    next(events := run_cycles(folder))
    events.close()
    assert json.loads((folder / "run.json").read_text())["threads"] == counted


@pytest.mark.skipif(torch.cuda.is_available(), reason="has the device that must be missing")
def test_a_device_that_is_missing_is_refused_before_there_is_a_folder(tmp_path):
    with pytest.raises(ValueError, match="device: cuda is not there"):
        create_run(make_settings(device="cuda"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
