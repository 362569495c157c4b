"""Ladders in the studio: rows of stages, edits that keep goal and order, settings that follow the design."""
from dataclasses import replace
from pathlib import Path

import pytest

from envgen_nb.cycle.context import as_taken, is_edited, ladder_records, origins
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.edit import EditError, edit_worlds
from envgen_nb.cycle.events import Accepted
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import SettingsError, make_settings
from envgen_nb.designer.reply import MAX_STAGES, Design, ladders_of
from envgen_nb.game.files import write_json
from envgen_nb.results.archive import archive_html
from envgen_nb.studio.editor import Editor, latest_facts, show_run, used_texts
from envgen_nb.studio.session import Session
from envgen_nb.studio.stages import StageRows
from envgen_nb.studio.studio import Studio, still_html

SHORT = dict(num_cycles=2, cycle_steps=16_384, final_steps=0, evaluation_runs=1, evaluation_episodes=4, threads=1)
SMALL = SHORT | dict(simulator="minigrid", designer="ladders", curriculum_options={"begin": 0.0})


def designed(folder: Path, cycle: str = "cycle-1", **settings) -> RunFolder:
    """A run whose ladders of a cycle are there, and have not been played."""
    run = create_run(make_settings(**SMALL | settings), folder)
    next(event for event in run_cycles(run.path) if isinstance(event, Accepted) and event.cycle == cycle)
    return run


@pytest.fixture(scope="module")
def second(tmp_path_factory) -> Path:
    return designed(tmp_path_factory.mktemp("ladders") / "run", "cycle-2").path


def test_an_edited_stage_keeps_its_ladder(tmp_path):
    run = designed(tmp_path / "run")
    given = run.designs("cycle-1")
    assert given == as_taken(run, "cycle-1") and {one.goal for one in given} != {""}
    goal, world = given[0].goal, type(given[0].world)(room_size=6)
    edited = [given[1], replace(given[0], world=world), *given[2:]]
    edit_worlds(run, "cycle-1", edited)
    assert run.designs("cycle-1") == edited and is_edited(run, "cycle-1")
    assert [ladder.goal for ladder in ladders_of(edited)] == [record.goal for record in ladder_records(run, "cycle-1")]
    assert ladders_of(run.designs("cycle-1"))[0].stages[:2] == (given[1].world, world)
    words = run.text("cycle-1", "edited.md")
    name = goal.replace("_", " ")
    assert f"stage 1 of {name}: the designer's stage 2 of {name}\n" in words and ", with room size" in words
    edit_worlds(run, "cycle-1", given[1:])
    assert f"Left out: stage 1 of {name}." in run.text("cycle-1", "edited.md")
    assert origins(run, "cycle-1") == ["designer"] * (len(given) - 1)
    edit_worlds(run, "cycle-1", given)
    assert not is_edited(run, "cycle-1") and run.text("cycle-1", "edited.md") is None


def test_ladders_that_cannot_be_are_refused(tmp_path):
    run = designed(tmp_path / "run")
    given = run.designs("cycle-1")
    for wrong, said in [([replace(given[0], goal="to fly")], "objective"), ([given[0]] * (MAX_STAGES + 1), "stages"),
                        ([], "1 to")]:
        with pytest.raises(EditError, match=said):
            edit_worlds(run, "cycle-1", wrong)
    assert run.designs("cycle-1") == given
    worlds = designed(tmp_path / "worlds", designer="random", curriculum_options={}, num_worlds=2)
    with pytest.raises(EditError, match="design = ladders"):
        edit_worlds(worlds, "cycle-1", given)


def test_stages_are_edited_in_their_rows(second, tmp_path):
    """Inserted, moved within the ladder, edited, dropped and taken back; the run and the rows follow."""
    studio = Studio(second)
    rows, gallery = studio.worlds.rows, studio.worlds.state
    run, given = studio.run, gallery.designs
    assert gallery.editable and given == tuple(run.designs("cycle-2")) and gallery.previous == given_before(run)
    assert all(one.keep for one in given) and "new" not in rows.view.html
    assert rows.view.html.count("<li data-place") == len(given)
    goals = [one.goal for one in given]
    last = goals.index(goals[0]) + goals.count(goals[0]) - 1           # of the first ladder
    rows.view.chosen = last
    assert gallery.in_view() == [last]
    gallery.move(last, 1)                                              # it stays in its ladder
    assert gallery.designs == given
    gallery.duplicate(last)
    assert gallery.chosen == rows.view.chosen == last + 1 and gallery.designs[last + 1].keep is None
    gallery.move(last + 1, -1)
    gallery.move(last, -1)
    assert gallery.chosen == max(last - 1, 0)
    studio.worlds.changes.flush()
    assert run.designs("cycle-2") == list(gallery.designs) and rows.view.html.count("<i>new</i>") == 1
    assert [one.goal for one in gallery.designs] == goals[:1] + goals
    numbers = run.all_numbers("cycle-2")["cycle-2"]
    assert len(set(numbers)) == len(numbers)                            # no record is counted twice
    gallery.drop(gallery.chosen)
    assert sorted(map(str, gallery.designs)) == sorted(map(str, given))
    while gallery.can_undo:
        gallery.undo()
    studio.worlds.changes.flush()
    assert gallery.designs == given and not is_edited(run, "cycle-2")
    gallery.drop(0)
    studio.worlds.changes.flush()
    assert "dropped from the cycle before: 1 stage" in rows.view.html
    gallery.undo()
    studio.worlds.changes.flush()
    assert still_html(studio.session).count("<li data-place") == len(given)
    assert f"stage 1 of {goals[0].replace('_', ' ')}" in archive_html(run)


