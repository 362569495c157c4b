"""Templates, the designers that need no model, and what they have in common."""

import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from forms import own_names
from hypothesis import given
from hypothesis import strategies as st

from envgen_nb.cycle.settings import checked_settings, load_settings, make_settings
from envgen_nb.designer.base import (
    Designer,
    DesignerError,
    Reply,
    Request,
    Usage,
    WorldRecord,
    designers,
    make_designer,
)
from envgen_nb.designer.baselines import drawn_worlds, from_easy_to_hard
from envgen_nb.designer.design import conversation, design
from envgen_nb.designer.manual import Replay
from envgen_nb.designer.prompt import (
    KINDS,
    PLACEHOLDERS,
    Templates,
    check_template,
    fill,
    first_prompt,
    load_templates,
    placeholders,
    save_templates,
    update_prompt,
)
from envgen_nb.designer.reply import Design, format_reply, parse_reply
from envgen_nb.designer.rules import KNOWN, REACH, choose, depths, ranking, within_reach
from envgen_nb.experiment.file import parse_experiment
from envgen_nb.game.files import write_text
from envgen_nb.game.simulator import get_simulator
from envgen_nb.game.world import check_world, parameters
from envgen_nb.game.world_files import save_worlds

RECORDINGS = Path(__file__).parent / "recordings"
CRAFTER = get_simulator("crafter")
VOCABULARIES = tuple(CRAFTER.vocabularies)
RATES = {name: (round(100 / (1 + i), 1), 2.0) for i, name in enumerate(CRAFTER.objectives)}


def request(**changes) -> Request:
    return Request(**{"simulator": CRAFTER, "messages": conversation([], "Design four worlds."), **changes})


def asked(text: str, role: str = "user") -> dict:
    return {"role": role, "content": text}


# --- templates


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("num_worlds", [1, 2, 4, 9])
def test_prompts_hold_all_that_a_designer_must_know(vocabulary, num_worlds):
    model = CRAFTER.world_class(vocabulary)
    previous = [world for name in CRAFTER.objectives[:num_worlds] for world in CRAFTER.practice(name, vocabulary)[:1]]
    first = first_prompt(load_templates(), CRAFTER, vocabulary, num_worlds)
    update = update_prompt(load_templates(), CRAFTER, vocabulary, num_worlds, RATES, previous)
    for prompt in (first, update):
        assert "{{" not in prompt and CRAFTER.task in prompt and f"design: {num_worlds}\n" in prompt
        for words in (*CRAFTER.objectives, *CRAFTER.rules):
            assert words in prompt
        listed = dict(line[2:].split(": ", 1) for line in prompt.splitlines() if re.match(r"- [a-z_, ]+: ", line))
        said = {name: text for names, text in listed.items() for name in names.split(", ")}
        assert all(said[p.name].startswith(p.allowed) for p in parameters(model))
    for name, (mean, std) in RATES.items():
        assert f"{name}: {round(mean)}% +/- {round(std)}%" in update
    assert update.count("```json") == num_worlds + 1
    shown, complaints = parse_reply(update[:update.index("## Settings")], model, num_worlds)
    assert complaints == [] and [d.world for d in shown] == previous      # what it shows could be answered as it is


def test_edited_templates_are_used_as_given(tmp_path):
    packaged = load_templates()
    mine = {kind: getattr(packaged, kind).replace("{{rules}}", "{{!rules}}") + '\nMore: {"a": {"b": {}}} %s {0} \\1 }}'
            for kind in KINDS}
    for kind, text in mine.items():
        write_text(tmp_path / f"{kind}.md", text)
    templates = load_templates(tmp_path)
    prompt = first_prompt(templates, CRAFTER)
    assert prompt.endswith('More: {"a": {"b": {}}} %s {0} \\1 }}') and not any(rule in prompt for rule in CRAFTER.rules)
    save_templates(templates, tmp_path / "run")
    again = load_templates(tmp_path / "run")
    assert (again.first, again.update) == (templates.first, templates.update)


@pytest.mark.parametrize("kind", KINDS)
def test_every_placeholder_is_missed(kind):
    whole = " ".join(f"{{{{{name}}}}}" for name in placeholders(kind))
    assert check_template(whole, kind) == []
    for name in set(placeholders(kind)) - {"remarks"}:
        complaint, = check_template(whole.replace(f"{{{{{name}}}}}", ""), kind)
        assert f"{{{{{name}}}}} is missing" in complaint
    with pytest.raises(ValueError, match="bogus"):
        Templates("mine", **{k: whole + "{{bogus}}" if k == kind else getattr(load_templates(), k) for k in KINDS})


