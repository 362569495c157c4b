"""Worlds that are tried out before some of them are taken: by a rule, or by the designer, who is asked once more."""
import json
from contextlib import closing
from dataclasses import replace

import pytest
from chat_server import ChatServer, answer
from test_cycle_feedback import SMALL, same, stopped_and_resumed

from envgen_nb.agent.evaluate import evaluate
from envgen_nb.agent.learner import RandomLearner
from envgen_nb.cycle import ask
from envgen_nb.cycle.context import as_designed, as_taken, origins, tried_out
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.edit import design_again, edit_worlds, position
from envgen_nb.cycle.events import Accepted, Prompted, Rejected, TriedOut
from envgen_nb.cycle.folder import PLAYERS, selected, spent_rollouts
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import SettingsError, make_settings
from envgen_nb.designer.base import Designer, Reply, designers, make_designer
from envgen_nb.designer.design import DesignError, learnability, most_learnable
from envgen_nb.designer.reply import Design, format_reply
from envgen_nb.designer.rules import Rules
from envgen_nb.game.simulator import get_simulator

TRIED = SMALL | {"num_cycles": 2, "cycle_steps": 4_096, "world_length": 60, "num_worlds": 2, "num_candidates": 4,
                 "trial_episodes": 2, "vocabulary": "extended"}


class Choosing(Rules):
    """The rules propose; of the worlds that were tried out it takes the third, three times as often, and the first."""
    name = "choosing"
    chooses = True
    asked = []

    def reply(self, request, on_text=None):
        self.asked.append(request)
        if not request.tried:
            return super().reply(request, on_text)
        if request.cycle == 1 and request.attempt == 1:
            return Reply('```json\n{"keep": 5}\n```\nPurpose: more.')
        return Reply('```json\n{"keep": 3, "weight": 3}\n```\nPurpose: it almost can.\n```json\n{"keep": 1}\n```\n'
                     'Purpose: for a start.')


@pytest.fixture
def choosing():
    if "choosing" not in designers.names():
        designers.register("choosing", f"{__name__}:Choosing")
    Choosing.asked.clear()
    return Choosing.asked


@pytest.fixture(scope="module")
def by_rule(tmp_path_factory):
    run = create_run(make_settings(**TRIED), tmp_path_factory.mktemp("rule") / "run")
    return run, list(run_cycles(run.path))


def test_the_rule_takes_those_from_which_most_can_be_learned(by_rule):
    run, events = by_rule
    for cycle in ("cycle-1", "cycle-2"):
        proposed, measured = as_designed(run, cycle), run.selection(cycle)
        assert len(proposed) == 4 and [one["player"] for one in measured] == list(PLAYERS)
        assert all(one["worlds"] == [design.world.settings() for design in proposed] for one in measured)
        agent, random = ([row[k] for row in tried_out(run, cycle)] for k in (0, 1))
        assert [one.purpose for one in agent] == [design.purpose for design in proposed]
        assert run.designs(cycle) == [proposed[k] for k in most_learnable(agent, random, 2)]
        least = min(learnability(one) for one, _, taken in tried_out(run, cycle) if taken)
        assert least >= max(learnability(one) for one, _, taken in tried_out(run, cycle) if not taken)
        told, = [event for event in events if isinstance(event, TriedOut) and event.cycle == cycle]
        assert (told.worlds, told.steps) == (4, selected(run)[cycle]) == (4, sum(one["steps"] for one in measured))
        assert spent_rollouts(run)[cycle] == pytest.approx(told.steps / run.settings.agent_preset.batch, abs=1)
        assert origins(run, cycle) == ["designer", "designer"] and as_taken(run, cycle) == run.designs(cycle)
    assert "Number of environments to design: 4" in run.text("cycle-1", "prompt.md")


def test_the_numbers_are_those_of_episodes_that_were_played(by_rule):
    """Who plays at random plays as the random learner does, from the same seed."""
    run, _ = by_rule
    agent, random = run.selection("cycle-1")
    assert random["lengths"] != agent["lengths"] and random["seed"] != agent["seed"]
    worlds = [design.world for design in as_designed(run, "cycle-1")]
    with closing(run.simulator.make_vec(worlds, num_envs=8, seed=random["seed"], obs="symbols", length=60, episodes=1,
                                        copy=False)) as venv:
        player = RandomLearner(run.settings.agent_preset, venv.single_observation_space, venv.single_action_space,
                               random["seed"])
        found = evaluate(player, venv, 1, random["seed"])
    assert random["returns"] == found.returns.reshape(2, 4).mean(0).tolist()
    assert random["lengths"] == found.lengths.reshape(2, 4).mean(0).tolist()
    k = run.simulator.objectives.index("collect_sapling")
    assert [one["collect_sapling"] for one in random["success"]] == (
        100 * found.unlocked[:, k].reshape(2, 4).mean(0)).tolist()


