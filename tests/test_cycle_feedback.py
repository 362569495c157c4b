"""What a designer is told: the run's own rates, none, or those of another run; and what it may measure by itself."""
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from envgen_nb.agent.checkpoint import load_checkpoint
from envgen_nb.curriculum import Learnability
from envgen_nb.cycle import ask
from envgen_nb.cycle import run as run_module
from envgen_nb.cycle.context import archived, as_designed, design_context, world_records
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.edit import change_settings, design_again, position
from envgen_nb.cycle.events import Accepted, Evaluated, Training, TriedOut
from envgen_nb.cycle.folder import RunFolder, RunFolderError, rollouts, selected, spent_rollouts
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import SettingsError, make_settings
from envgen_nb.designer.base import Reply, Request, designers, make_designer
from envgen_nb.designer.baselines import Adversarial
from envgen_nb.designer.design import read_worlds
from envgen_nb.designer.prompt import BOTTLENECK
from envgen_nb.designer.records import WorldRecord, format_spending, percent
from envgen_nb.designer.reply import Design
from envgen_nb.designer.rules import Rules
from envgen_nb.experiment.batch import read_parameters
from envgen_nb.game.examples import Garden, GardenWorld
from envgen_nb.game.simulator import get_simulator
from envgen_nb.results import fed_back, steps_text
from envgen_nb.results.archive import context_html, tried_html
from envgen_nb.results.figures import missing_html
from envgen_nb.results.report import write_report
from envgen_nb.simulators.crafter.fast.dynamics import DEATHS
from envgen_nb.studio.conversation import conversation_html
from envgen_nb.studio.editor import Editor, latest_facts, show_run

SMALL = dict(num_cycles=3, num_worlds=2, cycle_steps=2_048, final_steps=1_024, evaluation_runs=2,
             evaluation_episodes=2, threads=1, seed=5, preset_options={"num_envs": 8, "rollout_steps": 64})
LIVE = Path(__file__).parent.parent / "nbs" / "lab" / "experiments" / "recordings" / "live"
OBJECTIVES = get_simulator("crafter").objectives


def weights(path):
    return load_checkpoint(path / "checkpoint.pt")["learner"]["policy"]


def same(some: RunFolder, other: RunFolder) -> None:
    """Bit for bit: weights, metrics, worlds, what was asked, selections."""
    ours, theirs = weights(some.path), weights(other.path)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    for cycle in some.cycles:
        strip = [[{k: v for k, v in record.items() if k != "seconds"} for record in run.metrics(cycle)]
                 for run in (some, other)]
        assert strip[0] == strip[1] and some.worlds(cycle) == other.worlds(cycle)
        assert some.selection(cycle) == other.selection(cycle)
        for name in ("prompt.md", "reply.md"):
            assert some.text(cycle, name) == other.text(cycle, name)


class Listening(Rules):
    """The rules; keeps what it was asked."""
    asked: list[Request] = []

    def reply(self, request, on_text=None):
        self.asked.append(request)
        return super().reply(request, on_text)


