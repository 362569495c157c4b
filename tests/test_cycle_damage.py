"""Files of a run that are missing or damaged: a plain error that names the file, and advice that does what it says."""
import json
import os
import re
import shutil

import pytest
import torch
from forms import first

from envgen_nb.agent.checkpoint import load_checkpoint, save_checkpoint
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.edit import position
from envgen_nb.cycle.events import Evaluated, Finished, Training
from envgen_nb.cycle.folder import RunFolder, RunFolderError
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.runs import label_run
from envgen_nb.cycle.settings import make_settings
from envgen_nb.experiment.batch import play
from envgen_nb.extras.cli import main
from envgen_nb.game.files import FolderGone, append_jsonl, write_text
from envgen_nb.results.report import write_report
from envgen_nb.studio.compare import compare_view
from envgen_nb.studio.session import Session

SMALL = dict(num_cycles=2, num_worlds=2, cycle_steps=2_048, final_steps=1_024, evaluation_runs=1,
             evaluation_episodes=2, threads=1, seed=5, preset_options={"num_envs": 8, "rollout_steps": 64})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run, with a call in its log of costs."""
    run = create_run(make_settings(**SMALL), tmp_path_factory.mktemp("runs") / "whole")
    list(run_cycles(run.path))
    append_jsonl(run.path / "usage.jsonl", {"cycle": "cycle-1", "usage": {"calls": 1, "tokens_in": 10, "tokens_out": 2,
                                                                         "seconds": 1.0, "price": None}})
    assert run.usage().calls == 1
    return run.path


@pytest.fixture
def copy(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    return tmp_path / "run"


def contents(folder, but=()):
    return {path.relative_to(folder): (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*")
            if path.is_file() and path.suffix in (".json", ".jsonl", ".pt", ".md", ".png")
            and str(path.relative_to(folder)) not in ("events.jsonl", "report.html", *but)}


def measured(folder, cycle):
    return {name: value for name, value in json.loads((folder / cycle / "evaluation.json").read_text()).items()}


@pytest.mark.parametrize("cycle", first(2, ["cycle-1", "final", "cycle-0", "cycle-2"]))
def test_a_deleted_measurement_is_made_again_of_the_agent_of_that_time(copy, cycle):
    before, was = contents(copy, [f"{cycle}/evaluation.json"]), measured(copy, cycle)
    (copy / cycle / "evaluation.json").unlink()
    assert position(RunFolder(copy)).cycle == cycle and position(RunFolder(copy)).step == "evaluate"
    events = list(run_cycles(copy))
    assert [event.cycle for event in events if isinstance(event, Evaluated)] == [cycle]
    assert measured(copy, cycle) == was and contents(copy, [f"{cycle}/evaluation.json"]) == before


def test_in_the_middle_of_a_run_too(whole, tmp_path):
    """With the agent one cycle further: nothing of the cycle is written but the measurement."""
    run = create_run(make_settings(**SMALL), tmp_path / "run")
    for event in run_cycles(run.path):
        if isinstance(event, Training) and event.cycle == "cycle-2":
            break
    (run.path / "cycle-1" / "evaluation.json").unlink()
    before = contents(run.path / "cycle-1")
    list(run_cycles(run.path))
    assert measured(run.path, "cycle-1") == measured(whole, "cycle-1")
    assert contents(run.path / "cycle-1", ["evaluation.json"]) == before
    some, other = (load_checkpoint(path / "checkpoint.pt")["learner"]["policy"] for path in (run.path, whole))
    assert all(torch.equal(some[name], other[name]) for name in some)


def test_without_the_agent_of_that_time_it_is_refused(copy):
    (copy / "cycle-1" / "evaluation.json").unlink()
    (copy / "cycle-1" / "checkpoint.pt").unlink()
    before = contents(copy)
    with pytest.raises(RunFolderError, match=r"cycle-1/evaluation.json is missing, and so is checkpoint.pt.*Put back"):
        list(run_cycles(copy))
    assert contents(copy) == before


def test_a_kill_between_the_agent_and_its_measurement_is_no_matter(whole, tmp_path, monkeypatch):
    from envgen_nb.cycle import run as run_module
    run, write = create_run(make_settings(**SMALL), tmp_path / "run"), run_module.write_json

    def killed(path, data):
        if path.name == "evaluation.json" and path.parent.name == "cycle-1":
            raise KeyboardInterrupt
        write(path, data)

    monkeypatch.setattr(run_module, "write_json", killed)
    with pytest.raises(KeyboardInterrupt):
        list(run_cycles(run.path))
    assert (run.path / "cycle-1" / "checkpoint.pt").exists() and run.evaluation("cycle-1") is None
    monkeypatch.setattr(run_module, "write_json", write)
    list(run_cycles(run.path))
    assert all(measured(run.path, cycle) == measured(whole, cycle) for cycle in run.cycles)


def test_without_its_checkpoint_a_run_goes_on_from_that_of_the_last_part(whole, tmp_path):
    """Bit by bit, the games that wait among it."""
    run = create_run(make_settings(**SMALL), tmp_path / "run")
    for event in run_cycles(run.path):
        if isinstance(event, Training) and event.cycle == "cycle-2":
            break
    (run.path / "checkpoint.pt").write_bytes(b"damaged")
    with pytest.raises(RunFolderError, match="Delete it: envgen resume .* then goes on from cycle-1/checkpoint.pt"):
        list(run_cycles(run.path))
    (run.path / "checkpoint.pt").unlink()
    before = contents(run.path / "cycle-1")
    list(run_cycles(run.path))
    some, other = (load_checkpoint(path / "checkpoint.pt")["learner"]["policy"] for path in (run.path, whole))
    assert all(torch.equal(some[name], other[name]) for name in some) and contents(run.path / "cycle-1") == before
    for cycle in run.cycles:
        assert [r["episodes"] for r in run.metrics(cycle)] == [r["episodes"] for r in RunFolder(whole).metrics(cycle)]


def test_without_any_checkpoint_a_trained_run_is_refused(copy):
    for path in copy.rglob("checkpoint.pt"):
        path.unlink()
    before = contents(copy)
    with pytest.raises(RunFolderError, match=r"checkpoint.pt is missing, and so is final/checkpoint.pt.*Put back"):
        list(run_cycles(copy))
    assert contents(copy) == before


def test_deleted_worlds_come_back_from_the_reply_unless_they_were_edited(copy, whole):
    before = contents(copy, ["cycle-1/worlds.json"])
    (copy / "cycle-1" / "worlds.json").unlink()
    assert len(RunFolder(copy).episodes(RunFolder(copy).metrics("cycle-1")[0], "original")) == 0
    list(run_cycles(copy))
    assert RunFolder(copy).worlds("cycle-1") == RunFolder(whole).worlds("cycle-1")
    assert contents(copy, ["cycle-1/worlds.json"]) == before
    (copy / "cycle-1" / "worlds.json").unlink()
    (copy / "cycle-1" / "edited.md").write_text("edited by hand")
    with pytest.raises(RunFolderError, match="worlds.json is missing.*edited by hand.*delete edited.md"):
        list(run_cycles(copy))
    (copy / "cycle-1" / "edited.md").unlink()
    (copy / "cycle-1" / "reply.md").unlink()
    with pytest.raises(RunFolderError, match="worlds.json is missing.*the agent has trained in them.*Put back"):
        list(run_cycles(copy))


DAMAGE = {
    "empty": lambda data: b"", "cut short": lambda data: data[: len(data) // 2],
    "binary": lambda data: b"\x80\x02\xff" * 9,
    "a number": lambda data: b"3", "a list": lambda data: b'[["x"]]', "an object": lambda data: b'{"x": []}',
    "NaN": lambda data: re.sub(rb"\d+(\.\d+)?", b"NaN", data, count=3), "deep": lambda data: b"[" * 100_000,
    "huge": lambda data: re.sub(rb"\d+(\.\d+)?", b"9" * 400, data, count=9),
    "infinite": lambda data: re.sub(rb"\d+(\.\d+)?", b"1e999", data, count=3),
    "null": lambda data: b"null", "keys missing": lambda data: data.replace(b'"', b'"_'),
}
FILES = ["run.json", "checkpoint.pt", "cycle-1/evaluation.json", "cycle-1/worlds.json", "usage.jsonl", "events.jsonl",
         "cycle-1/purposes.json", "cycle-1/metrics.jsonl", "cycle-1/checkpoint.pt", "cycle-1/reply.md"]


def plainly(error, name):
    """What a person is told: the file and the way out, in words; no error of a library."""
    text = str(error)
    assert name.rpartition("/")[2] in text and re.search("Delete|Put back|open it with", text), text
    raw = "Traceback|pydantic|JSONDecode|codec|Expecting|validation error|Error:|object has no"
    assert not re.search(raw, text), text


def attempts(folder, name):
    """What reads a run: going on with it, its report and Compare (which need what `check` reads), playing."""
    yield lambda: list(run_cycles(folder))
    yield lambda: RunFolder(folder).check()
    if name == "cycle-1/checkpoint.pt":
        yield lambda: play(RunFolder(folder), folder.parent / "clip.gif", cycle="cycle-1", steps=2)


@pytest.mark.parametrize("name", first(4, FILES))
def test_damage_is_told_plainly_from_everywhere(copy, name, capsys, monkeypatch):
    original, told = (copy / name).read_bytes(), 0
    monkeypatch.setattr("envgen_nb.cycle.run._train", lambda *given: iter(()))
    for what, damage in DAMAGE.items():
        if name.endswith(".pt") and what in ("NaN", "huge", "infinite", "keys missing"):
            continue
        (copy / name).write_bytes(damage(original))
        for attempt in attempts(copy, name):
            try:
                attempt()
            except RunFolderError as error:
                plainly(error, name)
                told += 1
        session = Session()
        session.open(copy)
        if session.error:
            plainly(session.error, name)
        (copy / name).write_bytes(original)
    assert told >= (0 if name == "cycle-1/reply.md" else 6)       # of a finished run only the report shows the reply
    (copy / name).write_bytes(DAMAGE["binary"](original))
    shown = not name.endswith("checkpoint.pt")      # a run goes on from them; the report shows the first and last agent
    assert main(["report", str(copy)]) == (2 if name == "run.json" else int(shown))
    if shown:
        plainly(capsys.readouterr().err, name)


@pytest.mark.parametrize("name", ["checkpoint.pt", "cycle-1/evaluation.json", "cycle-1/worlds.json",
                                  "cycle-1/purposes.json"])
def test_to_delete_it_does_what_was_said(copy, whole, name):
    (copy / name).write_bytes(b"\x80\x02")
    with pytest.raises(RunFolderError, match="Delete it"):
        RunFolder(copy).check()
        list(run_cycles(copy))
    (copy / name).unlink()
    list(run_cycles(copy))
    write_report(RunFolder(copy).check())
    if name != "cycle-1/purposes.json":
        assert RunFolder(copy).worlds("cycle-1") == RunFolder(whole).worlds("cycle-1")
        assert all(measured(copy, cycle) == measured(whole, cycle) for cycle in RunFolder(whole).cycles)


@pytest.mark.parametrize("name, line", [("usage.jsonl", b'{"cycle": 3}'), ("events.jsonl", b"[]"),
                                        ("cycle-1/metrics.jsonl", b'{"phase": "worlds"}')])
def test_to_delete_a_line_does_what_was_said(copy, name, line):
    original = (copy / name).read_bytes()
    (copy / name).write_bytes(line + b"\n" + original)
    with pytest.raises(RunFolderError, match="line 1 makes no sense.*Delete that line"):
        RunFolder(copy).check()
    (copy / name).write_bytes(original)
    RunFolder(copy).check()


@pytest.mark.parametrize("name", ["usage.jsonl", "events.jsonl", "cycle-1/metrics.jsonl"])
def test_a_line_that_a_kill_cut_short_is_passed_over_wherever_it_was_cut(copy, name):
    """After an inner brace, too, at the end of the log and before a line that was written later."""
    original = (copy / name).read_bytes()
    last = original.rstrip(b"\n").rpartition(b"\n")[2]
    whole = RunFolder(copy).check().calls(), RunFolder(copy).events(), RunFolder(copy).metrics("cycle-1")
    inner = b'{"note": "a } and a \\" { in a text", "usage": {"calls": 1}'
    for cut in (last[:1], last[:len(last) // 2], last[:last.rindex(b"}")], inner, inner[:12], inner[:24], inner[:-1]):
        for data in (original + cut, cut + b"\n" + original):
            (copy / name).write_bytes(data)
            run = RunFolder(copy).check()
            assert (run.calls(), run.events(), run.metrics("cycle-1")) == whole, cut
    (copy / name).write_bytes(original + inner + b", }")
    with pytest.raises(RunFolderError, match=f"{name.rpartition('/')[2]} is damaged: in line"):
        RunFolder(copy).check()


LINKS = [".lock", "run.json", "events.jsonl", "usage.jsonl", "checkpoint.pt", "labels.json", "cycle-1/prompt.md",
         "cycle-1/worlds.json", "cycle-1/metrics.jsonl", "tensorboard", "templates", "cycle-2", "mine"]


@pytest.mark.parametrize("name", first(5, LINKS))
def test_no_link_is_followed_out_of_the_folder(copy, tmp_path, name):
    """Neither for reading nor for writing nor for packing."""
    other, place = tmp_path / "other", copy / name
    if place.is_dir():
        shutil.copytree(place, other)
        shutil.rmtree(place)
    else:
        other.write_bytes(place.read_bytes() if place.exists() else b"thesis")
        place.unlink(missing_ok=True)
    place.symlink_to(other)
    before = [(path, path.is_file() and path.read_bytes()) for path in sorted([other, *other.rglob("*")])]
    for attempt in (lambda: list(run_cycles(copy)), lambda: RunFolder(copy)):
        with pytest.raises(RunFolderError, match=f"(?s){re.escape(str(place))} is a link.*{re.escape(str(other))}"):
            attempt()
    assert main(["resume", str(copy)]) == main(["share", str(copy)]) == main(["report", str(copy)]) == 2
    session = Session()
    session.open(copy)
    assert "is a link" in session.error
    assert [(path, path.is_file() and path.read_bytes()) for path in sorted([other, *other.rglob("*")])] == before
    assert not (tmp_path / "run.zip").exists() and not (copy / "report.html").exists()


def test_a_link_inside_a_run_and_a_link_to_a_run_are_followed(copy, tmp_path):
    (copy / "best").symlink_to("cycle-2")
    (tmp_path / "there").symlink_to(copy)
    assert RunFolder(tmp_path / "there").check().finished()
    (copy / ".lock").unlink()
    (copy / ".lock").symlink_to("run.json")                                      # but nothing is written through one
    before = contents(copy)
    with pytest.raises(OSError, match=r"\.lock is a link"):
        list(run_cycles(copy))
    assert contents(copy) == before


def test_what_is_no_file_is_refused(copy):
    os.mkfifo(copy / "cycle-1" / "thoughts-1.md")                                # reading it would never end
    with pytest.raises(RunFolderError, match=r"thoughts-1.md is neither a file nor a folder"):
        RunFolder(copy)


@pytest.mark.parametrize("moved", ["renamed", "deleted", "replaced"])
def test_a_run_that_is_renamed_or_deleted_stops_at_the_next_write(tmp_path, moved):
    folder = create_run(make_settings(**SMALL), tmp_path / "run").path
    events = run_cycles(folder)
    next(event for event in events if isinstance(event, Training))
    if moved == "deleted":
        shutil.rmtree(folder)
    else:
        folder.rename(tmp_path / "renamed")
    if moved == "replaced":
        create_run(make_settings(**SMALL | {"seed": 6}), folder)
    before = contents(folder)
    with pytest.raises(FolderGone, match="run was renamed, deleted or replaced"):
        list(events)
    assert contents(folder) == before and folder.exists() == (moved == "replaced")
    if moved == "renamed":
        assert [type(event) for event in run_cycles(tmp_path / "renamed")][-1] is Finished
        with pytest.raises(RunFolderError, match="is not a run"):
            label_run(folder, name="mine")
        assert not folder.exists()


def test_a_file_that_was_for_its_owner_alone_stays_so(tmp_path):
    for mode in (0o600, 0o640, 0o644):
        path = tmp_path / f"{mode:o}"
        path.write_text("before")
        path.chmod(mode)
        write_text(path, "after")
        assert path.stat().st_mode & 0o777 == mode and path.read_text() == "after"
    write_text(tmp_path / "new", "")
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_purposes_are_as_many_as_worlds(copy):
    (copy / "cycle-1" / "purposes.json").write_text('["one"]')
    with pytest.raises(RunFolderError, match="purposes.json is damaged: 1 purposes are not of 2 worlds. Delete it"):
        RunFolder(copy).check()


def test_a_state_of_no_such_agent_is_told(copy):
    good = load_checkpoint(copy / "checkpoint.pt")
    for state in ({"learner": {"policy": 3}}, {"learner": good["learner"], "trained": "x"}):
        save_checkpoint(copy / "checkpoint.pt", state)
        with pytest.raises(RunFolderError, match="checkpoint.pt is damaged.*Delete it"):
            list(run_cycles(copy))


def test_one_damaged_run_does_not_hide_the_others(whole, copy, monkeypatch):
    monkeypatch.setattr("envgen_nb.studio.compare.choices", lambda session: {whole: "whole", copy: "copy"})
    (copy / "cycle-1" / "evaluation.json").write_bytes(b"\x80")
    session = Session()
    session.open(whole)
    view = compare_view(session)
    text = view.children[-3].value
    assert f"{copy.name} is left out" in text and "Delete it" in text and ">whole<" in text
    assert [row["name"] for row in view.state.table.rows] == ["whole"] and not view.state.error
