"""Lessons: asked for after a run, kept with it, merged, and given to later runs."""
import json

import pytest
from chat_server import ChatServer, answer
from test_cycle_feedback import SMALL

from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.folder import RunFolder, RunFolderError
from envgen_nb.cycle.lessons import ask_lessons, merge_lessons
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import SettingsError, make_settings
from envgen_nb.designer.base import DesignerError
from envgen_nb.extras.cli import main

LADDERS = json.dumps({"collect_wood": [{"start_settings": {"time_of_day": "noon"}}, {}],
                      "collect_drink": [{"start_settings": {"near": ["water"]}}]})
LESSONS = "Here:\n1. Water beside the start teaches drinking (collect_drink 1: 80% of 9).\n2. Noon changes nothing."


def start(folder, server, **changed):
    options = {"base_url": server.url, "model": "a"}
    settings = make_settings(**SMALL | {"vocabulary": "extended", "num_cycles": 1, "design": "ladders", "max_reasks": 1,
                                        "curriculum": "ladder", "curriculum_options": {"begin": 0.0},
                                        "designer": "openai", "designer_options": options} | changed)
    run = create_run(settings, folder)
    list(run_cycles(run.path))
    return RunFolder(run.path)


@pytest.fixture
def server():
    with ChatServer(answer(LADDERS)) as one:
        yield one


def then(server, *texts):
    "The server's next answers; the last one is given again and again."
    server.behaviours = (*[None] * len(server.requests), *map(answer, texts))


def test_lessons_are_asked_for_once_kept_merged_and_given(tmp_path, server, capsys):
    first = start(tmp_path / "one", server)
    calls = len(server.requests)
    then(server, '- {"wood": 3}', LESSONS)
    lessons = ask_lessons(first)
    assert len(lessons) == 2 and len(server.requests) == calls + 2
    asked = server.requests[calls]
    assert "response_format" not in asked and "collect_wood: " in asked["messages"][0]["content"]
    assert "settings as JSON" in server.requests[-1]["messages"][-1]["content"]
    assert ask_lessons(first) == lessons and len(server.requests) == calls + 2         # kept, not asked again
    assert first.usage().calls == calls + 2

    then(server, LADDERS)
    second = start(tmp_path / "two", server, lessons=[str(first.path)])
    assert lessons[0] in second.text("cycle-1", "prompt.md")
    then(server, "- Noon changes everything (collect_wood 1).", "- Open: noon (runs 1, 2).")
    out = tmp_path / "merged.md"
    assert main(["lessons", str(first.path), str(second.path), "--out", str(out)]) == 0
    assert out.read_text() == "- Open: noon (runs 1, 2).\n" == capsys.readouterr().out
    merged = server.requests[-1]["messages"][0]["content"]
    assert "Run 1" in merged and "Run 2" in merged and lessons[0] in merged and "changes everything" in merged

    plain = start(tmp_path / "plain", server, designer="none", designer_options={}, design="worlds",
                  curriculum="envgen", curriculum_options={})
    calls, (reached,) = len(server.requests), ask_lessons(plain)     # how far the game alone takes an agent
    rates = plain.evaluation(plain.cycles[-1]).feedback(plain.simulator.objectives)
    assert f"collect_wood {rates['collect_wood'][0]:.0f}, " in reached and len(server.requests) == calls
    merge_lessons([plain, second])                                        # the designer of the second one is asked
    assert reached in server.requests[-1]["messages"][0]["content"]


def test_what_a_failed_question_cost_is_counted_and_said_in_one_line(tmp_path, server, capsys):
    """Replies that are no lessons were paid for, too; merging counts for the run whose designer is asked."""
    run = start(tmp_path / "run", server)
    calls = run.usage().calls
    then(server, "None.")
    assert main(["lessons", str(run.path)]) == 2
    assert "gave no lessons" in capsys.readouterr().err
    assert run.usage().calls == calls + 2
    then(server, LESSONS)
    ask_lessons(run)
    merge_lessons([run, run])
    assert run.usage().calls == calls + 4


def test_lessons_that_cannot_be_had_are_refused(tmp_path, server):
    with pytest.raises(SettingsError, match="no file, and no run with lessons"):
        start(tmp_path / "none", server, lessons=[str(tmp_path / "nowhere")])
    (tmp_path / "worlds.md").write_text('- {"wood": 3}\n')
    with pytest.raises(SettingsError, match="JSON"):
        start(tmp_path / "json", server, lessons=[str(tmp_path / "worlds.md")])
    settings = make_settings(**SMALL | {"vocabulary": "extended", "num_cycles": 1, "designer": "ladders"})
    run = create_run(settings, tmp_path / "rules")
    with pytest.raises(RunFolderError, match="not finished"):
        ask_lessons(run)
    list(run_cycles(run.path))
    with pytest.raises(DesignerError, match="does not read what is asked"):
        ask_lessons(RunFolder(run.path))
    with pytest.raises(ValueError, match="no lessons|no file, and no run"):
        merge_lessons([RunFolder(run.path)] * 2)