def test_broken_template_files(tmp_path):
    save_templates(load_templates(), tmp_path)
    (tmp_path / "update.md").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not UTF-8"):
        load_templates(tmp_path)
    (tmp_path / "update.md").unlink()
    with pytest.raises(ValueError, match="No such file"):
        load_templates(tmp_path)


def test_a_template_from_before_there_were_remarks_still_serves(tmp_path):
    save_templates(load_templates("v1"), tmp_path)
    older = load_templates(tmp_path)
    assert "{{remarks}}" not in older.update and "{{remarks}}" in load_templates().update
    worlds = [CRAFTER.practice("collect_coal")[0]]
    prompt = update_prompt(older, CRAFTER, "paper", 1, RATES, worlds)
    assert not any("no water" in line for line in prompt.splitlines() if line.removeprefix("- ") not in CRAFTER.rules)


def test_an_update_says_what_was_in_vain_and_what_a_person_changed():
    barren, complaints = check_world(CRAFTER.world_class(), {
        "environment_settings": {"target_biome": "beaches", "diamond_rarity": "very common"},
        "inventory_settings": {"stone_pickaxe": 1}})
    assert not complaints
    prompt = update_prompt(load_templates(), CRAFTER, "paper", 4, RATES, [CRAFTER.world_class()(), barren, barren],
                           ["person", "designer", "edited"])
    lines = [line for line in prompt.splitlines() if line.startswith("- Environment")]
    assert lines[0] == "- Environment 1: a person wrote it."
    for number in (2, 3):
        assert (f"- Environment {number}, environment_settings.diamond_rarity: a beaches world has no mountains, and "
                "diamond is found only there.") in lines
        assert (f"- Environment {number}, inventory_settings.stone_pickaxe: stone_pickaxe is needed only to mine iron, "
                "and there is none here.") in lines
    assert [line for line in lines if "purpose" in line] == [lines[-1]] and lines[-1].startswith("- Environment 3:")
    assert len(lines) == 6


def test_without_feedback_a_later_prompt_tells_the_worlds_and_no_rates(tmp_path):
    """It reads as if nobody had measured anything; the folder of a user may have one of its own."""
    worlds = [world for name in CRAFTER.objectives[:3] for world in CRAFTER.practice(name)[:1]]
    prompt = update_prompt(load_templates(), CRAFTER, "paper", 4, None, worlds)
    assert not any(word in prompt for word in ("{{", "None", "%", "+/-", "success rate", "how often", "\n\n\n"))
    assert prompt.count("```json") == len(worlds) + 1 and "What to know about these environments:\n\n- " in prompt
    for words in (*CRAFTER.objectives, *CRAFTER.rules, CRAFTER.task):
        assert words in prompt
    assert update_prompt(load_templates(), CRAFTER, "paper", 4, None, []) == first_prompt(load_templates(), CRAFTER)
    save_templates(load_templates(), tmp_path)
    write_text(tmp_path / "no_feedback.md", load_templates().no_feedback + "Be brave.")
    assert update_prompt(load_templates(tmp_path), CRAFTER, "paper", 4, None, worlds) == prompt + "Be brave."
    write_text(tmp_path / "no_feedback.md", load_templates().update)
    with pytest.raises(ValueError, match="(?s)the no_feedback prompt of .*rates}} is not a placeholder"):
        load_templates(tmp_path)


@given(st.text(), st.dictionaries(st.sampled_from(sorted(PLACEHOLDERS)), st.text(), min_size=len(PLACEHOLDERS)))
def test_what_is_filled_in_is_not_filled_again(text, values):
    for template in (text, "{{task}}" + text.replace("{", "(")):
        assert isinstance(check_template(template, "first"), list)
    nested = {name: f"{value}{{{{rules}}}}" for name, value in values.items()}
    assert fill("{{task}} | {{rules}}", nested) == f"{nested['task']} | {nested['rules']}"


