"""One number for one thing, however it is shown: rates, changes, durations, the summary beside a run."""
import re
import shutil

import numpy as np
import pytest

from envgen_nb.agent.evaluate import Evaluation
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.settings import make_settings
from envgen_nb.game.files import append_jsonl, write_json
from envgen_nb.results import kept_summary, measurements, scores, summary
from envgen_nb.results.figures import changes, success_figure, table_text
from envgen_nb.results.report import moved_html, rates_html, spent
from envgen_nb.studio.compare import compare_view
from envgen_nb.studio.session import Session
from envgen_nb.studio.step import objectives_html


@pytest.fixture
def run(tmp_path):
    return create_run(make_settings(num_cycles=1, cycle_steps=24_576, final_steps=0, designer="none"), tmp_path / "run")


def measured(run, cycle, reached, had=None, runs=3, episodes=60):
    """Write a measurement: the first objective was reached in so many episodes of each run, of those that had it."""
    unlocked, possible = np.zeros((2, episodes, len(run.simulator.objectives)), bool)
    possible[:, 1:] = True
    for k, (yes, of) in enumerate(zip(reached, had or [episodes // runs] * runs, strict=True)):
        start = k * episodes // runs
        unlocked[start:start + yes, 0] = True
        possible[start:start + of, 0] = True
    write_json(run.file("evaluation.json", cycle), Evaluation(
        runs, np.zeros(episodes), np.full(episodes, 9, np.int32), unlocked, possible).to_dict())


def shown(page, name):
    """The numbers in the row of an objective, tags and drawings left out."""
    rows = [re.sub("<.*?>", " ", row, flags=re.S) for row in re.findall(r"<tr>.*?</tr>|<li>.*?</li>", page, re.S)]
    return [int(number) for number in re.findall(r"[-+]?\d+", next(row for row in rows if name in row))]


def test_a_measurement_has_one_success_rate(run):
    """Of three parts, in which 8, 1 and 1 episodes had the objective, one succeeded: 10% everywhere, and not 33%."""
    name = run.simulator.objectives[0]
    measured(run, "cycle-0", [0, 0, 0], [8, 1, 1])
    measured(run, "cycle-1", [0, 1, 0], [8, 1, 1])
    rate, _ = run.evaluation("cycle-1").feedback(run.simulator.objectives)[name]
    before, last = measurements(run).values()
    assert rate == 10 == last.rates[name].value == changes(before, last)[0].after.value
    assert summary(run)["success"][name][-1] == 10
    assert last.rates[name].count == 10 == changes(before, last)[0].after.count
    assert scores(run)["cycle-1"] == run.simulator.score(dict.fromkeys(run.simulator.objectives, 0.0) | {name: 10.0})
    assert re.search(rf"^{name} +0 % +10 % +\+10 \(of 10 episodes\)$", table_text(run), re.M)
    assert success_figure(run).data[2].x[-1] == 10
    for page in (rates_html(run), objectives_html(run)):
        assert "33" not in page and "(of 10 episodes)" in page


@pytest.mark.parametrize("before, after, change", [(19, 53, 56), (1, 2, 1), (2, 1, -1), (30, 31, 2), (0, 0, 0)])
def test_a_change_is_that_of_the_numbers_beside_it(run, before, after, change):
    """19 of 60 are 31.7%, and 53 are 88.3%: 32% and 88%."""
    name, words = run.simulator.objectives[0], run.simulator.objectives[0].replace("_", " ")
    for cycle, reached in (("cycle-0", before), ("cycle-1", after)):
        measured(run, cycle, [min(reached, 20), min(max(reached - 20, 0), 20), max(reached - 40, 0)])
    old, new, moved = map(int, re.search(rf"^{name} +(\d+) % +(\d+) % +([-+]\d+)$", table_text(run), re.M).groups())
    assert (old, new) == (round(before / 0.6), round(after / 0.6)) and moved == new - old == change
    for page, what in ((rates_html(run), words), (objectives_html(run), name)):
        assert shown(page, what)[-3:] == [old, new, moved]
    assert (shown(moved_html(*measurements(run).values()), words) == [old, new, moved]) if moved else (
        "No success rate changed" in moved_html(*measurements(run).values()))


def test_the_duration_of_a_resumed_run_is_that_of_all_its_sessions(run):
    """Three sessions of seven seconds; a question that was asked in one and answered in the next."""
    for events in ([("Started", 0), ("Prompted", 5), ("Stopped", 7)], [("Started", 0), ("Stopped", 7)],
                   [("Started", 0), ("Prompted", 1), ("Accepted", 3), ("Finished", 7)]):
        for event, worked in events:
            append_jsonl(run.file(run.EVENTS), {"time": 0.0, "worked": worked, "event": event, "cycle": "cycle-1"})
    assert spent(run).startswith("21 s of work")
    assert summary(run)["cost"]["seconds"]["designing"] == 2


def copied(run, name, change=None):
    """A copy of a run with something changed in one of its files: file, old text, new text."""
    path = shutil.copytree(run.path, run.path.parent / "room" / name)
    if change:
        file, old, new = change
        text = (path / file).read_text()
        assert old in text
        (path / file).write_text(text.replace(old, new))
    return path.resolve()


def test_a_summary_in_a_folder_is_not_believed(run):
    """Whoever made the folder may have written it; times and sizes fit."""
    measured(run, "cycle-0", [0, 0, 0])
    true = kept_summary(run.path)
    for forged in (true | {"scores": [64.2]}, {"stamp": true["stamp"]}):
        write_json(run.path / "summary.json", forged)
        assert kept_summary(run.path) == true == kept_summary(run.path, make=False)
    assert [path.name for path in run.path.iterdir() if path.name.startswith("summary")] == ["summary.json"]
    measured(run, "cycle-1", [9, 3, 6])
    append_jsonl(run.file(run.EVENTS), {"time": 0.0, "worked": 1, "event": "Evaluated", "seconds": 1})
    assert kept_summary(run.path, make=False) is None and kept_summary(run.path)["scores"][1] > 0


def test_a_bad_folder_is_one_bad_row(run):
    """A number that is too large, a lacking key, a file that is cut: the page names the run and shows the others."""
    measured(run, "cycle-0", [0, 0, 0])
    append_jsonl(run.file(run.EVENTS), {"time": 0.0, "worked": 1, "event": "Evaluated", "seconds": 1})
    good = copied(run, "good")
    huge, returns = "1" + "0" * 400, '"returns": [\n    '
    bad = {copied(run, "huge-return", ("cycle-0/evaluation.json", f"{returns}0.0", f"{returns}{huge}")),
           copied(run, "huge-time", (run.EVENTS, '"seconds": 1', f'"seconds": {huge}')),
           copied(run, "no-seconds", (run.EVENTS, '"seconds": 1', '"second": 1')),
           copied(run, "cut", ("cycle-0/evaluation.json", '"returns"', '"return')),
           copied(run, "no-machine", ("run.json", '"machine"', '"machines"'))}
    view = compare_view(Session())
    view.state.folder = str(run.path.parent / "room")
    view.state.read()
    assert set(view.state.found) == {good} and set(view.state.damaged) == bad and view.state.error == ""
    view.state.table.chosen = [str(path) for path in (good, *bad)]
    shown = view.children[-3].value
    assert all(f"{path.name} is left out" in shown for path in bad) and view.children[-2].panels
    assert [row["name"] for row in view.state.table.rows] == ["good"]