@pytest.fixture
def listening():
    if "listening" not in designers.names():
        designers.register("listening", f"{__name__}:Listening")
    Listening.asked.clear()
    return Listening.asked


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A whole run that tells its own rates."""
    run = create_run(make_settings(**SMALL), tmp_path_factory.mktemp("own") / "run")
    list(run_cycles(run.path))
    return run


def stopped_and_resumed(settings, path, monkeypatch):
    """A run that is stopped after worlds were tried out, after each design, and after every fifth rollout."""
    monkeypatch.setattr(run_module, "CHECKPOINT_SECONDS", 0.0)
    run, tried = create_run(settings, path), set()
    while not run.finished():
        for event in run_cycles(run.path):
            batches = event.cycle_done // run.settings.agent_preset.batch if isinstance(event, Training) else 0
            if isinstance(event, TriedOut) and event.cycle not in tried:
                tried.add(event.cycle)
                break
            if isinstance(event, Accepted) or batches % 5 == 4:
                break
    return run


# --- feedback


def test_its_own_rates(own, listening, tmp_path):
    """As it always was: the rates measured in this run, and what happened in its worlds."""
    run = create_run(make_settings(**SMALL, designer="listening"), tmp_path / "run")
    list(run_cycles(run.path))
    first, second, third = listening
    assert first.feedback is None and not (run.path / "feedback.json").exists()
    assert [one.num_cycles for one in listening] == [3, 3, 3]
    for cycle, asked in (("cycle-1", second), ("cycle-2", third)):
        assert asked.feedback == run.evaluation(cycle).feedback(OBJECTIVES)
    assert all(record.episodes for records in third.history for record in records)
    same(run, own)


def test_rates_of_training_episodes_cost_no_further_step(listening, tmp_path):
    """The last episodes of the training in the original game, in order, none that was cut."""
    settings = make_settings(**SMALL | {"cycle_steps": 8_192}, designer="listening", feedback="full",
                             rates_from="training")
    run = create_run(settings, tmp_path / "run")
    list(run_cycles(run.path))
    first, *asked = listening
    assert first.feedback is None and len(asked) == 2 and not asked[0].context.before
    for cycle, request in zip(("cycle-1", "cycle-2"), asked, strict=True):
        ended = [(length, reached) for record in run.metrics(cycle) for length, world, reached, cut in zip(
            *(record["episodes"][name] for name in ("length", "world", "unlocked")),
            record["episodes"].get("cut", [False] * len(record["episodes"]["world"])), strict=True)
            if world == 0 and not cut][-4:]
        assert len(ended) == 4 == request.context.episodes
        rates = [100 * sum(k in reached for _, reached in ended) / 4 for k in range(len(OBJECTIVES))]
        assert [mean for mean, _ in request.feedback.values()] == rates
        assert request.context.original.length == np.mean([length for length, _ in ended])
        assert run.reported(cycle).lengths.tolist() != run.evaluation(cycle).lengths.tolist()
    assert asked[1].context.before == asked[0].feedback
    assert fed_back(run) == {"measurements": 0, "steps": 0} and "that the designer read" not in steps_text(run)
    assert run.reported("cycle-0") is None and run.last_trained("cycle-0") is None
    run.settings = run.settings.model_copy(update={"evaluation_episodes": 10_000})
    assert run.last_trained("cycle-1") is None and run.reported("cycle-1") is run.evaluation("cycle-1")


def test_where_too_few_training_episodes_have_ended_it_is_measured(listening, tmp_path):
    run = create_run(make_settings(**SMALL | {"mixture_ratio": 1.0}, designer="listening", rates_from="training"),
                     tmp_path / "run")
    list(run_cycles(run.path))
    assert listening[1].feedback == run.evaluation("cycle-1").feedback(OBJECTIVES) and not listening[1].context.before
    read = sum(int(run.evaluation(cycle).lengths.sum()) for cycle in ("cycle-1", "cycle-2"))
    assert fed_back(run) == {"measurements": 2, "steps": read}


def test_as_published(listening, tmp_path):
    """Some facts and rounded rates; the conversation begins anew with the first update, and then goes on in short."""
    run = create_run(make_settings(**SMALL | {"num_cycles": 4}, designer="listening", vocabulary="published",
                                   templates="published-v1", max_reasks=0), tmp_path / "run")
    list(run_cycles(run.path))
    first, update, third, fourth = (run.text(f"cycle-{k}", "prompt.md") for k in (1, 2, 3, 4))
    spoken = [[message["content"] for message in asked.messages] for asked in listening]
    replies = [run.text(f"cycle-{k}", "reply.md") for k in (1, 2, 3)]
    assert spoken == [[first], [update], [update, replies[1], third], [update, replies[1], third, replies[2], fourth]]
    rules = [[line for line in prompt.split("## What to know")[1].splitlines() if line.startswith("- ")]
             for prompt in (first, update)]
    assert [len(lines) for lines in rules] == [10, 12] and rules[1][2:] == rules[0]
    lines = [f"{name}: {round(mean)}% +/- {round(std)}%" for name, (mean, std) in listening[3].feedback.items()]
    assert "\n".join(lines) in fourth and len(fourth.splitlines()) == len(OBJECTIVES) + 4 and "%" not in first
    assert update.count("```json") == SMALL["num_worlds"] + 1 and not any("cycle" in text for text in spoken[3])


def test_told_nothing(own, listening, tmp_path, monkeypatch):
    run = create_run(make_settings(**SMALL, designer="listening", feedback="none"), tmp_path / "run")
    events = list(run_cycles(run.path))
    assert [asked.feedback for asked in listening] == [None] * 3
    for asked in listening:
        assert not any(record.episodes or record.success or record.episode_return is not None
                       for records in asked.history for record in records)
        text = "\n".join(message["content"] for message in asked.messages)
        assert "%" not in text and "None" not in text and "success rate" not in text and "{{" not in text
    assert [len(asked.history) for asked in listening] == [0, 1, 2]
    prompts = [run.text(f"cycle-{k}", "prompt.md") for k in (1, 2, 3)]
    assert prompts[0] == own.text("cycle-1", "prompt.md") and prompts[2].count("```json") == SMALL["num_worlds"] + 1
    assert len({world for _, world in run.archive()}) == 6                          # other worlds in each cycle
    assert len([event for event in events if isinstance(event, Evaluated)]) == 5    # it is measured as any other
    assert world_records(run)[0][0].episodes > 0 and (run.path / "templates" / "no_feedback.md").exists()
    assert latest_facts(run)[0] is None
    settings = run.settings.model_copy(update={"designer": "rules"})
    again = stopped_and_resumed(settings, tmp_path / "again", monkeypatch)
    same(run, again)


def test_told_another_runs_rates(own, listening, tmp_path):
    """A placebo: what another run's agent can do; this run's own measurements stay what they are."""
    shutil.copytree(own.path, tmp_path / "other")
    run = create_run(make_settings(**SMALL | {"seed": 6}, designer="listening", feedback=str(tmp_path / "other")),
                     tmp_path / "run")
    shutil.rmtree(tmp_path / "other")                                               # the run has its own copy
    for event in run_cycles(run.path):
        if isinstance(event, Accepted) and event.cycle == "cycle-2":
            break
    list(run_cycles(run.path))
    told = [own.evaluation(cycle).feedback(OBJECTIVES) for cycle in ("cycle-1", "cycle-2")]
    assert [asked.feedback for asked in listening] == [None, *told]
    measured = run.evaluation("cycle-1").feedback(OBJECTIVES)
    assert measured != told[0]
    mean, std = told[0]["wake_up"]
    assert f"wake_up: {round(mean)}% +/- {round(std)}%" in run.text("cycle-2", "prompt.md")
    assert not any(record.episodes for asked in listening for records in asked.history for record in records)
    assert latest_facts(run)[0] == run.feedback(3)
    (run.path / "feedback.json").unlink()
    with pytest.raises(RunFolderError, match="feedback.json is missing"):
        run.feedback(2)


def test_told_what_happened_in_its_worlds(own, listening, tmp_path):
    """Beside its own rates: each world's episodes, and how the training goes on. The run is the same."""
    run = create_run(make_settings(**SMALL, designer="listening", feedback="worlds"), tmp_path / "run")
    list(run_cycles(run.path))
    first, second, third = listening
    assert first.feedback is None and "## The training" not in first.prompt
    for number, asked in ((2, second), (3, third)):
        measured, records = run.evaluation(f"cycle-{number - 1}"), asked.history[-1]
        assert asked.feedback == measured.feedback(OBJECTIVES) and len(asked.history) == number - 1
        assert f"This is cycle {number} of 3." in asked.prompt
        assert f"Of {len(measured.returns)} episodes" in asked.prompt
        before = run.evaluation(f"cycle-{number - 2}").feedback(OBJECTIVES)["wake_up"][0]
        assert f"wake_up: {percent(asked.feedback['wake_up'][0])} ({percent(before)})" in asked.prompt
        for k, record in enumerate(records, 1):
            assert f"Environment {k}: {record.episodes} episode" in asked.prompt
            name, rate = max(record.success.items(), key=lambda one: one[1])
            assert f"{name} {rate:.1f}%" in asked.prompt
            world = run.numbers(f"cycle-{number - 1}")[k - 1]
            lines = [line["episodes"] for line in run.metrics(f"cycle-{number - 1}")]
            tables = [counts[-1] for line in lines for counts, where in zip(line["counts"], line["world"], strict=True)
                      if where == world]                                    # the last skill that costs something
            assert record.counts["place_table"][0] == pytest.approx(np.mean(tables)) and len(tables) == record.episodes
            assert f"Spent in an episode: {format_spending(record, run.simulator.costs)}" in asked.prompt
    ours, theirs = weights(run.path), weights(own.path)                             # the rules go by the rates alone
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert latest_facts(run)[3].records == tuple(world_records(run)[1])
    editor = Editor(simulator="crafter")
    show_run(editor, run)
    editor.facts, editor.kind = latest_facts(run), "update"
    assert "## What happened in these environments" in editor.filled and "{{" not in editor.filled