# --- all designers that need no model


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("feedback", [None, RATES], ids=["first", "later"])
@pytest.mark.parametrize("num_worlds", [1, 4, 30])
@pytest.mark.parametrize("name", ["rules", "random", "fixed", "easy_to_hard"])
def test_designers_without_a_model(name, num_worlds, feedback, vocabulary):
    this = request(vocabulary=vocabulary, num_worlds=num_worlds, feedback=feedback, cycle=2 if feedback else 1, seed=5)
    attempt, = design(make_designer(name), this)
    assert attempt.complaints == () and len(attempt.designs) == num_worlds
    assert all(type(d.world) is this.model and d.purpose for d in attempt.designs)
    assert attempt.reply.usage == Usage() and make_designer(name).reply(this) == attempt.reply


def test_the_name_of_an_earlier_version_is_read_and_named_as_old(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(designers, "mentioned", set())
    (tmp_path / "settings.ini").write_text("[designer]\nname = offline\n")
    assert load_settings(tmp_path / "settings.ini").designer == make_settings(designer="offline").designer == "rules"
    assert capsys.readouterr().err == "the designer 'offline' is now called 'rules'\n"        # once
    assert checked_settings({"designer": "offline"}) == checked_settings({})
    assert make_designer("fixed", base="offline").base.name == "rules" and designers.options("offline") == ()
    toml = 'name = "old"\nbaseline = "a"\nseeds = [1]\n[arms.a]\ndesigner = "{}"\n'
    old, new = (parse_experiment(toml.format(name), tmp_path) for name in ("offline", "rules"))
    assert old.given("a") == new.given("a") and old.settings_of("a", 1) == new.settings_of("a", 1)
    assert "offline" not in designers.names()


@pytest.mark.parametrize("place", ["settings.ini", "docs/guides/models.md", "nbs/2_designer/08_base.ipynb",
                                   "nbs/lab/envgen.ipynb"])
def test_every_list_of_designers_names_all(place):
    text = (Path(__file__).parent.parent / place).read_text()
    listed = text[:text.index("[agent]")] if place == "settings.ini" else text
    own = own_names(designers)
    assert [name for name in own if not re.search(rf"(?<![\w]){name}\b", listed)] == []


def test_all_designers_have_names_and_settings():
    assert set(designers.names()) >= {"openai", "replay", "manual", "rules", "random", "fixed", "easy_to_hard",
                                      "adversarial", "none"}
    assert designers.options("rules") == () and {"model", "base_url", "api_key_env"} <= set(designers.options("openai"))
    assert "api_key" not in designers.options("openai")
    for name in ("rules", "none", "random", "manual", "fixed", "easy_to_hard", "adversarial"):
        assert isinstance(make_designer(name), Designer)
        with pytest.raises(ValueError, match=f"{name}.*no setting colour"):
            make_designer(name, colour="red")
    for name, missing in (("openai", "model"), ("replay", "files")):
        with pytest.raises(ValueError, match=f"needs the setting {missing}"):
            make_designer(name)


# --- rules


def test_rules_go_by_the_rates():
    this = request(feedback=RATES, cycle=2)
    order = ranking(this)
    assert sorted(order) == sorted(CRAFTER.objectives)
    for objective in order:
        before = CRAFTER.prerequisites(objective)
        assert within_reach(this, objective) == all(RATES[name][0] >= REACH for name in before)
    ready = [name for name in order if RATES[name][0] < KNOWN and within_reach(this, name)]
    assert order[:len(ready)] == sorted(ready, key=lambda name: (RATES[name][0], depths(CRAFTER)[name]))
    text = make_designer("rules").reply(this).text
    assert "not a language model" in text and order[0] in text and f"({RATES[order[0]][0]:.0f}%)" in text


def test_rules_change_with_the_rates():
    beginner = request(feedback={name: (0.0, 0.0) for name in CRAFTER.objectives}, cycle=2)
    learned = {name: (95.0 if depths(CRAFTER)[name] < 3 else 0.0, 1.0) for name in CRAFTER.objectives}
    expert = request(feedback=learned, cycle=3)
    easy, hard = ({depths(CRAFTER)[name] for _, names in choose(this) for name in names} for this in (beginner, expert))
    assert min(easy) == 0 and min(hard) >= 3
    stuck = request(feedback={name: (0.0, 0.0) for name in CRAFTER.objectives}, cycle=3,
                    history=(tuple(WorldRecord(world) for world, _ in choose(beginner)),))
    variants = [name for _, names in choose(beginner) for name in names if len(CRAFTER.practice(name)) > 1]
    assert not variants or [w for w, _ in choose(stuck)] != [w for w, _ in choose(beginner)]


def test_rules_without_rates_go_on_to_other_worlds():
    """As in the first cycle, spread from easy to hard; worlds that were not used come first, by the run's seed."""
    for vocabulary in VOCABULARIES:
        history, used = [], []
        for cycle in range(1, 6):
            this = request(vocabulary=vocabulary, cycle=cycle, num_cycles=5, seed=7, history=tuple(history))
            worlds = [world for world, _ in choose(this)]
            deep = [depths(CRAFTER)[names[0]] for _, names in choose(this)]
            assert worlds == [world for world, _ in choose(this)] and len(set(worlds)) == 4
            assert deep == sorted(deep) and deep[0] < deep[-1]
            history.append(tuple(WorldRecord(world) for world in worlds))
            used += worlds
        assert len(set(used)) == 20
    again = make_designer("rules").reply(this).text
    assert "no rates in the request" in again and "%" not in again


# --- easy to hard, and adversarial


@pytest.mark.parametrize("num_cycles, num_worlds", [(1, 1), (1, 4), (4, 4), (4, 1), (30, 2)])
def test_easy_to_hard_walks_from_the_first_world_to_the_last(num_cycles, num_worlds):
    whole = from_easy_to_hard(request())
    worlds, counts = [world for world, _, _ in whole], [count for _, _, count in whole]
    every = {world for name in CRAFTER.objectives for world in CRAFTER.practice(name)}
    assert counts == sorted(counts) and set(worlds) == every
    places = []
    for cycle in range(1, num_cycles + 1):
        attempt, = design(make_designer("easy_to_hard"), request(cycle=cycle, num_cycles=num_cycles,
                                                                 num_worlds=num_worlds, feedback=RATES, seed=cycle))
        places += [worlds.index(one.world) for one in attempt.designs]
    assert places == sorted(places) and places[0] == 0
    steps = [b - a for a, b in zip(places, places[1:], strict=False)]
    assert not steps or (places[-1] == len(worlds) - 1 and max(steps) - min(steps) <= 1)


def test_adversarial_takes_those_with_the_lowest_returns_in_the_order_drawn():
    asked = []

    def measure(worlds, episodes):
        asked.append((tuple(worlds), episodes))
        return [WorldRecord(world, episodes=episodes, episode_return=float(k % 4)) for k, world in enumerate(worlds)]

    this = request(seed=4, cycle=2, num_worlds=5, measure=measure)
    attempt, = design(make_designer("adversarial"), this)
    (drawn, episodes), = asked
    assert len(drawn) == 16 and episodes == 4
    assert list(drawn[:5]) == [one.world for one in next(design(make_designer("random"), this)).designs]
    assert [one.world for one in attempt.designs] == [drawn[k] for k in (0, 4, 8, 12, 1)]
    assert "0.00, 1.00, 2.00, 3.00, 0.00" in attempt.reply.text
    own = make_designer("adversarial", candidates=6, episodes=1, fill=0.2)
    attempt, = design(own, request(num_worlds=2, measure=lambda worlds, episodes: [
        WorldRecord(world, episode_return=1.0) for world in worlds]))
    assert [one.world for one in attempt.designs] == drawn_worlds(request(num_worlds=2), 6, 0.2)[:2]
    for name, value in [("candidates", 0), ("episodes", 0), ("fill", 2)]:
        with pytest.raises(ValueError, match=name):
            make_designer("adversarial", **{name: value})
    with pytest.raises(DesignerError, match="in a run only"):
        make_designer("adversarial").reply(request())


# --- backward


def test_steps_back_from_a_file(tmp_path):
    "One's own ladders: the next stage when the last is mastered, and nothing that is not in the file."
    path, model = tmp_path / "steps.json", CRAFTER.world_class("extended")
    rows = [{"episode_settings": {"length": length, "goal": "make_iron_sword"}} for length in (32, 64, 128)]
    worlds = [check_world(model, row)[0] for row in rows]
    rates = {name: (50.0, 1.0) for name in CRAFTER.objectives}
    rates |= {"make_iron_sword": (0.0, 0.0), "eat_plant": (0.0, 0.0)}

    def offered(*history):
        this = request(vocabulary="extended", num_worlds=2, cycle=3, num_cycles=4, feedback=rates, history=history)
        attempt, = design(make_designer("backward", steps=str(path)), this)
        return [one.world for one in attempt.designs]

    path.write_text(json.dumps({"make_iron_sword": rows}))
    assert offered() == worlds[:2]
    mastered = WorldRecord(worlds[0], episodes=40, success={"make_iron_sword": 60.0})
    assert offered((mastered,)) == worlds[1:]
    path.write_text(json.dumps({"collect_drink": rows[:1]}))          # that is not weak
    assert offered() == [model()] * 2
    for text, told in [("{", "cannot be used"), ("[]", "cannot be used"), ('{"fly": [{}]}', "fly"),
                       ('{"make_iron_sword": []}', "make_iron_sword"),
                       ('{"make_iron_sword": [{"gnomes": 1}]}', "gnomes")]:
        path.write_text(text)
        with pytest.raises(DesignerError, match=told):
            offered()
    with pytest.raises(ValueError, match="no file of ladders"):
        make_designer("backward", steps=str(tmp_path / "nowhere.json"))


# --- fixed


def test_fixed_keeps_its_worlds_after_a_restart(tmp_path):
    first, = design(make_designer("fixed", base="random"), request(seed=3))
    worlds = tuple(d.world for d in first.designs)
    history = (tuple(map(WorldRecord, worlds)),)
    later, = design(make_designer("fixed", base="random"), request(seed=3, cycle=3, history=history, feedback=RATES))
    assert tuple(d.world for d in later.designs) == worlds
    save_worlds(worlds, tmp_path / "worlds.json")
    read, = design(make_designer("fixed", worlds=str(tmp_path / "worlds.json")), request())
    assert tuple(d.world for d in read.designs) == worlds
    (tmp_path / "worlds.json").write_text(json.dumps([{"environment_settings": {"coal_rarity": "very_common"}}] * 4))
    read, = design(make_designer("fixed", worlds=str(tmp_path / "worlds.json")), request())
    assert read.designs[0].world.environment_settings.coal_rarity == "very common"    # the authors' spelling
    (tmp_path / "worlds.json").write_text('[{"gnomes": 1}]')
    with pytest.raises(DesignerError, match="gnomes"):
        list(design(make_designer("fixed", worlds=str(tmp_path / "worlds.json")), request()))


# --- replay


def test_replay_of_real_replies_through_two_cycles():
    designer = make_designer("replay", files=[str(RECORDINGS / f"crafter-{kind}.md") for kind in KINDS])
    one, = design(designer, request())
    history = [("Design four worlds.", one.reply.text)]
    two, = design(designer, request(messages=conversation(history, "And now?"), cycle=2, feedback=RATES))
    assert two.designs[0].world != one.designs[0].world and "crafter-update.md" in two.reply.notes[0]
    history.append(("And now?", two.reply.text))
    third = request(messages=conversation(history, "Once more."), cycle=3)
    with pytest.raises(DesignerError, match="have run out: there are 2, and number 3 is asked for"):
        list(design(designer, third))
    patient = make_designer("replay", files=RECORDINGS / "crafter-update.md", repeat_last="true")
    assert list(design(patient, third))[0].designs == two.designs


def test_replay_of_an_earlier_run(tmp_path):
    good = format_reply([Design(world, "p") for world in CRAFTER.practice("eat_cow")[:1] * 4])
    for name, text in {"cycle-1/rejected-1.md": "no", "cycle-1/reply.md": good, "cycle-2/reply.md": good + "\nSecond.",
                       "cycle-10/reply.md": good + "\nTenth.", "cycle-1/prompt.md": "p", "settings.json": "{}",
                       "cycle-1/complaints-1.md": "c", "manual/reply-cycle-1.md": "m", "first.md": "t"}.items():
        write_text(tmp_path / name, text)
    designer = make_designer("replay", files=tmp_path)
    assert [attempt.reply.text for attempt in design(designer, request())] == ["no", good]
    again = list(design(designer, request(), recorded=["no"]))                       # killed after the first reply
    assert [attempt.reply.text for attempt in again] == ["no", good]
    third = conversation([("p", good), ("p", good + "\nSecond.")], "p")
    assert next(design(designer, request(messages=third, cycle=3))).reply.text.endswith("Tenth.")


def test_replay_of_replies_that_are_alike(tmp_path):
    for n in range(3):
        write_text(tmp_path / f"{n}.md", "same")
    designer = make_designer("replay", files=tmp_path)
    for used in range(3):
        messages = conversation([("p", "same")] * used, "p")
        assert designer.reply(request(messages=messages, cycle=used + 1)).notes == (f"replayed from {used}.md",)


# --- manual


def test_manual_takes_files_that_are_still_being_written(tmp_path):
    good = format_reply([Design(world, "p") for world in CRAFTER.practice("eat_cow")[:1] * 4])
    folder, waits = tmp_path / "manual", []

    def person():
        while not (folder / "prompt-cycle-1.md").exists():
            time.sleep(0.01)
        with open(folder / "reply-cycle-1.md", "w") as file:              # slowly, in many writes
            for start in range(0, len(good), 60):
                file.write(good[start:start + 60])
                file.flush()
                time.sleep(0.05)

    threading.Thread(target=person, daemon=True).start()
    designer = make_designer("manual", folder=str(folder), poll="0.2", timeout=60)
    attempt, = design(designer, request(), on_text=waits.append)
    assert attempt.complaints == () and attempt.reply.text == good.strip() and len(waits) > 1


def test_manual_asks_again_in_new_files_and_keeps_all(tmp_path):
    good = format_reply([Design(world, "p") for world in CRAFTER.practice("eat_cow")[:1] * 4])
    write_text(tmp_path / "prompt-cycle-1.md", "Design four worlds.")
    write_text(tmp_path / "reply-cycle-1.md", "\ufeffI forgot the JSON.")
    write_text(tmp_path / "prompt-cycle-1-again-1.md", "an older prompt")
    write_text(tmp_path / "reply-cycle-1-again-1.md", "an older reply")

    def person():
        while "JSON" not in (tmp_path / "prompt-cycle-1-again-1.md").read_text():
            time.sleep(0.01)
        (tmp_path / "reply-cycle-1-again-1.md").write_bytes(good.encode("utf-16"))      # Notepad's "Unicode"

    threading.Thread(target=person, daemon=True).start()
    designer = make_designer("manual", folder=tmp_path, poll=0.05, timeout=60)
    first, second = design(designer, request())
    assert "no JSON" in str(first.complaints[0]) and second.complaints == ()
    assert "cannot be used" in (tmp_path / "prompt-cycle-1-again-1.md").read_text()
    assert (tmp_path / "reply-cycle-1-again-1.old-1.md").read_text() == "an older reply"


def test_manual_can_be_stopped_and_times_out(tmp_path):
    class Stop(Exception):
        pass

    def stop(text):
        raise Stop
    designer = make_designer("manual", folder=tmp_path, poll=0.01, timeout=0.05)
    with pytest.raises(Stop):
        designer.reply(request(), on_text=stop)
    with pytest.raises(DesignerError, match="no reply came within 0.05 s; save it as .*reply-cycle-1.md and resume"):
        designer.reply(request())
    write_text(tmp_path / "reply-cycle-1.md", "  \n")                      # nothing in it yet
    with pytest.raises(DesignerError, match="no reply came"):
        designer.reply(request())


def test_manual_through_a_function():
    designer = make_designer("manual", ask=lambda asked: f"seen: {asked.prompt}")
    assert designer.reply(request()) == Reply("seen: Design four worlds.", notes=("given by a person",))


# --- the conversation, and the shape of the package


def test_conversation_keeps_its_history():
    messages = conversation([("one", "1"), ("two", "2")], "three")
    assert messages == (asked("one"), asked("1", "assistant"), asked("two"), asked("2", "assistant"), asked("three"))


def test_designer_needs_no_torch_and_no_game():
    modules = sorted(f"envgen_nb.designer.{path.stem}" for path in
                     (Path(__file__).parents[1] / "envgen_nb" / "designer").glob("*.py") if path.stem != "__init__")
    code = (f"import sys, {', '.join(modules)}\n"
            "print([m for m in sys.modules if m == 'torch' or m.startswith(('envgen_nb.sim', 'envgen_nb.agent'))])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]" and len(modules) > 9


def test_the_recorded_runs_can_be_replayed():
    """Prompts lie beside the replies there, and are not taken for some."""
    folder = Path(__file__).parent.parent / "nbs" / "lab" / "experiments" / "recordings" / "live"
    for seed in range(8):
        replay, model = Replay(files=folder / f"seed-{seed}"), get_simulator("crafter").world_class("paper")
        assert [path.name for path in replay.paths] == [f"cycle-{k}.reply.md" for k in range(1, 5)]
        assert all(parse_reply(text, model, 4)[1] == [] for text in replay.texts)
