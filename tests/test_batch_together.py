"""Runs side by side, and runs that somebody stops: what they leave behind, and what they say."""
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil
import pytest

from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.runs import list_runs
from envgen_nb.experiment.batch import _private_folder
from envgen_nb.game.files import read_jsonl

ENVGEN = Path(sys.executable).with_name("envgen")
TINY = ("-p num_cycles 1 -p num_worlds 2 -p final_steps 0 -p evaluation_runs 1 -p evaluation_episodes 2 "
        "-p threads 1 -p cycle_steps").split()


def start(cwd: Path, *arguments: object) -> subprocess.Popen:
    return subprocess.Popen([ENVGEN, *map(str, arguments)], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def wait_for(what: Callable[[], object], seconds: float = 300) -> None:
    for _ in range(round(seconds / 0.05)):
        if what():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come")


def ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.long
def test_runs_started_together(tmp_path, long):
    """Runs that are started at the same moment in one directory all finish, each in a folder of its own."""
    number = 8 if long else 3
    runs = [start(tmp_path, "run", "crafter", *TINY, 4096, "-p", "seed", k) for k in range(number)]
    told = [run.communicate(timeout=1200) for run in runs]
    assert [run.returncode for run in runs] == [0] * number, told
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    folders = list_runs(tmp_path / "runs")
    assert len(folders) == number == len(list((tmp_path / "runs").iterdir()))
    for folder in folders:
        notebook = nbformat.read(folder / "envgen.ipynb", 4)
        assert f'folder = "{folder}"' in "".join(cell.source for cell in notebook.cells)
        assert RunFolder(folder).finished() and not list(folder.glob(".*.ipynb"))
    assert {RunFolder(folder).settings.seed for folder in folders} == set(range(number))


def test_twenty_folders_in_a_second(tmp_path):
    """Several processes reserve folders at the same time; nobody gets another's."""
    code = ("import sys, time\nfrom pathlib import Path\nfrom envgen_nb.cycle.runs import reserve_folder\n"
            "print('ready', flush=True)\nsys.stdin.readline()\n"
            "print(*[reserve_folder('crafter') for _ in range(5)], flush=True)")
    processes = [subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    reserved = [name for process in processes for name in process.communicate(timeout=120)[0].split()]
    assert len(reserved) == len(set(reserved)) == 20
    assert all((tmp_path / name).is_dir() for name in reserved)


def training(folder: Path) -> None:
    """Wait until a run is in the middle of its training."""
    wait_for(lambda: any(r["event"] == "Training" for r in read_jsonl(folder / "events.jsonl")))


@pytest.mark.parametrize("ways", [{signal.SIGKILL: -9, signal.SIGTERM: 143},
                                  pytest.param({signal.SIGINT: 130, signal.SIGUSR1: 138}, marks=pytest.mark.long)],
                         ids=["killed", "Ctrl-C"])
def test_runs_that_are_stopped(tmp_path, ways):
    """By Ctrl-C or a signal: the kernel ends, nothing is left but the run, and the terminal says how to go on."""
    runs = {how: start(tmp_path, "run", "crafter", *TINY, 2_000_000, "-p", "folder", how.name) for how in ways}
    for how, run in runs.items():
        folder = tmp_path / how.name
        training(folder)
        kernel = int((folder / ".lock").read_text())
        if how == signal.SIGTERM:
            nobody_else_gets(folder)
        run.send_signal(how)
        said = run.communicate(timeout=120)[1]
        assert run.returncode == ways[how], said
        if how != signal.SIGKILL:
            assert f"envgen resume {folder}" in said and "Traceback" not in said, said
            assert (folder / "envgen.ipynb").exists() and not (folder / ".envgen.ipynb").exists()
        wait_for(lambda kernel=kernel: ended(kernel), 60)
        assert RunFolder(folder).evaluation("cycle-0") and not RunFolder(folder).finished()
    assert {path.name for path in tmp_path.iterdir()} == {how.name for how in ways}


def nobody_else_gets(folder: Path) -> None:
    """A run that goes on is refused to others before anything is printed or written."""
    before = (folder / "run.json").read_bytes()
    for command in (["run", "crafter", "-p", "folder", folder, "-p", "seed", 5], ["resume", folder, "--max-calls", 7]):
        refused = start(folder.parent, *command)
        said = refused.communicate(timeout=300)
        assert refused.returncode == 2 and said[0] == "" and len(said[1].splitlines()) == 1, said
        assert f"envgen resume {folder}" in said[1] or f"{folder} is in use by process" in said[1]
    assert (folder / "run.json").read_bytes() == before


def kernels_of(run: subprocess.Popen) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return [child for child in psutil.Process(run.pid).children() if "ipykernel" in child.cmdline()]
    return []


def test_a_run_that_is_stopped_before_it_begins(tmp_path):
    """The kernel ends wherever it was, and the folder that was reserved goes again."""
    run = start(tmp_path, "run", "crafter", *TINY, 4096)
    wait_for(lambda: kernels_of(run))
    kernels = kernels_of(run)
    run.send_signal(signal.SIGTERM)
    said = run.communicate(timeout=120)[1]
    assert run.returncode == 143 and said == "stopped\n", said
    wait_for(lambda: all(ended(kernel.pid) for kernel in kernels), 60)
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.long
def test_a_kernel_that_dies(tmp_path):
    """Out of memory, say: the terminal says so, names the run and how to go on, and the command does."""
    run = start(tmp_path, "run", "crafter", *TINY, 65_536, "-p", "folder", "my run")
    folder = tmp_path / "my run"
    training(folder)
    os.kill(int((folder / ".lock").read_text()), signal.SIGKILL)
    said = run.communicate(timeout=120)[1]
    assert run.returncode == 1 and "died" in said and f"envgen resume '{folder}'" in said, said
    assert "Traceback" not in said
    again = start(tmp_path, "resume", "my run")
    said = again.communicate(timeout=600)
    assert again.returncode == 0 and "Going on with my run" in said[1], said
    assert RunFolder(folder).finished()


def test_what_killed_runs_left_is_removed(tmp_path_factory, monkeypatch):
    """The next run removes the sockets of a run that was killed, and nothing else."""
    place = tmp_path_factory.mktemp("a")
    if len(str(place)) > 60:
        pytest.skip("the folder for temporary files has too long a name for sockets")
    monkeypatch.setattr("tempfile.tempdir", str(place))
    with contextlib.chdir(place):
        for name, files in {"envgen-kernel-12345678": ("kernel.json", "kernel-ipc-1", ".lock"),
                            "envgen-kernel-mine": ("thesis.txt",), "envgen-runs": ("kernel-1",)}.items():
            os.mkdir(name)
            for file in files:
                Path(name, file).touch()
            os.utime(name, (0, 0))
    with _private_folder() as private:
        assert private.parent == place and private.stat().st_mode & 0o077 == 0
        os.utime(private, (0, 0))
        with _private_folder():
            assert private.exists()                             # it is in use
    left = {str(path.relative_to(place)) for path in place.rglob("*")}
    assert left == {"envgen-kernel-mine", "envgen-kernel-mine/thesis.txt", "envgen-runs", "envgen-runs/kernel-1"}


def test_sockets_do_not_lie_deep(tmp_path, monkeypatch):
    """Where the folder for temporary files has a long name, the path of a socket in it would be too long."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("a-long-name" * 8)))
    with _private_folder() as private:
        assert len(str(private / "kernel-ipc-5")) < 100
    assert not private.exists()
