"""Where people work: folders that cannot be made, file systems without locks, homes that cannot be written."""
import asyncio
import errno
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from tornado.web import HTTPError

from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.runs import list_runs, open_run, reserve_folder
from envgen_nb.cycle.settings import SettingsError, make_settings, read_ini
from envgen_nb.experiment.file import parse_experiment
from envgen_nb.experiment.folder import open_experiment
from envgen_nb.experiment.places import make_place
from envgen_nb.experiment.schedule import run_experiment
from envgen_nb.extras.check import check_jupyter, check_runs
from envgen_nb.extras.cli import main
from envgen_nb.extras.jupyter import STORED, ReadOnlyKit

PLAIN = {"designer": "none", "num_cycles": 1}


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """An empty working directory."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_a_link_to_nothing_is_no_folder_for_runs(here, capsys):
    """Scratch space that was purged: nothing waits for ever, and `check` says what is wrong."""
    (here / "runs").symlink_to(here / "scratch")
    with pytest.raises(OSError, match="runs is a link to .*scratch, which does not exist"):
        reserve_folder("crafter")
    assert main(["run", "crafter", "-p", "designer", "none"]) == 2
    assert "is a link to" in capsys.readouterr().err
    finding, = check_runs()
    assert finding.state == "wrong" and "is a link to" in finding.text
    for make in (lambda: create_run(make_settings(**PLAIN), here / "runs" / "one"),
                 lambda: open_experiment(parse_experiment(EXPERIMENT, here))):
        with pytest.raises(OSError, match="is a link to"):
            make()
    (here / "scratch").mkdir()
    assert reserve_folder("crafter").parent == Path("runs")


EXPERIMENT = """name = "small"
baseline = "one"
seeds = [0, 1]
[arms.one]
designer = "none"
[arms.two]
designer = "none"
num_cycles = 2
"""


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
def test_a_file_system_without_flock(number, here, monkeypatch):
    """Lustre, some NFS: runs are made, held and gone on with, and `check` says so."""
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))
    monkeypatch.setattr("fcntl.flock", refuse)
    assert {finding.name: finding.state for finding in check_runs()}["locks"] == "optional"
    run = create_run(make_settings(**PLAIN, cycle_steps=1024, final_steps=0, evaluation_episodes=1,
                                   evaluation_runs=1, learner="random"), here / "run")
    from envgen_nb.cycle.run import run_cycles
    from envgen_nb.game.files import FolderInUse, hold_folder, holder
    going = run_cycles(run.path)
    next(going)
    assert holder(run.path) == os.getpid()
    with pytest.raises(FolderInUse, match=f"process {os.getpid()}"), hold_folder(run.path):
        pass
    going.close()
    assert holder(run.path) is None
    for _ in run_cycles(run.path):
        pass
    assert RunFolder(run.path).evaluation("cycle-1") is not None


def test_home_and_addresses_in_paths(here, tmp_path, monkeypatch, capsys):
    """`~` is the home folder wherever a path is written, and an address is refused: no folder `~` or `s3:` is made."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (here / "settings.ini").write_text("[runs]\nfolder = ~/runs\n")
    assert reserve_folder("crafter").parent == tmp_path / "home" / "runs"
    assert open_run("~/one", **PLAIN).path == tmp_path / "home" / "one"
    assert main(["report", "~/one"]) == 0 and (tmp_path / "home" / "one" / "report.html").exists()
    (here / "settings.ini").write_text("[runs]\nfolder = s3://bucket/runs\n")
    with pytest.raises(SettingsError, match=r"settings.ini: \[runs\] folder: 's3://bucket/runs' is an address"):
        read_ini()
    (here / "settings.ini").unlink()
    with pytest.raises(ValueError, match="is an address"):
        open_run("s3://bucket/one", **PLAIN)
    capsys.readouterr()
    for words in (["run", "crafter", "-p", "designer", "none", "-p", "folder", "s3://bucket/one"],
                  ["experiment", "paper", "--folder", "s3://bucket/paper"], ["report", "gs://bucket/one"]):
        try:
            status = main(words)
        except SystemExit as error:
            status = error.code
        assert status == 2 and "is an address, not a folder" in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_names_that_are_chosen_for_files_need_no_quotes(here):
    """The folder of a run of one's own game: `package.module:Class` has a colon."""
    assert re.fullmatch(r"coins-Coins-[\d-]+", reserve_folder("coins:Coins").name)
    assert list_runs() == []