@pytest.mark.parametrize("seed", range(8))
def test_the_recorded_runs_serve_as_a_placebo(seed, tmp_path):
    """Their rates, as their prompts told them."""
    run = create_run(make_settings(feedback=str(LIVE / f"seed-{seed}")), tmp_path / "run")
    for number in (2, 3, 4):
        told = run.feedback(number)
        text = (LIVE / f"seed-{seed}" / f"cycle-{number}.prompt.md").read_text(encoding="utf-8")
        for name, (mean, std) in told.items():
            assert f"{name}: {round(mean)}% +/- {round(std)}%" in text
    assert len(json.loads((LIVE / f"seed-{seed}" / "rates.json").read_text())) == 4


def test_rates_that_cannot_be_told_are_refused_before_anything_starts(own, tmp_path):
    rates = {name: [50, 5] for name in OBJECTIVES}

    def given(name, text):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rates.json").write_text(text)
        return tmp_path / name

    short = create_run(make_settings(**SMALL), tmp_path / "short")
    alien = given("alien", json.dumps([{"gem": [1, 0]}, rates]))
    heist = create_run(make_settings(simulator="heist"), tmp_path / "heist")
    (tmp_path / "empty").mkdir()
    wrong = [(tmp_path / "nowhere", "there is no folder"), (tmp_path / "empty", "neither a run"),
             (short.path, "has the rates after 0 cycles; a run of 3 needs them after 2"),
             (given("few", json.dumps([rates])), "after 1 cycle;"), (alien, "entry 1 is not of the objectives"),
             (heist.path, "a run of heist, not of crafter"), (given("broken", "[{"), "rates.json is damaged"),
             (given("no-list", json.dumps(rates)), "no list of rates"),
             (given("high", json.dumps([rates, rates | {"wake_up": [120, 0]}])), "entry 2 has rates that are not")]
    for folder, complaint in wrong:
        with pytest.raises(SettingsError, match=f"feedback: .*{complaint}"):
            create_run(make_settings(**SMALL, feedback=str(folder)), tmp_path / "run")
        assert not (tmp_path / "run").exists()
    create_run(make_settings(**SMALL | {"num_cycles": 4}, feedback=str(own.path)), tmp_path / "four")   # 3 are there
    with pytest.raises(SettingsError, match="there is no folder"):
        read_parameters(LIVE.parents[2] / "envgen.ipynb", [("feedback", "nowhere")])