def given_before(run: RunFolder) -> tuple[Design, ...]:
    return tuple(run.designs("cycle-1"))


def test_a_cycle_without_ladders_has_no_rows(tmp_path):
    studio = Studio(designed(tmp_path / "run", designer="random", num_worlds=2, curriculum_options={}))
    assert studio.worlds.rows.view.layout.display == "none" and studio.worlds.state.in_view() == [0, 1]


def test_the_settings_follow_the_design(tmp_path, monkeypatch):
    """Designer, curriculum, feedback and templates; lessons by their path; what does not fit is refused."""
    monkeypatch.chdir(tmp_path)
    studio = Studio(simulator="minigrid", **SHORT)
    editor, before = studio.editor, (studio.editor.designer, studio.editor.curriculum, studio.editor.feedback)
    editor.design = "ladders"
    assert (editor.designer, editor.curriculum, editor.feedback) == ("ladders", "ladder", "full")
    assert editor.kind == "ladders" and "Ladder 1:" in editor.filled and "This is cycle 1" in editor.filled
    editor.design = "worlds"
    assert (editor.designer, editor.curriculum, editor.feedback) == before and editor.kind == "first"
    editor.designer = "ladders"
    assert editor.design == "ladders" and editor.curriculum == "ladder"
    editor.curriculum = "envgen"
    with pytest.raises(SettingsError, match="knows no ladders"):
        studio.ready()
    editor.curriculum = "ladder"
    (tmp_path / "old.md").write_text("- Begin near the goal (open box: 80%).\n")
    editor.lessons = ["old.md"]
    editor.ladders += "\nBe brave."
    studio.ready()
    assert studio.run.settings.design == "ladders" and studio.session.error == ""
    assert "Begin near" in studio.run.text("", RunFolder.GIVEN_LESSONS) and "Begin near" in editor.filled
    next(event for event in run_cycles(studio.run.path) if isinstance(event, Accepted))
    assert studio.run.text("cycle-1", RunFolder.PROMPT).endswith("Be brave.")
    studio.session.refresh()
    editor.design = "worlds"
    with pytest.raises(EditError, match="asks for ladders"):
        studio.ready()
    editor.lessons = ["not there.md"]
    studio.new()
    assert "not there.md" in studio.session.error
    editor.lessons = []
    studio.new()
    assert studio.session.error == "" and studio.run.settings.design == "worlds" and not studio.run.settings.lessons
    assert studio.run.settings.curriculum == "envgen"


def test_templates_of_ladders_are_corrected_and_kept(second, tmp_path, monkeypatch):
    """The prompt of a correction with what happened in the stages; drafts of before have fewer texts."""
    monkeypatch.chdir(tmp_path)
    editor, run = Editor(), RunFolder(second)
    show_run(editor, run)
    editor.facts, editor.kind = latest_facts(run), "correction"
    assert "\n  1 [1] " in editor.filled and editor.complaints == ()
    editor.correction = editor.correction.replace("{{ladders}}", "")
    assert "{{ladders}} is missing" in editor.complaints[0]
    draft = used_texts(run) | {"first": "mine"}
    write_json(run.path / "templates" / "editing.json", {"draft": {name: draft[name] for name in list(draft)[:4]}})
    show_run(editor, run)
    assert editor.first == "mine" and editor.correction == used_texts(run)["correction"]


@pytest.mark.long
def test_the_rows_follow_the_training(tmp_path, monkeypatch):
    """While the agent trains, and not only at the end."""
    monkeypatch.setattr(StageRows, "EVERY", 0.0)
    monkeypatch.setattr(Session, "EVERY", 0.05)
    studio = Studio(designed(tmp_path / "run", cycle_steps=65_536))
    studio.open_page("Worlds")
    rows, seen = studio.worlds.rows, set()
    drawn = rows.draw
    monkeypatch.setattr(rows, "draw", lambda: (drawn(), seen.add(len(studio.run.metrics("cycle-1")))))
    studio.session.train()
    assert studio.session.wait(120) and studio.session.error == ""
    assert len(seen) > 3 and "shut: no ordinary training episode has ended yet" in rows.view.html
