"""A designer who takes his time: a terminal and the studio say what is waited for, where the answer goes, how long."""

import io
import threading
import time

import pytest

from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.events import Accepted
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.game.files import write_text
from envgen_nb.results.progress import watch
from envgen_nb.studio.session import Session

REPLY = '```json\n{"inventory_settings": {"wood": 5}}\n```\nPurpose: build.\n'


@pytest.fixture
def run(tmp_path):
    "A small run whose designer is a person."
    return create_run(make_settings(
        num_cycles=1, num_worlds=1, cycle_steps=8192, final_steps=0, evaluation_runs=1, evaluation_episodes=1,
        threads=1, designer="manual", designer_options={"poll": 0.05}), tmp_path / "run")


def until(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


class Terminal(io.StringIO):
    "Says that it is one, or that it is none."

    def __init__(self, terminal: bool):
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_names_the_files_and_how_long_it_has_been_waiting(run, terminal, capsys):
    prompt, reply = (run.path / "manual" / f"{name}-cycle-1.md" for name in ("prompt", "reply"))
    wanted = f"please answer {prompt}: save the reply as {reply}"
    out, stop = Terminal(terminal), threading.Event()
    watcher = threading.Thread(target=watch, args=(run.path, stop, out, 0.2))
    watcher.start()

    def person():
        until(lambda: f"{wanted} · for 1 s now" in out.getvalue())
        write_text(reply, REPLY)

    threading.Thread(target=person, daemon=True).start()
    events = run_cycles(run.path)
    assert any(isinstance(event, Accepted) for event in events)
    events.close()
    stop.set()
    watcher.join()
    assert f"cycle 1: waiting for the designer (attempt 1 of 3): {wanted}" in out.getvalue()
    assert prompt.read_text() == run.text("cycle-1", "prompt.md") and f"cycle-1: {wanted}" in capsys.readouterr().err


def test_the_studio_counts_how_long_it_has_been_waiting(run):
    session, said = Session(run), []
    session.observe(lambda change: said.append(change.new), "said")
    session.generate()
    until(lambda: any("please answer" in line and line.endswith(" · for 1 s now") for line in said))
    session.answer(REPLY)
    assert session.wait(60) and session.error == "" and session.said == "cycle 1: 1 world"
    assert any("waiting for the designer (attempt 1 of 3): please answer" in line for line in said)
    assert "Waiting" not in [record["event"] for record in session.records]