@pytest.mark.long
def test_stopped_everywhere_it_is_the_same(by_rule, tmp_path, monkeypatch):
    same(by_rule[0], stopped_and_resumed(by_rule[0].settings, tmp_path / "run", monkeypatch))


def test_a_stop_after_worlds_were_tried_out_plays_them_once(tmp_path, monkeypatch):
    """Worlds with lists in them are found again in selection.json."""
    settings = make_settings(**TRIED | {"num_cycles": 1, "final_steps": 0}, designer="random")
    run = create_run(settings, tmp_path / "run")
    events = run_cycles(run.path)
    tried = next(event for event in events if isinstance(event, TriedOut))
    events.close()
    kept = run.selection("cycle-1")
    assert any(isinstance(value, list) for one in kept[0]["worlds"] for section in one.values()
               for value in section.values())
    monkeypatch.setattr(ask, "_played", lambda *_: pytest.fail("they were played again"))
    next(event for event in run_cycles(run.path) if isinstance(event, Accepted))
    assert run.selection("cycle-1") == kept and len(kept) == 2 and sum(one["steps"] for one in kept) == tried.steps


def test_the_designer_chooses(choosing, tmp_path):
    run = create_run(make_settings(**TRIED, designer="choosing", chooser="designer"), tmp_path / "run")
    events = []
    for event in run_cycles(run.path):
        events.append(event)
        if isinstance(event, Rejected):
            break                                               # stopped before the second answer
    assert position(run).step == "design" and (run.path / "cycle-1" / "trial" / "prompt.md").exists()
    events += list(run_cycles(run.path))
    first, second, again, later, last = choosing
    assert not first.tried and len(second.tried) == 4 and second.num_worlds == 2 and first.num_worlds == 4
    assert [one["role"] for one in second.messages] == ["user", "assistant", "user"]
    assert second.messages[1]["content"] == run.text("cycle-1", "reply.md")
    assert "At random:" in second.prompt and "Choose 2 of them" in second.prompt and "{{" not in second.prompt
    assert "keep: got 5" in again.prompt and again.attempt == 2
    assert [one["role"] for one in later.messages] == ["user", "assistant"] * 2 + ["user"]     # both questions
    proposed = as_designed(run, "cycle-1")
    assert run.designs("cycle-1") == [replace(proposed[2], weight=3, purpose="it almost can."),
                                      replace(proposed[0], purpose="for a start.")]
    assert as_taken(run, "cycle-1") == run.designs("cycle-1")
    assert [row[2] for row in tried_out(run, "cycle-2")] == [True, False, True, False] and last.cycle == 2
    assert sorted(path.name for path in (run.path / "cycle-1" / "trial").iterdir()) == [
        "complaints-1.md", "prompt.md", "rejected-1.md", "reply.md"]
    prompts = [event for event in events if isinstance(event, Prompted)]
    assert len(prompts) == 6 and [type(event) for event in events].count(Accepted) == 2      # two were put again
    (run.path / "cycle-1" / "worlds.json").unlink()             # it can be read again from what is there
    list(run_cycles(run.path))
    assert run.worlds("cycle-1") == [proposed[2].world, proposed[0].world] and len(choosing) == 5


@pytest.mark.long
def test_before_training_worlds_can_be_chosen_again(choosing, tmp_path):
    run = create_run(make_settings(**TRIED, designer="choosing", chooser="designer"), tmp_path / "run")
    next(event for event in run_cycles(run.path) if isinstance(event, Accepted))
    kept, worlds = run.selection("cycle-1"), run.worlds("cycle-1")
    assert design_again(run, "cycle-1") == 1 and not (run.path / "cycle-1" / "trial").exists()
    assert (run.path / "cycle-1" / "drafts" / "1" / "trial" / "reply.md").exists()
    next(event for event in run_cycles(run.path) if isinstance(event, Accepted))
    assert run.selection("cycle-1") == kept and run.worlds("cycle-1") == worlds             # nothing is played twice
    edit_worlds(run, "cycle-1", [Design(worlds[0], "mine")])
    assert origins(run, "cycle-1") == ["designer"] and tried_out(run, "cycle-1")[2][2]


