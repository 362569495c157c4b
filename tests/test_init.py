"""`envgen init` writes files to begin from; what it prints runs."""
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from envgen_nb.extras.cli import main

TINY = {"num_cycles": 1, "cycle_steps": 2048, "final_steps": 0, "evaluation_runs": 1, "evaluation_episodes": 2}


def written(kind, capsys):
    assert main(["init", kind]) == 0
    name, command = re.fullmatch(r"written   (\S+)\nrun it    (.+)\n", capsys.readouterr().out).groups()
    return Path(name), command


@pytest.mark.parametrize("kind", ["game", "designer", "learner", "curriculum"])
def test_what_is_written_runs_alone(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file, command = written(kind, capsys)
    assert file.name == f"my_{kind}.py" and command in file.read_text()
    runpy.run_path(str(file), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) >= 1


@pytest.mark.parametrize("kind", ["game", *(pytest.param(one, marks=pytest.mark.long) for one in (
    "designer", "learner", "curriculum", "experiment"))])
def test_the_printed_command_runs(kind, tmp_path, monkeypatch, capsys):
    """At a smaller size."""
    monkeypatch.chdir(tmp_path)
    file, command = written(kind, capsys)
    if kind == "experiment":
        text = re.sub(r"(?m)^(num_cycles|cycle_steps|final_steps) = .*\n", "", file.read_text())
        tiny = "".join(f"{name} = {value}\n" for name, value in TINY.items())
        file.write_text(text.replace('preset = "symbols"\n', f'preset = "symbols"\n{tiny}').replace(
            "[0, 1, 2, 3, 4]", "[0]"))
    else:
        command += "".join(f" -p {name} {value}" for name, value in TINY.items())
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=os.environ | {"PATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
    measured = [*tmp_path.glob("runs/**/cycle-1/evaluation.json")]
    assert len(measured) == (2 if kind == "experiment" else 1)


def test_nothing_is_overwritten(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file, _ = written("designer", capsys)
    file.write_text("mine")
    assert main(["init", "designer"]) == 2 and "stays as it is: envgen init designer" in capsys.readouterr().err
    for answer, text in (("n", "mine"), ("y", "class Weakest")):
        monkeypatch.setattr("builtins.input", lambda question, answer=answer: answer)
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        main(["init", "designer"])
        assert text in file.read_text()
    assert main(["init", "game", "random"]) == 2 and "Python has a module random already" in capsys.readouterr().err
    for name in ("a-b", "class"):
        assert main(["init", "game", name]) == 2 and f"'{name}' is no name for {name}.py" in capsys.readouterr().err