# --- easy to hard


@pytest.mark.long
def test_easy_to_hard_in_a_run(tmp_path):
    run = create_run(make_settings(**SMALL, designer="easy_to_hard"), tmp_path / "run")
    list(run_cycles(run.path))
    assert ["cycle 1 of 3", "cycle 2 of 3", "cycle 3 of 3"] == [
        run.text(f"cycle-{k}", "reply.md").splitlines()[0].partition(": ")[2].rstrip(".") for k in (1, 2, 3)]
    assert len({world for _, world in run.archive()}) == 6


# --- adversarial

FEW = dict(SMALL, num_cycles=2, cycle_steps=8_192, world_length=100, designer="adversarial", vocabulary="extended",
           designer_options={"candidates": 6, "episodes": 2})


@pytest.fixture(scope="module")
def adversarial(tmp_path_factory):
    run = create_run(make_settings(**FEW), tmp_path_factory.mktemp("adversarial") / "run")
    return run, list(run_cycles(run.path))


def test_the_steps_of_choosing_are_of_the_budget(adversarial):
    run, events = adversarial
    batch, steps = run.settings.agent_preset.batch, selected(run)
    assert set(steps) == {"cycle-1", "cycle-2"} and all(400 < count <= 1_200 for count in steps.values())
    planned = 2 * 8_192 + 1_024
    training = [event for event in events if isinstance(event, Training)]
    trained = sum(rollouts(run).values()) * batch
    assert abs(trained + sum(steps.values()) - planned) <= batch / 2
    assert load_checkpoint(run.path / "checkpoint.pt")["learner"]["steps"] == trained
    assert training[-1].done == training[-1].steps == trained == run.metrics("final")[-1]["step"]
    assert [event.done for event in training] == [batch * (k + 1) for k in range(len(training))]
    for cycle, spent in spent_rollouts(run).items():
        phases = [record["phase"] for record in run.metrics(cycle)]
        assert len(phases) == rollouts(run)[cycle]
        if cycle != "final":
            assert 0 < spent < 8 and phases == ["worlds"] * (8 - spent) + ["original"] * 8
            one, = run.selection(cycle)
            assert len(one["worlds"]) == len(one["returns"]) == 6 and one["episodes"] == 2
            worst = sorted(range(6), key=lambda k: one["returns"][k])[:2]
            assert [world.settings() for world in run.worlds(cycle)] == [one["worlds"][k] for k in worst]
            text = run.text(cycle, "reply.md")
            assert ", ".join(f"{mean:.2f}" for mean in one["returns"]) in text
    assert run.selection("cycle-1")[0]["seed"] != run.selection("cycle-2")[0]["seed"]


@pytest.mark.long
def test_a_mixture_loses_the_same_steps(tmp_path):
    settings = make_settings(**FEW | {"num_cycles": 1, "final_steps": 0, "curriculum": "constant"})
    run = create_run(settings, tmp_path / "run")
    list(run_cycles(run.path))
    batch = run.settings.agent_preset.batch
    assert len(run.metrics("cycle-1")) == rollouts(run)["cycle-1"] == 16 - spent_rollouts(run)["cycle-1"] < 16
    assert abs(run.metrics("cycle-1")[-1]["step"] + selected(run)["cycle-1"] - 8_192) <= batch / 2