TINY = {"num_cycles": 1, "num_worlds": 2, "cycle_steps": 2048, "final_steps": 0, "evaluation_runs": 1,
        "evaluation_episodes": 1, "threads": 1}
ENVGEN = Path(sys.executable).with_name("envgen")
TRAP = "raise SystemExit('code of the working directory was run')\n"


def parameters(**settings: object) -> list[str]:
    """Settings as `envgen run` takes them."""
    return [word for name, value in settings.items() for word in ("-p", name, str(value))]


def test_a_sent_folder_runs_no_code_and_braces_and_other_kernels_do_no_harm(tmp_path):
    """`cd sent && envgen resume .`: its modules and its notebook are left alone. Its path has braces, and the kernel
    `python3` that JUPYTER_PATH offers is that of another Python."""
    sent = tmp_path / "a{b}" / "{sent}"
    run = create_run(make_settings(**TINY, learner="random"), sent)
    for name in ("plotly", "secrets", "torch", "ipykernel"):
        (sent / f"{name}.py").write_text(TRAP)
    (sent / "nbs" / "lab").mkdir(parents=True)
    (sent / "nbs" / "lab" / "envgen.ipynb").write_text(json.dumps(nbformat.v4.new_notebook(cells=[
        nbformat.v4.new_code_cell(TRAP, metadata={"tags": ["parameters"]})])))
    kernel = tmp_path / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps({"argv": ["/bin/false"], "display_name": "3", "language": "python"}))
    environment = os.environ | {"JUPYTER_PATH": str(tmp_path / "jupyter"), "PYTHONPATH": ""}
    done = subprocess.run([ENVGEN, "resume", "."], cwd=sent, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert run.evaluation("cycle-1") is not None and (sent / "envgen.ipynb").exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
        found = {finding.name: finding for finding in check_jupyter()}
    assert found["kernel"].state == "ok" and found["kernel python3"].state == "optional"
    assert "/bin/false" in found["kernel python3"].text


def test_sharing_writes_nothing_into_the_run(tmp_path):
    """It may be somebody else's, and read-only."""
    run = create_run(make_settings(**TINY, learner="random"), tmp_path / "run")
    (run.path / "report.html").write_text("theirs")
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in run.path.rglob("*") if path.is_file()}
    assert main(["share", str(run.path), "--out", str(tmp_path / "mine.zip")]) == 0
    assert {path: (path.stat().st_mtime_ns, path.read_bytes())
            for path in run.path.rglob("*") if path.is_file()} == before
    with zipfile.ZipFile(tmp_path / "mine.zip") as packed:
        assert packed.namelist().count("run/report.html") == 1 and b"EnvGen run" in packed.read("run/report.html")


def test_an_experiment_runs_no_code_of_the_working_directory(here):
    settings = "\n".join(f"{name} = {value}" for name, value in TINY.items())
    text = EXPERIMENT.replace("[arms.one]", f'[settings]\nlearner = "random"\n{settings}\n[arms.one]')
    folder = open_experiment(parse_experiment(text, here), "small")
    (here / "secrets.py").write_text(TRAP)
    place = make_place("local", 1)
    changes = [change.what for change in run_experiment(folder, place, [("one", 0)]) if change]
    assert changes == ["started", "done"], (here / "small" / "one" / "seed-0.log").read_text()


def test_the_kits_notebooks_can_be_read_and_nothing_else():
    """Not saved, renamed or deleted, and nothing is put beside them."""
    kit, page = ReadOnlyKit(root_dir=str(STORED.parent)), "nbs/00_envgen.ipynb"
    for call in (kit.delete_file(page), kit.rename_file(page, "other.ipynb"), kit.rename_file("mine.ipynb", page),
                 kit.save({"type": "notebook"}, page)):
        with pytest.raises(HTTPError, match="read-only here"):
            asyncio.run(call)
    assert (STORED / "00_envgen.ipynb").exists() and not kit.is_writable(page)
