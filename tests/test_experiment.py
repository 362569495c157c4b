"""Experiments: killed anywhere, the table is the same; what is there is not run twice; limits hold for all runs."""
import contextlib
import csv
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
import records

from envgen_nb.agent.train import num_rollouts
from envgen_nb.cycle.runs import load_agent
from envgen_nb.cycle.settings import new_curriculum
from envgen_nb.designer.prompt import load_templates
from envgen_nb.designer.reply import parse_reply
from envgen_nb.experiment.file import ExperimentError, parse_experiment, read_experiment
from envgen_nb.experiment.folder import ExperimentFolder, chosen, open_experiment, write_table
from envgen_nb.experiment.places import Local, gpu_slots
from envgen_nb.experiment.run import TAKEN_OVER, command, note_failure, spent, take
from envgen_nb.experiment.schedule import run_experiment
from envgen_nb.game.episodes import Episodes
from envgen_nb.game.files import FolderInUse, holder, write_text
from envgen_nb.game.simulator import get_simulator
from envgen_nb.studio.experiment_view import board_html, results_text, state_line

ENVGEN = Path(sys.executable).with_name("envgen")
LAB = Path(__file__).parent.parent / "nbs" / "lab" / "experiment.ipynb"
FILE = """name = "small"
question = "Does it end as it should?"
baseline = "plain"
seeds = {seeds}
{more}
[settings]
num_cycles = 2
num_worlds = 2
cycle_steps = {steps}
final_steps = 0
evaluation_runs = 1
evaluation_episodes = 2
preset_options = {{num_envs = 8, rollout_steps = 16, minibatches = 2}}
[arms.plain]
designer = "none"
{arms}
"""


