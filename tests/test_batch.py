"""Headless runs and the command line, as their users call them."""
import ctypes
import html
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbconvert import HTMLExporter
from PIL import Image, ImageSequence

import envgen_nb
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.folder import RunFolder, RunFolderError
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.runs import open_run, reserve_folder, runs_folder
from envgen_nb.cycle.settings import RunSettings, SettingsError, load_settings, make_settings
from envgen_nb.designer.prompt import load_templates
from envgen_nb.experiment.batch import (
    _keep_edited,
    find_notebook,
    notebook_parameters,
    play,
    read_parameters,
)
from envgen_nb.extras.check import check_runs, check_settings
from envgen_nb.extras.cli import main
from envgen_nb.results.report import write_report
from envgen_nb.studio.conversation import asked, templates_of
from envgen_nb.studio.play import watched

ROOT = Path(__file__).parent.parent
ENVGEN = Path(sys.executable).with_name("envgen")
TINY = ["-p", "num_cycles", "2", "-p", "num_worlds", "2", "-p", "cycle_steps", "4096", "-p", "final_steps", "0",
        "-p", "evaluation_runs", "2", "-p", "evaluation_episodes", "2"]


def envgen(*arguments, cwd=ROOT, **environment) -> subprocess.CompletedProcess:
    return subprocess.run([ENVGEN, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=600,
                          env=os.environ | environment)


@pytest.fixture
def command(capsys):
    """`envgen` in this process, for commands that start nothing: exit status, and what was said."""
    def run(*arguments) -> subprocess.CompletedProcess:
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as error:
            status = error.code
        return subprocess.CompletedProcess(arguments, status, *capsys.readouterr())
    return run


def obey_modes() -> None:
    """In a new process: root, too, may write only where the mode of a file says so (Linux; capability 1)."""
    if sys.platform == "linux" and os.getuid() == 0:
        ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)                   # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    """One tiny run through papermill that all tests here look at, started in a directory that is read-only."""
    folder, here = tmp_path_factory.mktemp("runs") / "tiny", tmp_path_factory.mktemp("read-only")
    here.chmod(0o555)
    done = subprocess.run([ENVGEN, "run", "crafter", "-p", "folder", folder, *TINY], cwd=here, preexec_fn=obey_modes,
                          env=os.environ | {"OPENAI_API_KEY": "sk-secret-for-the-test"}, capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0, done.stderr
    assert list(here.iterdir()) == []
    (folder.parent / "stdout").write_text(done.stdout)
    (folder.parent / "stderr").write_text(done.stderr)
    return RunFolder(folder)


def test_a_read_only_working_directory(run, tmp_path):
    """The run above finished in one; here: that it was one."""
    tmp_path.chmod(0o555)
    touched = subprocess.run(["touch", "file"], cwd=tmp_path, preexec_fn=obey_modes, capture_output=True)
    if touched.returncode == 0:
        pytest.skip("root may write everywhere here, and cannot give that up")
    refused = subprocess.run([ENVGEN, "run", "crafter", *TINY], cwd=tmp_path, preexec_fn=obey_modes,
                             capture_output=True, text=True, timeout=600)
    assert refused.returncode == 2 and "Permission denied: 'runs'" in refused.stderr, refused.stderr
    assert run.finished() and list(tmp_path.iterdir()) == []


def test_what_the_terminal_shows(run):
    told = (run.path.parent / "stderr").read_text()
    for text in ("Starting tiny", "cycle 1: ", "%, designed worlds · ", "%, original game · ", "steps/s",
                 "Finished in"):
        assert text in told, text
    assert "WARNING" not in told and "Traceback" not in told
    table = (run.path.parent / "stdout").read_text()
    assert all(objective in table for objective in run.simulator.objectives)
    assert re.search(r"score of the policy +[\d.]+ % before, [\d.]+ % after", table)
    assert f"{run.path / 'envgen.ipynb'}" in table and f"{run.path / 'report.html'}" in table


def test_the_executed_notebook(run):
    notebook = nbformat.read(run.path / "envgen.ipynb", 4)
    given = [c for c in notebook.cells if "injected-parameters" in c.metadata.get("tags", [])]
    assert len(given) == 1 and "num_cycles = 2" in given[0].source
    kinds = {kind for cell in notebook.cells for output in cell.get("outputs", []) for kind in output.get("data", {})}
    assert "application/vnd.plotly.v1+json" in kinds and "text/html" in kinds
    assert not [o for c in notebook.cells for o in c.get("outputs", []) if o.output_type == "error"]
    panels = [o.data["text/html"] for c in notebook.cells for o in c.get("outputs", [])
              if "<progress" in str(o.get("data", {}).get("text/html"))]
    assert len(panels) == 1 and "Finished in" in panels[0]        # one panel, in its last state


def test_the_executed_notebook_as_a_page_has_its_figures(run):
    """`nbconvert --to html` knows nothing of plotly's figures: it shows the drawings beside them."""
    page, _ = HTMLExporter().from_filename(run.path / "envgen.ipynb")
    shown = page.partition("score of the policy")[2]
    for text in ("Success after each cycle (%)", "Score in the original game (%)", "Return of an episode",
                 "Mean return of training episodes"):
        assert text in shown, text
    assert ">collect_wood</text>" in shown


def test_the_report_needs_nothing_else(run):
    page = (run.path / "report.html").read_text()
    assert not re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=["']?(?:https?:)?//""", page)
    assert len(page) < 1_000_000 and "<script" not in page and 'name="viewport"' in page
    assert page.count('alt="World 1 of cycle-') == 2              # of two cycles
    assert "collect wood" in page and "This is the designer `rules`" in page and "no interval over seeds" in page
    assert page.count("data:image/webp") >= 6 and page.count("<svg") > 4        # worlds, clips, stills; drawings


def test_the_command_in_the_report_makes_the_same_run(run):
    page = (run.path / "report.html").read_text()
    shown = re.search(r"<code>(envgen run .*?)</code>", page).group(1)
    words = shlex.split(html.unescape(re.sub("<[^>]+>", "", shown)))
    given = list(zip(words[4::3], words[5::3], strict=True))
    assert words[:3] == ["envgen", "run", "crafter"] and set(words[3::3]) == {"-p"}
    known = read_parameters(find_notebook(), [*given, ("simulator", "crafter")])
    made = load_settings(**{name: value for name, value in (notebook_parameters(find_notebook()) | known).items()
                            if name in RunSettings.model_fields})
    assert made == run.settings


def test_a_damaged_run_has_a_report_that_says_what_is_missing(run, tmp_path, capsys):
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", run.path, copy], check=True)
    (copy / "cycle-1" / "evaluation.json").write_bytes(b"\x80")
    (copy / "cycle-1" / "worlds.json").write_text("[")
    (copy / "cycle-2" / "metrics.jsonl").unlink()
    for path in copy.rglob("checkpoint.pt"):
        path.unlink()
    assert main(["report", str(copy)]) == 1
    told, page = capsys.readouterr().err, html.unescape((copy / "report.html").read_text())
    for text in ("evaluation.json is damaged", "worlds.json is damaged", "cycle-2/metrics.jsonl is not there"):
        assert text in told and text in page, text
    assert "This report is not whole" in page and "Cycle 2" in page and "no checkpoint of a measured cycle" in page
    assert "Score over training" not in page                      # of all episodes, and not all are there


def test_a_run_that_has_only_begun_has_a_report(run, tmp_path):
    begun = create_run(run.settings, tmp_path / "begun")
    page = write_report(begun).read_text()
    assert "not finished: cycle 0 of 2" in page and "No cycle has begun yet." in page and "not whole" not in page


def test_the_agent_is_watched_as_it_was_after_each_cycle(run):
    films = watched(run, "cycle-1:1", ["cycle-2", "cycle-0", "random", "rules"], seed=3, steps=25)
    assert [film["who"] for film in films] == ["before training", "after cycle 2", "a player by rules",
                                               "actions at random"]
    for film in films:
        sheet = Image.open(io.BytesIO(film["sheet"]["data"]))
        assert film["steps"] == len(film["chosen"]) == len(film["totals"]) <= 25
        assert sheet.size[0] == film["sheet"]["columns"] * film["sheet"]["width"]
        assert all(1 <= step <= film["steps"] for step in film["reached"].values())
    chances = np.array(films[1]["chances"])
    assert chances.shape == (films[1]["steps"], len(run.simulator.actions)) and abs(chances.sum(1) - 100).max() <= 9
    assert films[2]["values"] is None and films[3]["chances"] is None and films[3]["values"] is None
    json.dumps([{name: part for name, part in film.items() if name not in ("sheet", "seen")} for film in films])
    with pytest.raises(ValueError, match="no such world or agent"):
        watched(run, "cycle-7:1")


def test_each_prompt_is_a_row(run):
    rows = asked(run)
    assert [row.cycle for row in rows] == ["cycle-1", "cycle-2"] and rows[0].prompt == ""        # the kit's own
    assert rows[1].prompt == run.text("cycle-2", "prompt.md") and all(row.score for row in rows)
    first, second = (run.evaluation(f"cycle-{k}").feedback(run.simulator.objectives) for k in (0, 1))
    assert all((one.before.value, one.after.value) == (first[one.objective][0], second[one.objective][0])
               for one in rows[0].moved)
    assert templates_of(run, "cycle-2") == load_templates(run.path / "templates")


@pytest.mark.long
@pytest.mark.parametrize("game", ["minigrid", "heist"])
def test_other_games_have_reports_and_can_be_watched(game, tmp_path):
    pytest.importorskip({"heist": "procgen"}.get(game, game))
    found = create_run(make_settings(simulator=game, num_cycles=2, num_worlds=2, cycle_steps=4096, final_steps=0,
                                     evaluation_runs=1, evaluation_episodes=4, threads=1), tmp_path / "run")
    for _ in run_cycles(found.path):
        pass
    once = RunFolder(found.path, snapshot=True)
    page = write_report(once).read_text()
    assert not once.problems and page.count("data:image/webp") >= 6 and "What changed" in page
    assert [film["who"] for film in watched(found, "cycle-2:1", ["cycle-2"], steps=10)] == ["after cycle 2"]
    assert len(asked(found)) == 2


def test_a_run_is_shared_without_its_agents(run, tmp_path):
    assert main(["share", str(run.path), "--out", str(tmp_path / "run.zip")]) == 0
    with zipfile.ZipFile(tmp_path / "run.zip") as whole:
        names = whole.namelist()
        whole.extractall(tmp_path)
    assert "tiny/report.html" in names and not [one for one in names if one.endswith(".pt") or "/." in one]
    assert RunFolder(tmp_path / "tiny").check().finished() and list(tmp_path.glob(".*")) == []


def test_a_run_is_shared_into_a_folder_and_from_before_1980(run, tmp_path):
    copy = tmp_path / "old"
    shutil.copytree(run.path, copy)
    os.utime(copy / "run.json", (0, 0))
    (tmp_path / "out").mkdir()
    assert main(["share", str(copy), "--out", str(tmp_path / "out")]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["old.zip"]


def test_cells_that_a_person_added_to_the_executed_notebook_stay(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run.path, copy)
    final = copy / "envgen.ipynb"
    _keep_edited(final, find_notebook())
    assert final.exists()                                   # it is as papermill wrote it
    book = nbformat.read(final, 4)
    book.cells.append(nbformat.v4.new_markdown_cell("What I saw."))
    nbformat.write(book, final)
    _keep_edited(final, find_notebook())
    kept, = copy.glob("envgen-edited-*.ipynb")
    assert not final.exists() and "What I saw." in kept.read_text()


def test_a_folder_with_another_run_is_no_answer(run):
    """The same call goes on with it; other settings, or another game, are refused."""
    assert envgen_nb.run(folder=run.path, num_cycles=2, designer="rules").finished()
    for given, said in (({"seed": 7}, "seed = 0, not 7"),
                        ({"simulator": "heist"}, "simulator = 'crafter', not 'heist'")):
        with pytest.raises(SettingsError, match=said):
            envgen_nb.run(folder=run.path, **given)


def test_a_shared_run_replaces_no_file_that_was_not_named(run, tmp_path, capsys):
    copy = tmp_path / "v0.2"
    subprocess.run(["cp", "-r", run.path, copy], check=True)
    (tmp_path / "v0.2.zip").write_text("mine")
    assert main(["share", str(copy)]) == 0 and "v0.2-2.zip" in capsys.readouterr().out
    assert zipfile.is_zipfile(tmp_path / "v0.2-2.zip")
    assert (tmp_path / "v0.2.zip").read_text() == "mine"


def test_no_key_anywhere(run):
    for path in run.path.rglob("*"):
        if path.is_file():
            assert b"sk-secret-for-the-test" not in path.read_bytes(), path


def test_the_report_escapes_what_others_wrote(run, tmp_path):
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", run.path, copy], check=True)
    (copy / "cycle-1" / "reply.md").write_text("<script>alert(1)</script>")
    (copy / "cycle-1" / "purposes.json").write_text('["<img src=x onerror=alert(1)>", "b"]')
    page = write_report(RunFolder(copy), tmp_path / "page.html").read_text()
    assert "<script>alert" not in page and "<img src=x" not in page


@pytest.mark.parametrize(("given", "said"), [
    (("sead", "3"), "no parameter 'sead'"), (("seed", "abc"), "valid integer"), (("seed", "-1"), "greater than"),
    (("mixture_ratio", "2"), "less than"), (("preset", "huge"), "no preset"),
    (("agent", "huge"), "no preset"), (("designer", "oracle"), "no designer is"),
    (("device", "gpu"), "device: .gpu. is no device"), (("designer_options", '{"modle": "x"}'), "no setting modle"),
    (("designer_options", "[1]"), "valid dictionary"), (("deterministic", "maybe"), "valid boolean"),
    (("templates", "nowhere"), "nowhere")])
def test_wrong_parameters_are_refused_at_once(given, said, tmp_path, command):
    with pytest.raises(ValueError, match=said):
        read_parameters(find_notebook(), [given])
    for how in (command, envgen) if given[0] == "sead" else (command,):
        done = how("run", "crafter", "-p", "folder", tmp_path / "run", "-p", *given)
        assert done.returncode == 2 and re.search(said, done.stderr) and not (tmp_path / "run").exists()


def test_json_that_is_none_is_said_to_be_none(command):
    for text in ('{"model": x}', "model=x"):
        done = command("run", "crafter", "-p", "designer_options", text)
        assert done.returncode == 2 and f"designer_options: {text!r} is no JSON" in done.stderr, done.stderr


def test_a_parameter_is_no_option(command):
    done = command("run", "crafter", "--num-cycles", "3")
    assert done.returncode == 2 and done.stderr.endswith("is given like this: -p num_cycles 3\n")
    assert command("check", "--bogus").stderr.endswith("unrecognized arguments: --bogus\n")


def test_the_help_of_run_names_its_parameters(command):
    told = command("run", "--help").stdout
    named = set(re.findall(r"^  (\w+) ", told, re.MULTILINE))
    assert set(notebook_parameters(find_notebook())) - {"simulator"} <= named


@pytest.mark.parametrize(("line", "status", "shown"), [
    ("{} prompt crafter | true", 141, "^$"),                                                      # nobody reads
    ("PYTHONIOENCODING=ascii {} prompt crafter --templates nowhere-\u2192", 2, r"nowhere-"),
    ("PYTHONIOENCODING=ascii {} worlds crafter {folder}/worlds.json", 1, r'"w\?\?d" is not allowed'),
    ("{} worlds crafter {folder}/worlds.json 2>&-", 1, "^$"), ("{} --version <&- 2>&-", 0, "^envgen_nb [0-9.]+\n$")])
def test_pipes_encodings_and_closed_streams(line, status, shown, tmp_path):
    (tmp_path / "worlds.json").write_text('[{"environment_settings": {"tree_rarity": "w\u2192\u2192d"}}]')
    line = line.format(ENVGEN, folder=tmp_path)
    done = subprocess.run(["bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True)
    assert done.returncode == status and "Traceback" not in done.stderr and "Exception" not in done.stderr, done.stderr
    assert re.search(shown, done.stdout + done.stderr), done


def test_worlds_say_nothing_of_what_is_not_there(tmp_path, command):
    (tmp_path / "worlds.json").write_text("[{}]")
    assert "None" not in command("worlds", "crafter", tmp_path / "worlds.json").stdout


def test_settings_are_looked_for_upwards(tmp_path, monkeypatch):
    """As the kernel of a notebook in a folder of its own does: the model and the runs are those of the terminal."""
    ini = "[designer]\nname = openai\nmodel = mine\nbase_url = http://localhost:1/v1\n"
    (tmp_path / "settings.ini").write_text(ini)
    (tmp_path / "lab").mkdir()
    for place, runs in ((tmp_path, Path("runs")), (tmp_path / "lab", tmp_path / "runs")):
        monkeypatch.chdir(place)
        settings = load_settings()
        assert (settings.designer, settings.designer_options["model"]) == ("openai", "mine") and runs_folder() == runs
    assert open_run("", designer="none").path.parent == tmp_path / "runs" and list(Path().iterdir()) == []
    said = "".join(f"{one.name}: {one.text}\n" for found in (check_settings({}), check_runs()) for one in found)
    assert f"settings: {tmp_path / 'settings.ini'}: preset" in said and f"folder: {tmp_path / 'runs'} can" in said


def test_parameters_are_settings():
    names = notebook_parameters(find_notebook())
    assert set(names) == {"folder", *RunSettings.model_fields}
    read = read_parameters(find_notebook(), [("seed", "3"), ("designer", "none"), ("mixture_ratio", "1"),
                                                      ("deterministic", "True"), ("max_calls", "null")])
    assert read == {"seed": 3, "designer": "none", "mixture_ratio": 1, "deterministic": True, "max_calls": None}


@pytest.mark.long
def test_a_failing_cell_fails_the_command(tmp_path):
    """Replies run out: the exit status says so, the reason is shown, the notebook with the error is kept."""
    (tmp_path / "replies").mkdir()
    (tmp_path / "replies" / "1.md").write_text("I would rather not.")
    options = json.dumps({"files": str(tmp_path / "replies")})
    done = envgen("run", "crafter", "-p", "folder", tmp_path / "run", "-p", "designer", "replay",
                  "-p", "designer_options", options, *TINY)
    assert done.returncode == 1
    assert f"envgen resume {tmp_path / 'run'}" in done.stderr and f"{tmp_path / 'run' / 'envgen.ipynb'}" in done.stderr
    notebook = nbformat.read(tmp_path / "run" / "envgen.ipynb", 4)
    assert [o for c in notebook.cells for o in c.get("outputs", []) if o.output_type == "error"]
    assert RunFolder(tmp_path / "run").rejected("cycle-1") == ["I would rather not."]


def test_run_leaves_what_is_there_alone(run, tmp_path, command):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    done = command("run", "crafter", "-p", "folder", tmp_path / "mine", *TINY)
    assert done.returncode == 2 and "not empty" in done.stderr
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    assert command("resume", tmp_path / "mine").returncode == 2
    with pytest.raises(RunFolderError, match="not empty"):
        open_run(tmp_path / "mine")


def test_worlds_command(tmp_path, command):
    mountain = {"target_biome": "mountain", "coal_rarity": "very_common", "iron_rarity": "default"}
    good = [{"environment_settings": mountain, "inventory_settings": {"wood": 5}},
            {"environment_settings": {}, "inventory_settings": {}}]
    (tmp_path / "good.json").write_text(json.dumps(good))
    done = envgen("worlds", "crafter", tmp_path / "good.json", "--out", tmp_path / "worlds.png")
    assert done.returncode == 0 and "Environment 2" in done.stdout, done.stderr
    assert np.asarray(Image.open(tmp_path / "worlds.png")).std() > 10
    refused = command("worlds", "crafter", tmp_path / "good.json", "--out", tmp_path / "good.json")
    assert refused.returncode == 2 and "does not end in .png" in refused.stderr
    assert json.loads((tmp_path / "good.json").read_text()) == good
    (tmp_path / "bad.json").write_text(json.dumps([{"environment_settings": {"tree_rarity": "plenty"},
                                                    "inventory_settings": {"wood": 12}}]))
    done = command("worlds", "crafter", tmp_path / "bad.json")
    assert done.returncode == 1 and done.stdout == ""
    assert "Environment 1, environment_settings.tree_rarity" in done.stderr and "0-9" in done.stderr
    missing = command("worlds", "crafter", tmp_path / "none.json")
    assert missing.returncode == 2 and "none.json" in missing.stderr and "Traceback" not in missing.stderr


def test_prompt_command(command):
    done = command("prompt", "crafter", "--num-worlds", "3")
    assert done.returncode == 0
    assert "collect_wood" in done.stdout and "target_biome: grassland | mountain | beaches | natural" in done.stdout
    assert "{{" not in done.stdout


@pytest.mark.long
def test_play_command(run, tmp_path, command):
    done = envgen("play", run.path, "--out", tmp_path / "clip.gif", "--steps", "30", "--world", "2:1",
                  "--cycle", "1")
    assert done.returncode == 0 and "return" in done.stdout, done.stderr
    frames = [np.asarray(f.convert("RGB")) for f in ImageSequence.Iterator(Image.open(tmp_path / "clip.gif"))]
    assert 10 < len(frames) <= 31 and any((a != frames[0]).any() for a in frames[1:])
    for wrong in (["--out", tmp_path / "clip.mp4"], ["--out", tmp_path / "c.gif", "--world", "cycle-9:1"],
                  ["--out", tmp_path / "c.gif", "--cycle", "cycle-9"], ["--out", tmp_path / "c.gif", "--steps", "0"]):
        refused = command("play", run.path, *wrong)
        assert refused.returncode == 2 and "Traceback" not in refused.stderr
    told = [play(run, tmp_path / "a.gif", steps=20, seed=3), play(run, tmp_path / "b.gif", steps=20, seed=3)]
    assert told[0] == told[1]                                     # the same episode twice


def test_help_is_complete(command):
    top = command("--help").stdout
    for name in ("run", "resume", "report", "worlds", "prompt", "play"):
        assert re.search(rf"^\s+{name}\s", top, re.M)
        text = command(name, "--help").stdout
        options = re.findall(r"^  (-{1,2}[\w-]+|\w+)(?:[ ,].*)?$", text, re.M)
        assert options and "usage: envgen" in text
    assert command().returncode == 2 and command("fly").returncode == 2


def test_a_run_that_cannot_be_made_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = reserve_folder("crafter"), reserve_folder("crafter")
    assert first != second and first.is_dir() and second.is_dir()
    with pytest.raises(ValueError, match="cuda:99"):
        open_run("", device="cuda:99")
    assert sorted(Path("runs").iterdir()) == sorted([first, second])
    done = envgen("run", "crafter", "-p", "device", "cuda:99", cwd=tmp_path)
    assert done.returncode == 2 and "cuda:99" in done.stderr
    assert sorted(Path("runs").iterdir()) == sorted([first, second])
    assert open_run(first).path == first                          # an empty folder will do


def test_the_notebook_of_a_run_is_the_package_s(tmp_path, monkeypatch):
    """One in the working directory may have come with a run that somebody sent."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nbs" / "lab").mkdir(parents=True)
    (tmp_path / "nbs" / "lab" / "envgen.ipynb").write_text("{}")
    assert find_notebook() == ROOT / "envgen_nb" / "lab" / "envgen.ipynb"
    monkeypatch.setattr(envgen_nb, "__file__", str(tmp_path / "nowhere" / "__init__.py"))
    with pytest.raises(SettingsError, match="there is no notebook .*nowhere/lab/envgen.ipynb"):
        find_notebook()


@pytest.mark.long
def test_a_run_that_is_renamed_is_told_and_not_made_again(tmp_path):
    process = subprocess.Popen([ENVGEN, "run", "crafter", "-p", "folder", str(tmp_path / "run"), "-p", "final_steps",
                                "1000000"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    events = tmp_path / "run" / "events.jsonl"
    while not (events.exists() and "Training" in events.read_text()):
        assert process.poll() is None
        time.sleep(0.1)
    events.parent.rename(tmp_path / "renamed")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2 and re.search(r"envgen: .*run was renamed, deleted or replaced", errors), errors
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["renamed"]
    assert not RunFolder(tmp_path / "renamed").finished()