@pytest.mark.long
def test_stopped_everywhere_it_is_the_same(adversarial, tmp_path, monkeypatch):
    again = stopped_and_resumed(adversarial[0].settings, tmp_path / "run", monkeypatch)
    same(adversarial[0], again)


class Killed(Exception):
    pass


@pytest.mark.long
def test_killed_while_worlds_are_chosen_it_is_the_same(adversarial, tmp_path, monkeypatch):
    """Before, in the middle of, and after the agent has played; what is in selection.json is not played again."""
    run, played = create_run(adversarial[0].settings, tmp_path / "run"), []
    real, reply = ask.evaluate, Adversarial.reply

    def killed_playing(learner, venv, runs, seed, callback=None):
        def look(done):
            played.append(done)
            if len(played) == 30 and venv.num_envs == 12:
                raise Killed
            return callback(done)
        return real(learner, venv, runs, seed, callback=look)

    def killed_answering(self, request, on_text=None):
        reply(self, request, on_text)
        raise Killed

    while run.evaluation("cycle-0") is None:
        next(event for event in run_cycles(run.path) if isinstance(event, Evaluated))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(ask, "evaluate", killed_playing)
        list(run_cycles(run.path))
    assert run.selection("cycle-1") == [] and run.worlds("cycle-1") == []
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Adversarial, "reply", killed_answering)
        list(run_cycles(run.path))
    kept = (run.path / "cycle-1" / "selection.json").read_bytes()
    assert run.text("cycle-1", "reply.md") is None and json.loads(kept)["steps"] == selected(run)["cycle-1"]
    with monkeypatch.context() as patch:                                  # from here on nobody may play it again
        patch.setattr(ask, "_played", lambda *_: pytest.fail("it was played again"))
        next(event for event in run_cycles(run.path) if isinstance(event, Accepted))
    list(run_cycles(run.path))
    assert (run.path / "cycle-1" / "selection.json").read_bytes() == kept
    same(adversarial[0], run)


@pytest.mark.long
def test_designed_again_it_is_not_played_again(tmp_path):
    run = create_run(make_settings(**FEW), tmp_path / "run")
    next(event for event in run_cycles(run.path) if isinstance(event, Accepted))
    worlds, kept = run.worlds("cycle-1"), run.selection("cycle-1")
    assert design_again(run, "cycle-1") == 1 and position(run).step == "design"
    next(event for event in run_cycles(run.path) if isinstance(event, Accepted))
    assert run.worlds("cycle-1") == worlds and run.selection("cycle-1") == kept


def test_random_worlds_that_are_designed_again_are_others(tmp_path):
    run, found = create_run(make_settings(**FEW | {"designer": "random", "designer_options": {}}), tmp_path / "run"), []
    for put_aside in range(3):
        next(event for event in run_cycles(run.path) if isinstance(event, Accepted))
        found.append(run.worlds("cycle-1"))
        assert design_again(run, "cycle-1") == put_aside + 1
    assert found[0] != found[1] != found[2] != found[0]


def test_after_a_cycle_without_worlds_there_is_none_to_keep(tmp_path):
    """Which worlds a reply may keep is what the run counts: those of the cycle before, and no older ones."""
    run = create_run(make_settings(**SMALL | {"designer": "fixed"}), tmp_path / "run")
    for event in run_cycles(run.path):
        if isinstance(event, Evaluated) and event.cycle == "cycle-1":
            break
    change_settings(run, designer="none")
    for event in run_cycles(run.path):
        if isinstance(event, Evaluated) and event.cycle == "cycle-2":
            break
    change_settings(run, designer="fixed")
    list(run_cycles(run.path))
    assert [len(run.worlds(cycle)) for cycle in run.cycles] == [0, 2, 0, 2, 0]
    assert "kept" not in run.text("cycle-3", "reply.md")


def test_fixed_worlds_keep_their_weights():
    garden = [WorldRecord(GardenWorld(seeds=k), weight=weight) for k, weight in ((1, 8), (2, 1))]
    found = make_designer("fixed").reply(Request(Garden(), num_worlds=2, cycle=2, history=(tuple(garden),)))
    assert [one.weight for one in found.designs] == [8, 1]