@pytest.mark.long
def test_one_that_never_chooses_is_an_error_that_says_so(choosing, tmp_path, monkeypatch):
    run = create_run(make_settings(**TRIED, designer="choosing", chooser="designer", max_reasks=1), tmp_path / "run")
    reply = Choosing.reply
    monkeypatch.setattr(Choosing, "reply", lambda self, request, on_text=None: reply(self, request)
                        if not request.tried else Reply("All of them, please."))
    with pytest.raises(DesignError, match="2 attempts"):
        list(run_cycles(run.path))
    assert run.worlds("cycle-1") == [] and run.text("cycle-1", "reply.md") is not None


@pytest.mark.parametrize("settings, words", [
    ({"num_candidates": 3}, "cannot be chosen out of 3"), ({"chooser": "designer"}, "set num_candidates"),
    ({"num_candidates": 8, "chooser": "designer"}, "'rules' does not read"),
    ({"num_candidates": 8, "chooser": "dice"}, "chooser"), ({"num_candidates": 8, "trial_episodes": 1}, "trial_epis")])
def test_refused(settings, words):
    with pytest.raises(SettingsError, match=words):
        make_settings(**settings)


@pytest.mark.long
def test_a_model_is_asked_twice_and_its_thoughts_are_kept_apart(tmp_path):
    """Over HTTP, with thoughts as servers give them: in a field of their own, and in the text."""
    model = get_simulator("crafter").world_class()
    wanted = format_reply([Design(model(), f"world {k}") for k in range(4)])
    taken = '<think>\nNumber 2 teaches most.\n</think>\n\n```json\n{"keep": 2}\n```\n```json\n{"keep": 4}\n```'
    script = [answer(wanted, thoughts="The agent has no iron."), answer(taken)]
    with ChatServer(*script) as server:
        options = {"base_url": server.url, "model": "m", "response_format": "text"}
        run = create_run(make_settings(**TRIED | {"num_cycles": 1}, designer="openai", designer_options=options,
                                       chooser="designer"), tmp_path / "run")
        list(run_cycles(run.path))
    assert [len(one["messages"]) for one in server.requests] == [1, 3] and run.usage().calls == 2
    assert run.text("cycle-1", "thoughts-1.md") == "The agent has no iron."
    assert run.text("cycle-1/trial", "thoughts-1.md") == "Number 2 teaches most."
    assert run.text("cycle-1", "reply.md") == wanted and "think" not in run.text("cycle-1/trial", "reply.md")
    assert run.purposes("cycle-1") == ["world 1", "world 3"]


@pytest.mark.long
def test_replayed_and_by_hand_the_second_question_has_its_place(tmp_path, choosing):
    run = create_run(make_settings(**TRIED, designer="choosing", chooser="designer"), tmp_path / "run")
    list(run_cycles(run.path))
    files = make_designer("replay", files=str(run.path)).paths
    assert [path.relative_to(run.path).as_posix() for path in files] == [
        "cycle-1/reply.md", "cycle-1/trial/rejected-1.md", "cycle-1/trial/reply.md", "cycle-2/reply.md",
        "cycle-2/trial/reply.md"]
    replayed = create_run(make_settings(**TRIED, designer="replay", chooser="designer",
                                        designer_options={"files": str(run.path)}), tmp_path / "replayed")
    list(run_cycles(replayed.path))
    same(run, replayed)
    (tmp_path / "hand").mkdir()
    (tmp_path / "hand" / "reply-cycle-2-choice.md").write_text("the second")
    manual = make_designer("manual", folder=str(tmp_path / "hand"), poll=0.01, timeout=2)
    (tmp_path / "hand" / "prompt-cycle-2-choice.md").write_text("Which?")
    asked = replace(choosing[-1], messages=({"role": "user", "content": "Which?"},))
    assert manual.reply(asked).text == "the second"
    assert json.loads((run.path / "run.json").read_text())["settings"]["num_candidates"] == 4
    assert isinstance(manual, Designer) and manual.chooses