def written(folder: Path, seeds: list[int], arms: str = "[arms.rules]", steps: int = 8192, more: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "small.toml"
    path.write_text(FILE.format(seeds=seeds, arms=arms, steps=steps, more=more))
    return path


def table(folder: Path) -> list[dict[str, str]]:
    """The table without what depends on the clock."""
    rows = list(csv.DictReader((folder / ExperimentFolder.TABLE).read_text().splitlines()))
    return [{name: value for name, value in row.items() if not name.startswith("seconds")} for row in rows]


def start(path: Path, folder: Path, *more) -> subprocess.Popen:
    return subprocess.Popen([ENVGEN, "experiment", path, "--folder", folder, "--jobs", "2", *more],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(path: Path, folder: Path, *more) -> str:
    process = start(path, folder, *more)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return output


@pytest.fixture(scope="module")
def whole(tmp_path_factory, long) -> tuple[Path, Path, str]:
    """An experiment that nothing disturbed: its file, its folder, and what was printed."""
    place = tmp_path_factory.mktemp("whole")
    path = written(place, [0, 1, 2, 3] if long else [0])
    return path, place / "out", finish(path, place / "out")


def test_it_is_run_once_and_told(whole):
    path, folder, output = whole
    assert "to do, 0 done already" in output and "plain, seed 0 started" in output and "rules, seed 0 done" in output
    assert "could be shown" in output or "than plain" in output or "fewer than 5 allow no conclusion" in output
    rows, experiment = table(folder), read_experiment(path)
    assert [(row["arm"], int(row["seed"])) for row in rows] == [
        (arm, seed) for arm in experiment.arms for seed in experiment.seeds]
    report = (folder / "report.html").read_text()
    assert "Does it end as it should?" in report and 'src="http' not in report and "success" not in report[:200]
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*.json*")}
    again = finish(path, folder)
    assert f"0 runs to do, {len(rows)} done already" in again and "started" not in again
    assert before == {file: file.stat().st_mtime_ns for file in folder.rglob("*.json*")} and table(folder) == rows


@pytest.mark.long
def test_killed_at_random_moments(whole, tmp_path, long):
    """The scheduler is killed, and single runs are; what goes on in between goes on."""
    path, reference, _ = whole
    folder, rng, killed = tmp_path / "out", random.Random(7), {"scheduler": 0, "run": 0}
    for attempt in range(30):
        process = start(path, folder)
        for what in ("run", "scheduler") if attempt < (5 if long else 1) else ():
            hit = False
            while not hit and process.poll() is None:                     # until somebody works on a run
                time.sleep(rng.uniform(0.05, 0.5))
                working = [pid for run in folder.glob("*/seed-?") if (pid := holder(run))]
                if working:
                    os.kill(process.pid if what == "scheduler" else rng.choice(working), signal.SIGKILL)
                    killed[what] += 1
                    hit = True
        process.communicate(timeout=600)
        if all(state.state == "done" for state in ExperimentFolder(folder).states()):
            break
    assert min(killed.values()) >= (3 if long else 1), killed
    assert table(folder) == table(reference)


def test_arms_and_seeds_can_be_added_and_nothing_else_changed(whole, tmp_path):
    path, folder, _ = whole
    rows = table(folder)
    more = path.read_text().replace("seeds = [0", "seeds = [9, 0")
    added = parse_experiment(more, path.parent)
    copy = tmp_path / "out"
    subprocess.run(["cp", "-r", folder, copy], check=True)
    opened = open_experiment(added, copy)
    assert [state.seed for state in opened.states() if state.state == "waiting"] == [9, 9]
    with pytest.raises(ExperimentError, match="cycle_steps of the arm 'plain' was 8192"):
        open_experiment(parse_experiment(more.replace("= 8192", "= 2048"), path.parent), copy)
    for run in copy.glob("*/seed-?"):                                      # what takes space may go
        subprocess.run(["rm", "-r", run], check=True)
    assert [change for change in run_experiment(ExperimentFolder(copy), Local(jobs=1), [("plain", 0)]) if change] == []
    assert table(copy) == rows


@pytest.mark.long
def test_a_run_that_fails_is_resumed_twice_and_left(tmp_path):
    """A designer whose replies run out; the other arm is not stopped by it."""
    (tmp_path / "replies").mkdir()
    (tmp_path / "replies" / "reply-1.md").write_text("I have no worlds for you.")
    arms = '[arms.stuck]\ndesigner = "replay"\nmax_reasks = 0\ndesigner_options = {files = "./replies"}'
    path = written(tmp_path, [0], arms, steps=512)
    process = start(path, tmp_path / "out")
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 1 and output.count("stuck, seed 0 resumed") == 2, output
    assert "stuck, seed 0 left: the designer gave no usable worlds" in output and "plain, seed 0 done" in output
    folder = ExperimentFolder(tmp_path / "out")
    state = folder.state("stuck", 0)
    assert state.state == "failed" and state.attempts == 3 and "no usable worlds" in state.text
    assert "no usable worlds" in (tmp_path / "out" / "report.html").read_text()
    reply = folder.run("stuck", 0) / "designer" / "replies" / "1-reply-1.md"      # what the run reads is mended there
    reply.write_text('[{"environment_settings": {}}, {"environment_settings": {}}]')
    for run in folder.run("stuck", 0).glob("cycle-1/re*"):
        run.unlink()
    reply.with_name("2-reply-2.md").write_text(reply.read_text())
    assert "stuck, seed 0 done" in finish(path, tmp_path / "out")
    summary = folder.beside("stuck", 0, folder.SUMMARY).read_text()
    assert '"files": "./replies"' in summary and str(tmp_path) not in summary      # it can be passed on


@pytest.mark.long
def test_it_is_stopped_and_goes_on(tmp_path):
    """Ctrl-C: the runs stop, nothing has failed, and the terminal says how to go on. Then only the last checkpoint is
    kept of each run, which is enough to play."""
    path = written(tmp_path, [0], steps=200_000, more='checkpoints = "last"')
    process = start(path, tmp_path / "out")
    while not (tmp_path / "out" / "experiment.toml").exists():
        time.sleep(0.1)
        assert process.poll() is None
    opened = ExperimentFolder(tmp_path / "out")
    while not opened.state("plain", 0).done:
        time.sleep(0.1)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and "the same command goes on with it" in output and "Traceback" not in output
    assert [state.state for state in opened.states()] == ["waiting", "waiting"] and opened.state("plain", 0).done
    assert all(holder(run) is None for run in (tmp_path / "out").glob("*/seed-0"))
    for run in (opened.run(arm, 0) for arm in opened.experiment.arms):     # as if it had been a short one
        if (run / "run.json").exists():
            shutil.rmtree(run)
    short = path.read_text().replace("200000", "1024")
    path.write_text(short)
    finish(path, tmp_path / "out")
    for arm in opened.experiment.arms:
        kept = [file.parent.name for file in opened.run(arm, 0).rglob("checkpoint.pt")]
        assert kept == ["cycle-2"] and load_agent(opened.run(arm, 0)).steps > 0


@pytest.mark.long
def test_a_stopped_run_of_a_game_that_the_file_names_by_its_class_is_resumed(tmp_path):
    game = 'simulator = "envgen_nb.simulators.minigrid_tasks:DoorKey"'
    folder = open_experiment(read_experiment(written(tmp_path, [0], game, steps=16_384)), tmp_path / "out")
    first = subprocess.Popen(command(folder, "plain", 0, take(folder, "plain", 0), 1))
    while not (folder.run("plain", 0) / "cycle-1" / "metrics.jsonl").exists():
        time.sleep(0.1)
        assert first.poll() is None
    first.terminate()
    assert first.wait(30) == 143
    assert subprocess.run(command(folder, "plain", 0, take(folder, "plain", 0), 1)).returncode == 0
    assert folder.state("plain", 0).state == "done"


@pytest.mark.long
def test_a_run_that_was_taken_over_stops(tmp_path):
    folder = open_experiment(read_experiment(written(tmp_path, [0], steps=400_000)), tmp_path / "out")
    first = subprocess.Popen(command(folder, "plain", 0, take(folder, "plain", 0), 1))
    while not (folder.run("plain", 0) / "cycle-1" / "metrics.jsonl").exists():
        time.sleep(0.1)
        assert first.poll() is None
    assert folder.state("plain", 0).state == "running"
    word = take(folder, "plain", 0)                                       # its machine was cut off, say
    assert first.wait(20) == TAKEN_OVER and not folder.failure("plain", 0)
    second = subprocess.Popen(command(folder, "plain", 0, word, 1))
    while holder(folder.run("plain", 0)) != second.pid:
        time.sleep(0.1)
        assert second.poll() is None
    second.terminate()
    assert second.wait(30) == 143 and not folder.failure("plain", 0)
    assert folder.state("plain", 0).state == "waiting" and folder.state("plain", 0).done > 0


@pytest.mark.long
def test_limits_hold_for_all_runs_together(tmp_path, monkeypatch):
    """Two runs of two cycles want four answers; three may be asked for, one at a time, and no key is in any file."""
    from chat_server import ChatServer, answer
    monkeypatch.setenv("A_KEY", "sk-very-secret")
    worlds = json.dumps([{"environment_settings": {}}] * 2)
    with ChatServer(answer(f"```json\n{worlds}\n```")) as server:
        arms = ('[arms.asked]\ndesigner = "openai"\ndesigner_options = '
                f'{{model = "small", base_url = "{server.url}", api_key_env = "A_KEY"}}')
        path = written(tmp_path, [0, 1], arms, steps=512, more="max_calls = 3\ncalls_at_once = 1")
        process = start(path, tmp_path / "out", "--arms", "asked", "--trust")
        output, _ = process.communicate(timeout=600)
    assert "about 4 model calls" in output and process.returncode == 1, output
    folder = ExperimentFolder(tmp_path / "out")
    assert spent(folder).calls == 3
    assert sorted(folder.state("asked", seed).state for seed in (0, 1)) == ["done", "failed"]
    assert "the experiment's budget is spent: 3 of 3 (max_calls)" in output and "resumed" not in output
    assert not any(b"sk-very-secret" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_what_changes_under_runs_is_refused(tmp_path):
    """The seed after the last one, once there is another; and all, while runs are going."""
    arms = '[arms.other]\ndesigner = "replay"\ndesigner_options = {files = "./seed-{next_seed}"}'
    for seed in range(4):
        write_text(tmp_path / f"seed-{seed}" / "reply-1.md", "none")
    folder = open_experiment(read_experiment(written(tmp_path, [0, 1], arms)), tmp_path / "out")
    write_text(folder.run("other", 1) / "run.json", "{}")
    with pytest.raises(ExperimentError, match=r"\{next_seed\} was another seed in the run of .* 'other' with seed 1"):
        open_experiment(read_experiment(written(tmp_path, [0, 1, 2], arms)), tmp_path / "out")
    (folder.run("other", 1) / "run.json").unlink()
    changed = read_experiment(written(tmp_path, [0, 1, 2], arms))
    waits = "import sys; from envgen_nb.game.files import hold_folder\nwith hold_folder(sys.argv[1]): print(1); input()"
    with subprocess.Popen([sys.executable, "-uc", waits, folder.path], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(FolderInUse):
            open_experiment(changed, tmp_path / "out")
        assert ExperimentFolder(tmp_path / "out").experiment.seeds == (0, 1)
        assert open_experiment(folder.experiment, tmp_path / "out").path == folder.path      # to look at it
        other.communicate(b"\n")
    assert open_experiment(changed, tmp_path / "out").experiment.seeds == (0, 1, 2)


def test_a_refused_experiment_leaves_nothing(tmp_path):
    for name in ("in/a.json", "b.json"):
        write_text(tmp_path / name, "[{}, {}]")
    arms = ('[arms.a]\ndesigner = "fixed"\ndesigner_options = {worlds = "./a.json"}\n'
            '[arms.b]\ndesigner = "fixed"\ndesigner_options = {worlds = "./../b.json"}')
    with pytest.raises(ExperimentError, match="must be beside"):
        open_experiment(read_experiment(written(tmp_path / "in", [0], arms)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_process_that_cannot_say_why_it_failed_is_tried_again(tmp_path, monkeypatch):
    folder = open_experiment(read_experiment(written(tmp_path, [0])), tmp_path / "out")
    dies = [sys.executable, "-c", "import sys; print('no such library', file=sys.stderr); sys.exit(1)"]
    monkeypatch.setattr("envgen_nb.experiment.schedule.command", lambda *_: dies)
    changes = [change for change in run_experiment(folder, Local(1), [("plain", 0)]) if change]
    assert [change.what for change in changes] == ["started", "failed", "started", "failed", "started", "left"]
    assert "no such library" in changes[-1].text and folder.state("plain", 0).attempts == 3


def test_runs_of_another_scheduler_take_room(tmp_path, monkeypatch):
    folder = open_experiment(read_experiment(written(tmp_path, [0, 1])), tmp_path / "out")
    monkeypatch.setattr(ExperimentFolder, "running", lambda self, arm, seed: seed == 0)
    with contextlib.closing(run_experiment(folder, Local(1), [("plain", 0), ("plain", 1)])) as changes:
        assert [change and (change.what, change.seed) for change, _ in zip(changes, range(4), strict=False)] == [
            ("found", 0), None, None, None]


def test_places():
    assert gpu_slots(["0", "1"], 0.5) == ["0", "1", "0", "1"] and gpu_slots(["0", "1", "2"], 2) == ["0,1"]


def test_to_look_at_an_experiment_imports_no_class_that_it_names(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    written(tmp_path, [0], '[arms.theirs]\ndesigner = "nowhere_to_be_found:Designer"')
    (tmp_path / "small.toml").rename(tmp_path / "out" / "experiment.toml")
    assert [state.state for state in ExperimentFolder(tmp_path / "out").states()] == ["waiting", "waiting"]
    done = subprocess.run([ENVGEN, "report", tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 0 and "nowhere_to_be_found" in Path(done.stdout.strip()).read_text(), done.stderr


@pytest.mark.long
def test_the_notebook_without_a_person(whole, tmp_path):
    """Under papermill, from another directory: all is done already, so it draws what came out and writes the report."""
    path, folder, _ = whole
    out = tmp_path / "experiment.ipynb"
    done = subprocess.run([sys.executable, "-m", "papermill", LAB, out, "-p", "file", path, "-p", "folder", folder],
                          capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cells = [cell for cell in nbformat.read(out, 4).cells if cell.cell_type == "code"]
    printed = "".join(output.get("text", "") for cell in cells for output in cell.outputs)
    assert "0 runs to do" in printed and "Fewer than 5 seeds have no interval" in printed
    assert printed.strip().endswith("report.html")
    drawn = "".join(output.get("data", {}).get("text/html", "") for cell in cells for output in cell.outputs)
    assert drawn.count("<svg") >= 2 and "Score in the original game" in drawn
    assert [p.name for p in tmp_path.iterdir()] == ["experiment.ipynb"]


def test_the_board_of_fifty_runs(whole, tmp_path):
    """Waiting, running, done and failed runs, with what failed; drawn from little: it reads no run's metrics."""
    _, reference, _ = whole
    text = re.sub(r"seeds = .*", f"seeds = {list(range(25))}", (reference / "experiment.toml").read_text())
    folder = open_experiment(parse_experiment(text, tmp_path), tmp_path / "out")
    for arm in ("plain", "rules"):
        for seed in range(25):
            shutil.copytree(reference / arm / "seed-0", folder.run(arm, seed), ignore=shutil.ignore_patterns("*.pt"))
            if seed < 20:
                summary = (reference / arm / "seed-0.json").read_text().replace('"seed": 0', f'"seed": {seed}')
                folder.beside(arm, seed, folder.SUMMARY).write_text(summary)
    shutil.copy(reference / "plain" / "seed-0.json", folder.beside("plain", 21, folder.SUMMARY))
    with pytest.raises(ExperimentError, match=r"seed-21.json: this is the summary of a run with seed = 0, not 21"):
        folder.summaries()
    folder.beside("plain", 21, folder.SUMMARY).unlink()
    note_failure(folder, "plain", 24, "its machine was on fire")
    states = [state.state for state in folder.states()]
    assert [states.count(name) for name in ("done", "waiting", "failed")] == [40, 9, 1]
    html = board_html(folder)
    assert "40 of 50 runs done" in html and html.count("✓") == 40 and "on fire" in html
    asked = [folder.state(*run) for run in chosen(folder.experiment, ["plain"])]
    assert state_line(folder, asked).startswith("20 of 25 runs done, 4 waiting, 1 failed; about ")
    write_table(folder)
    assert len(table(folder.path)) == 40 and "20" in results_text(folder)


@pytest.mark.parametrize("name", records.names())
def test_a_record_is_its_experiment(name, tmp_path, monkeypatch):
    """A record becomes a folder, and that folder the same record; a file that runs have read is known by its hash."""
    before = records.RECORDS / f"{name}.jsonl"
    folder = records.unpack(name, tmp_path / "folder")
    assert not re.search(r"/(home|root|tmp|work|Users)/", before.read_text())          # a place on somebody's machine
    monkeypatch.setattr(records, "RECORDS", tmp_path)
    assert records.write(folder.path).read_bytes() == before.read_bytes()
    if files := list(records.file_hashes(folder)):
        (folder.path / folder.FILES / files[0]).write_text("another one")
        with pytest.raises(ValueError, match="is not the file"):
            records.file_hashes(folder)


def test_a_folder_is_copied_whole_although_another_arm_needs_a_file_in_it(tmp_path):
    "What is changed before there are runs is copied again; after that it may not change."
    for name in ("reply.md", "rejected-1.md"):
        write_text(tmp_path / "talk" / "cycle-1" / name, name)
    first = '[arms.once]\ndesigner = "replay"\ndesigner_options = { files = "./talk/cycle-1/reply.md" }\n'
    both = first + '[arms.all]\ndesigner = "replay"\ndesigner_options = { files = "./talk" }\n'

    def opened(arms):
        text = 'name = "talks"\nquestion = "?"\nbaseline = "once"\nseeds = [0]\n[settings]\nsimulator = "crafter"\n'
        return open_experiment(parse_experiment(text + arms, tmp_path, "talks"), tmp_path / "out")

    folder = opened(first)
    write_text(tmp_path / "talk" / "cycle-1" / "reply.md", "mended")
    opened(both)
    copied = folder.path / folder.FILES / "talk" / "cycle-1"
    assert {file.name: file.read_text() for file in copied.iterdir()} == {
        "reply.md": "mended", "rejected-1.md": "rejected-1.md"}
    folder.run("once", 0).mkdir(parents=True)
    write_text(tmp_path / "talk" / "cycle-1" / "rejected-1.md", "mended, too")       # `all` alone has read it
    opened(both)
    write_text(tmp_path / "talk" / "cycle-1" / "reply.md", "changed later")
    with pytest.raises(ExperimentError, match=r"reply.md has changed, and there are runs"):
        opened(both)
    assert (copied / "reply.md").read_text() == "mended"


def in_designed_worlds(settings) -> int:
    "Steps that each game spends in designed worlds in a cycle, as the curriculum of a run hands worlds out."
    preset, curriculum = settings.agent_preset, new_curriculum(settings, 0)
    rollouts = sum(num_rollouts(steps, preset) for steps in (settings.llm_steps, settings.original_steps))
    changes = curriculum.begin([1, 2, 3, 4], rollouts * preset.batch)
    assert sorted(changes.worlds.values()) == sorted([1, 2, 3, 4] * (preset.num_envs // 4))
    for rollout in range(1, rollouts + 1):
        if (changes := curriculum.update(preset.batch, Episodes.join([]))).worlds:
            assert changes.worlds == dict.fromkeys(range(preset.num_envs), 0)
            return rollout * preset.algorithm.rollout_steps


def test_the_published_protocol_is_what_its_page_says():
    "A phase is some 15,000 steps in each game; the five recorded replies are right, each for two seeds."
    experiment = read_experiment("published")
    settings = experiment.settings_of("random", 1000)
    assert settings.total_steps == 1_960_000 and (settings.world_length, settings.curriculum) == (1024, "envgen")
    assert (settings.max_reasks, settings.num_worlds, settings.num_cycles) == (0, 4, 4)
    assert in_designed_worlds(settings) == 29 * 512 == 14_848
    assert in_designed_worlds(read_experiment("paper").settings_of("plain", 0)) == 29 * 16 == 464
    assert load_templates(settings.templates).follow_up and not load_templates().follow_up
    model, texts = get_simulator("crafter").world_class(settings.vocabulary), []
    for seed in experiment.seeds:
        texts.append(Path(experiment.settings_of("fixed", seed).designer_options["files"]).read_text())
        designs, complaints = parse_reply(texts[-1], model, 4)
        assert len(designs) == 4 and not complaints
    assert len(set(texts)) == 5 and all(texts.count(text) == 2 for text in texts)