def test_a_choice_is_of_what_was_tried_out():
    garden = tuple(WorldRecord(GardenWorld(seeds=k)) for k in (1, 2, 3))
    request = Request(Garden(), num_worlds=2, tried=garden)
    for second, wrong in (({"keep": 3}, 0), ({"seeds": 2}, 0), ({"seeds": 4}, 1)):
        found = read_worlds(Reply(json.dumps([{"keep": 1}, second])), request)
        assert len(found.complaints) == wrong and all("was not tried out" in str(one) for one in found.complaints)


def test_a_selection_that_is_lost_is_missed(adversarial, tmp_path):
    shutil.copytree(adversarial[0].path, tmp_path / "run")
    (tmp_path / "run" / "final" / "evaluation.json").unlink()
    list(run_cycles(tmp_path / "run"))
    (tmp_path / "run" / "cycle-1" / "selection.json").unlink()
    with pytest.raises(RunFolderError, match="cycle-1/selection.json is missing"):
        list(run_cycles(tmp_path / "run"))
    (tmp_path / "run" / "cycle-1" / "selection.json").write_text('{"steps": 3}')
    with pytest.raises(RunFolderError, match="selection.json is damaged"):
        list(run_cycles(tmp_path / "run"))


@pytest.mark.long
@pytest.mark.parametrize("curriculum", ["learnability", "plr"])
def test_a_run_whose_worlds_are_chosen_by_what_can_be_learned(curriculum, tmp_path, monkeypatch):
    """Worlds of earlier cycles are played again; a run that is stopped and resumed again and again is the same."""
    settings = make_settings(**SMALL | {"cycle_steps": 4_096, "world_length": 32, "curriculum": curriculum})
    run = create_run(settings, tmp_path / "run")
    list(run_cycles(run.path))
    played = [set(run.episodes(record).worlds.tolist()) for record in run.metrics("cycle-3")]
    assert set.union(*played) & {1, 2, 3, 4} and set.union(*played) & {5, 6} and all(0 in one for one in played[-1:])
    same(run, stopped_and_resumed(settings, tmp_path / "again", monkeypatch))


class Laddering(Rules):
    """In each cycle a ladder to the first wood, whose first stage was the second one of the cycle before."""

    def reply(self, request, on_text=None):
        worlds = [request.model(inventory_settings={"wood": k}) for k in (request.cycle, request.cycle + 1)]
        return [Design(world, "a bag with wood", goal="collect_wood") for world in worlds]


@pytest.mark.long
def test_a_run_that_climbs_ladders(tmp_path, monkeypatch):
    """Positions are in the metrics when they change; a stage that comes back is the world that it was; a run that is
    stopped and resumed again and again is the same."""
    if "laddering" not in designers.names():
        designers.register("laddering", f"{__name__}:Laddering")
    settings = make_settings(**SMALL | {
        "cycle_steps": 8_192, "world_length": 32, "design": "ladders", "designer": "laddering", "curriculum": "ladder",
        "curriculum_options": {"weak": 100, "mastered": 5, "episodes": 5}})
    run = create_run(settings, tmp_path / "run")
    list(run_cycles(run.path))
    assert [run.numbers(cycle) for cycle in run.cycles[1:4]] == [[1, 2], [2, 3], [3, 4]]
    kept = [[record.get("ladders") for record in run.metrics(cycle)] for cycle in run.cycles[1:]]
    assert all(one[0] and one[-1] for one in kept) and any(None in one for one in kept)
    found = [ladders[0] for one in kept for ladders in one if ladders]
    assert {one["goal"] for one in found} == {OBJECTIVES.index("collect_wood")} and found[-1]["playing"] == [4]
    assert {1, 2} <= {one["at"] for one in found} and found[0]["rate"] is None and found[-1]["rate"] > 0
    same(run, stopped_and_resumed(settings, tmp_path / "again", monkeypatch))
    path = run.file(RunFolder.METRICS, "cycle-1")
    path.write_text(path.read_text().replace('"ladders": [{', '"ladders": [3, {', 1))
    with pytest.raises(RunFolderError, match="wrong ladders"):
        RunFolder(run.path).metrics("cycle-1")


@pytest.mark.long
def test_random_worlds_are_of_the_run_and_nobody_designs_them(tmp_path, monkeypatch):
    """They are drawn by the run's seed and written down; a run that is stopped and resumed again and again is the same,
    and so is one that has lost what was written down."""
    settings = make_settings(**SMALL | {"cycle_steps": 8_704, "final_steps": 4_096, "num_cycles": 2, "world_length": 32,
                                        "curriculum": "domain_randomisation", "designer": "none"})
    run = create_run(settings, tmp_path / "run")
    list(run_cycles(run.path))
    assert [len(run.drawn(cycle)) for cycle in run.cycles] == [0, 8, 8, 4]     # 4 places; 18, 18 and 8 rollouts
    assert len({str(world) for _, world in run.archive()}) == len(run.archive()) == 20
    first, second = (np.concatenate([run.episodes(record).worlds for record in run.metrics(cycle)])
                     for cycle in ("cycle-1", "cycle-2"))
    assert set(first) == set(range(9)) and set(range(9, 17)) <= set(second) <= {0, *range(5, 17)}
    assert (first == 0).sum() > 0 and not run.worlds("cycle-1")
    again = stopped_and_resumed(settings, tmp_path / "again", monkeypatch)
    same(run, again)
    other = make_settings(**SMALL | {"seed": 6, "curriculum": "domain_randomisation", "designer": "none"})
    events = run_cycles(create_run(other, tmp_path / "other").path)
    next(event for event in events if isinstance(event, Training))
    events.close()
    lost = RunFolder(tmp_path / "other")
    drawn, path = lost.drawn("cycle-1"), lost.file(RunFolder.DRAWN, "cycle-1")
    assert drawn != run.drawn("cycle-1")[:len(drawn)]
    path.unlink()
    next(event for event in run_cycles(lost.path) if isinstance(event, Training))
    assert lost.drawn("cycle-1") == drawn
    path.write_text('[{"inventory_settings": {"wood": 10}}]')
    with pytest.raises(RunFolderError, match="drawn.json is damaged: Environment 1, .*wood: 10 is not"):
        lost.archive()


class Saying(Rules):
    """The rules; says first what it believes."""

    def reply(self, request, on_text=None):
        text = super().reply(request, on_text).text
        return f"**Bottleneck:** cycle {request.cycle} is *short*.\n\n{text}"


@pytest.mark.long
def test_a_designer_is_told_the_archive_and_says_the_bottleneck(tmp_path, monkeypatch):
    """Scores and retirements of all worlds so far, at the end of the cycle before; what it says is in the folder."""
    if "saying" not in designers.names():
        designers.register("saying", f"{__name__}:Saying")
    monkeypatch.setattr(Learnability, "LATEST", 12)
    monkeypatch.setattr(Learnability, "EASY", 0.0)
    settings = make_settings(**SMALL | {"cycle_steps": 8_192, "final_steps": 0, "world_length": 32, "num_cycles": 2,
                                        "curriculum": "learnability", "designer": "saying", "feedback": "worlds",
                                        "bottleneck": True})
    run = create_run(settings, tmp_path / "run")
    list(run_cycles(run.path))
    first, second = (run.text(f"cycle-{k}", RunFolder.PROMPT) for k in (1, 2))
    assert BOTTLENECK in first and BOTTLENECK in second and "This is cycle 1 of 2." in first
    assert [run.bottleneck(f"cycle-{k}") for k in (1, 2)] == [f"cycle {k} is short." for k in (1, 2)]
    standing = run.standing("cycle-1")
    assert set(standing) == {1, 2} and any(retired for _, retired in standing.values())   # whatever was reached there
    for one in design_context(run, 2).archive:
        score, retired = standing[one.number]
        what = "retired, it has become too easy" if retired else f"{score:.2f}"
        assert (one.cycle, one.score, one.retired) == (1, score, retired) and one.record.episodes
        assert f"- Cycle 1, environment {one.number}: {what}" in second
    easy = [world for world, (_, retired) in standing.items() if retired]
    assert not set(run.episodes(run.metrics("cycle-2")[-1]).worlds.tolist()) & set(easy)
    assert [(one.cycle, one.number) for one in archived(run, "cycle-2")] == [(1, 1), (1, 2), (2, 1), (2, 2)]


@pytest.mark.long
def test_a_run_that_starts_from_moments_of_its_own(tmp_path, monkeypatch):
    """Episodes of designed worlds begin where the agent got to; the designer is told what was missing there.

    A run that is stopped and resumed again and again is the same: the moments are in its checkpoint."""
    settings = make_settings(**SMALL | {
        "cycle_steps": 8_192, "world_length": 64, "vocabulary": "extended", "curriculum": "constant",
        "designer": "frontier", "designer_options": {"weak": 101.0, "learned": -1.0}, "feedback": "full"})
    run = create_run(settings, tmp_path / "run")
    list(run_cycles(run.path))
    episodes = [run.episodes(record) for record in run.metrics("cycle-3")]
    begun = [played.possible[played.worlds > 0] for played in episodes if len(played)]
    assert not np.concatenate(begun).all()                          # something was achieved before they began
    measured, prompt = run.evaluation("cycle-2"), run.text("cycle-3", RunFolder.PROMPT)
    assert f"{measured.lengths.mean():.0f} steps long on average" in prompt
    deaths = np.bincount(measured.deaths, minlength=7)[1:] / len(measured.deaths)
    assert f"{DEATHS[deaths.argmax()]} {percent(100 * deaths.max())}" in prompt
    for held in measured.held["make_iron_pickaxe"][:5]:
        said = f"{held.conditions[0]} {percent(held.episodes)}" in prompt
        assert said == (held.episodes < 95)                         # what was nearly always there is left out
    drawn = missing_html(run)
    assert "all together" in drawn and "make iron pickaxe" in drawn and write_report(run).read_text().count(drawn) == 1
    kept = run.metrics("cycle-2")[-1]["moments"]
    saplings, most = kept["after collect_sapling"], max(kept.values())
    assert saplings > 0 and f"{most} of each kind are kept" in prompt
    assert (f"after collect_sapling ({saplings})" in prompt) == (saplings < most)
    same(run, stopped_and_resumed(settings, tmp_path / "again", monkeypatch))


@pytest.mark.long
def test_everything_together_stopped_and_resumed_is_the_same(tmp_path, monkeypatch):
    """Starts from own moments with what was missing given, tried out, chosen by what can be learned in them."""
    settings = make_settings(**SMALL | {
        "num_cycles": 2, "cycle_steps": 4_096, "final_steps": 0, "world_length": 64, "vocabulary": "extended",
        "curriculum": "learnability", "designer": "missing", "feedback": "full", "num_candidates": 3,
        "designer_options": {"weak": 101.0, "learned": -1.0, "enough": 101.0}, "trial_episodes": 2})
    run = create_run(settings, tmp_path / "run")
    list(run_cycles(run.path))
    assert run.bottleneck("cycle-1") == "" and "% of the episodes" in run.bottleneck("cycle-2")
    purposes = [one.purpose for one in as_designed(run, "cycle-2")]
    assert len(purposes) == 3 and all("from where the agent gets to" in purpose for purpose in purposes)
    assert "tried out in 2 episodes each" in tried_html(run, "cycle-2")
    told = conversation_html(run, "cycle-2")
    assert "are expected" not in told and "Bottleneck, says the designer" in told and "in the archive" in told
    assert "and what was missing in them" in context_html(run, "cycle-2")
    same(run, stopped_and_resumed(settings, tmp_path / "again", monkeypatch))


class Keeping(Rules):
    """Two new worlds; then one of them, three times as often, and a new one; then both of these."""

    def reply(self, request, on_text=None):
        model = request.model
        worlds = [model(inventory_settings={"wood": k}) for k in (request.cycle, 5 + request.cycle)]
        if request.cycle == 1:
            return worlds
        one = Design(request.previous[1], "it stays", weight=3, keep=2)
        return [one, Design(worlds[0])] if request.cycle == 2 else [Design(request.previous[0], keep=1),
                                                                    Design(request.previous[1], keep=2)]


def test_a_world_that_is_kept_keeps_its_number_and_its_results(tmp_path, monkeypatch):
    """And plays as often as it weighs. A run that is stopped and resumed is the same."""
    if "keeping" not in designers.names():
        designers.register("keeping", f"{__name__}:Keeping")
    settings = make_settings(**SMALL | {"designer": "keeping", "world_length": 32, "curriculum": "constant"})
    run = create_run(settings, tmp_path / "run")
    list(run_cycles(run.path))
    assert [run.numbers(f"cycle-{k}") for k in (1, 2, 3)] == [[1, 2], [2, 3], [2, 3]]
    assert [cycle for cycle, _ in run.archive()] == ["cycle-1", "cycle-1", "cycle-2"]
    assert run.roles("cycle-2") == [(3, 2, ""), (1, None, "")] and run.worlds("cycle-2")[0] == run.worlds("cycle-1")[1]
    assert run.designs("cycle-2")[0].purpose == "it stays" and not run.file(RunFolder.ROLES, "cycle-1").exists()
    second, third = (np.concatenate([run.episodes(record).worlds for record in run.metrics(cycle)])
                     for cycle in ("cycle-2", "cycle-3"))
    assert (second == 2).sum() > 1.5 * (second == 3).sum() > 0 and set(third) & {2, 3} == {2, 3}
    first, later, last = world_records(run)
    assert first[1].episodes == later[0].episodes == last[0].episodes and later[0].weight == 3 and later[0].kept
    with_roles = run.file(RunFolder.ROLES, "cycle-2").read_text()
    same(run, stopped_and_resumed(settings, tmp_path / "again", monkeypatch))
    run.file(RunFolder.ROLES, "cycle-2").write_text(with_roles.replace('"weight": 3', '"weight": 30'))
    with pytest.raises(RunFolderError, match="roles.json is damaged"):
        run.numbers("cycle-3")
