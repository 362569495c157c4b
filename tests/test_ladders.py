"""Ladders from reply to report: mutated replies, whole runs with few calls, kills, replays, other games, files."""

import json
import random
import re
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, answer
from game_by_docs import Orchard
from PIL import Image
from test_cycle_feedback import same

from envgen_nb.cycle.context import design_context, ladder_records
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.designer.base import DesignerError, Request, make_designer
from envgen_nb.designer.lenient import MAX_NESTING
from envgen_nb.designer.manual import unanswered
from envgen_nb.designer.prompt import load_templates, update_prompt
from envgen_nb.designer.records import LadderRecord, StageRecord, Unlearned, WorldRecord, format_ladders
from envgen_nb.designer.reply import MAX_STAGES, Design, format_reply, ladders_of, read_reply
from envgen_nb.designer.schema import response_schema
from envgen_nb.extras.cli import main
from envgen_nb.game.files import write_text
from envgen_nb.game.simulator import games, get_simulator
from envgen_nb.game.world import World, check_world
from envgen_nb.simulators.heist.game import procgen_package

RECORDED = sorted((Path(__file__).parent / "recordings" / "ladders-572").glob("reply-*.md"))
CRAFTER = get_simulator("crafter")
MODEL = CRAFTER.world_class("extended")
GOALS = CRAFTER.objectives


def read(text: str, num_worlds: int = 2, previous: tuple[World, ...] = ()):
    return read_reply(text, MODEL, num_worlds, previous, objectives=GOALS)


# --- recorded replies


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_ladders_are_read_whole(path):
    text = path.read_text()
    found, data = read(text), json.loads(text)
    assert found.complaints == () and len(RECORDED) == 4
    ladders = ladders_of(found.designs)
    assert [ladder.goal for ladder in ladders] == list(data)
    assert [[stage.settings() for stage in ladder.stages] for ladder in ladders] == [
        [MODEL.model_validate(stage).settings() for stage in stages] for stages in data.values()]


def test_a_stage_that_comes_back_keeps_its_record():
    first, second = (read(path.read_text()).designs for path in RECORDED[:2])
    previous = tuple(design.world for design in first)
    again = read(RECORDED[1].read_text(), previous=previous).designs
    assert [one.world for one in again] == [one.world for one in second]
    same = [one.keep for one in again if one.keep]
    assert len(same) == len(set(same)) > 0
    assert all(one.world == previous[one.keep - 1] if one.keep else one.world not in previous or
               previous.count(one.world) < [two.world for two in again].count(one.world) for one in again)


def test_a_stage_stays_by_its_number():
    previous = tuple(design.world for design in read(RECORDED[0].read_text()).designs)
    wanted = '{"collect_iron": [{"keep": 20}, {"keep": 2}, {"inventory_settings": {"wood": 1}}]}'
    found = read(wanted, previous=previous)
    assert found.complaints == () and [one.keep for one in found.designs] == [20, 2, None]
    assert [one.world for one in found.designs[:2]] == [previous[19], previous[1]]
    for wrong in ('{"keep": 33}', '{"keep": 0}', '{"keep": "2"}', '{"keep": null}', '{"keep": [2]}',
                  '{"keep": 2, "inventory_settings": {}}', '{"keep": 2}, {"keep": 2}'):
        assert read(f'{{"collect_iron": [{wrong}]}}', previous=previous).complaints, wrong


# --- mutated replies


class Wrong(Exception):
    "What a strict reader does not accept."


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise Wrong("a key twice")
    return dict(pairs)


def _constant(name: str) -> None:
    raise Wrong(name)


def _world(data: Any) -> World:
    world, complaints = check_world(MODEL, data)
    if complaints:
        raise Wrong(str(complaints[0]))
    return world


def _settings(data: Any) -> Any:
    "The settings of a stage or of an environment, which may have a purpose beside them, and `settings` around them."
    if isinstance(data, dict) and isinstance(data.get("purpose"), str):
        data = {key: value for key, value in data.items() if key != "purpose"}
    return data["settings"] if isinstance(data, dict) and list(data) == ["settings"] else data


def _is_remark(value: Any) -> bool:
    return isinstance(value, str) and '{"' not in value and "{}" not in value


def _strict(value: Any, found: dict[str, list[World]], beside: list[World], purposes: bool) -> None:
    "Add the ladders and the environments of a value; `Wrong` if it is anything else."
    if isinstance(value, list):
        for item in value:
            if not isinstance(item, dict):
                raise Wrong("no object")
            _strict(item, found, beside, purposes)
        return
    if "stages" in value:
        goal, stages, rest = value.get("goal"), value["stages"], {
            key: part for key, part in value.items() if key not in ("goal", "stages", "purpose")}
        if not isinstance(value.get("purpose"), str | None) or not all(map(_is_remark, rest.values())):
            raise Wrong("beside the stages")
        return _add(goal, stages, found)
    several = {"ladders", "environments", "worlds"} & set(value)
    if several or set(value) & set(GOALS):
        for key, part in value.items():
            if key in several and isinstance(part, list):
                _strict(part, found, beside, purposes)
            elif key in GOALS:
                _add(key, part, found)
            elif not _is_remark(part):
                raise Wrong(f"{key} beside ladders")
        return
    weight, keep = value.get("weight"), value.get("keep")
    if keep is not None or not (weight is None or type(weight) is int and 1 <= weight <= 8):
        raise Wrong("weight or keep")
    beside.append(_world(_settings({key: part for key, part in value.items() if key not in ("weight", "keep")})))


def _add(goal: Any, stages: Any, found: dict[str, list[World]]) -> None:
    if not isinstance(goal, str) or goal not in GOALS or goal in found:
        raise Wrong(f"goal {goal}")
    if not isinstance(stages, list) or not 1 <= len(stages) <= MAX_STAGES:
        raise Wrong("number of stages")
    found[goal] = [_world(_settings(stage)) for stage in stages]


def strict(text: str) -> tuple[dict[str, list[World]], list[World]] | None:
    "What is in a reply by the book; None: it is not JSON by the book; `Wrong`: it is, and is not what was asked for."
    blocks = [text]
    if "```" in text:
        blocks = re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        bare = re.sub(r"^```json\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        if "`" in bare or "{" in bare or "}" in bare or not blocks:
            return None
    found, beside = {}, []
    try:
        values = [json.loads(block, object_pairs_hook=_pairs, parse_constant=_constant) for block in blocks]
    except ValueError:
        return None
    for value in values:
        if not isinstance(value, dict | list) or depth(value) > MAX_NESTING:
            raise Wrong("no object")
        _strict(value, found, beside, False)
    if not found or len(beside) > 2:
        raise Wrong("number of ladders or of environments")
    return found, beside


def depth(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if parts is None else 1 + max(map(depth, parts), default=0)


def originals() -> list[str]:
    "Recorded replies in their own form, in that of the prompt, and in that of a structured reply."
    found = []
    for path in RECORDED:
        text = path.read_text()
        designs = [*read(text).designs, Design(MODEL(inventory_settings={"wood": 3}), "one beside them", weight=2)]
        ladders = [{"goal": one.goal, "purpose": "why", "stages": [{"settings": stage.settings()}
                                                                   for stage in one.stages]}
                   for one in ladders_of(designs)]
        beside = [{"purpose": "why", "settings": designs[-1].world.settings()}]
        found += [text, format_reply(designs, "These are corrected ladders."), json.dumps(ladders, indent=1),
                  json.dumps({"bottleneck": "iron", "ladders": ladders, "environments": beside})]
        short = [one for one in designs if one.goal in (ladders[0]["goal"], ladders[-1]["goal"])]
        found += [format_reply(short), format_reply(short).replace("```json", "```")]
    return found


# --- of characters


def _characters(text: str, rng: random.Random) -> str:
    at = rng.choice([rng.randrange(len(text)), *(match.start() for match in re.finditer(r"[{}\[\]\":,`]", text))])
    how = rng.choice(["drop", "double", "swap", "other", "cut", "lose a stretch"])
    if how == "drop":
        return text[:at] + text[at + 1:]
    if how == "double":
        return text[:at] + text[at] + text[at:]
    if how == "swap":
        return text[:at] + text[at + 1:at + 2] + text[at] + text[at + 2:]
    if how == "other":
        return text[:at] + rng.choice("{}[]\",:`'x0\n~<>/\\\x00é") + text[at + 1:]
    return text[:at] if how == "cut" else text[:at] + text[at + rng.randrange(2, 400):]


def _word(text: str, rng: random.Random) -> str:
    "Misspell or replace a name, or change a number."
    match = rng.choice(list(re.finditer(r'"[^"\n]*"|\b\d+\b', text)))
    old = match.group()
    if old[0] == '"':
        new = rng.choice([old[:-2] + '"', old.upper(), f'"{rng.choice(GOALS)}"', '"stages"', '"goal"', '"keep"',
                          '"weight"', '"purpose"', '"ladders"', '"environments"', '""', "null", "7", old[1:-1], "[]"])
    else:
        new = rng.choice(["-1", "0", "99", "1e9", "1.5", "1e999", "null", "true", '"3"', "[3]", "{}", "NaN", "007",
                          "3 // a remark", "3,"])
    return text[:match.start()] + new + text[match.end():]


def _line(text: str, rng: random.Random) -> str:
    "Lose, double or move a line."
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    line = lines.pop(at)
    if rng.random() < 0.6:
        lines.insert(rng.randrange(len(lines) + 1), line)
    if rng.random() < 0.5:
        lines.insert(at, line)
    return "\n".join(lines)


# --- of data


def _places(value: Any) -> list[tuple[Any, Any]]:
    "Each container in a value with each key in it."
    keys = range(len(value)) if isinstance(value, list) else list(value) if isinstance(value, dict) else ()
    return [place for key in keys for place in [(value, key), *_places(value[key])]]


def _data(value: Any, rng: random.Random) -> Any:
    "Change a value in one place."
    outer = [value]
    inside, key = rng.choice([place for place in _places(outer) if rng.random() < 0.3] or [(outer, 0)])
    one = inside[key]
    how = rng.choice(["drop", "rename", "string", "wrap", "unwrap", "other", "double", "beside", "copy"])
    if how == "drop":
        del inside[key]
    elif how == "rename" and isinstance(inside, dict):
        name = rng.choice([key + "s", key[:-1], "stages", "goal", "settings", "ladders", "keep", *rng.sample(GOALS, 3)])
        renamed = {name if other == key else other: part for other, part in inside.items()}
        inside.clear()
        inside.update(renamed)
    elif how == "string":
        inside[key] = json.dumps(one)
    elif how == "wrap":
        inside[key] = rng.choice([[one], {"settings": one}, {"stages": one}, [[one]], {"ladders": [one]}])
    elif how == "unwrap" and isinstance(one, list | dict) and one:
        inside[key] = dict(enumerate(one)) if isinstance(one, list) and rng.random() < 0.5 else (
            [*one.values()] if isinstance(one, dict) else one[0])
    elif how == "double" and isinstance(inside, list):
        inside[key:key] = [one] * rng.choice([1, 1, 20])
    elif how == "beside" and isinstance(one, dict):
        one[rng.choice(["keep", "weight", "purpose", "goal", "stages", "settings", "note"])] = rng.choice(
            [1, None, "1", [], {}, [{}], "text", {"wood": 1}, 2.0, True])
    elif how == "copy":
        other, name = rng.choice(_places(outer))
        other[name] = json.loads(json.dumps(one))
    else:
        inside[key] = rng.choice([None, 0, "", [], {}, True, [{}], {"a": 1}, [None], 1e9])
    return outer[0] if outer else None


def mutated(text: str, rng: random.Random) -> str:
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        how = rng.choice([_characters, _word, _line, "data", "data"])
        blocks = list(re.finditer(r"^```(?:json)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
        if how == "data":
            block = rng.choice(blocks) if blocks else None
            try:
                data = _data(json.loads(block[1] if block else text), rng)
            except (ValueError, TypeError, RecursionError):
                continue
            new = json.dumps(data, indent=rng.choice([None, 1]))
            text = text[:block.start(1)] + new + "\n" + text[block.end(1):] if block else new
        elif len(text) > 2:
            text = how(text, rng)
    return text


def slipped(text: str) -> str:
    "What is wrong with the accepted designs of a reply; \"\": nothing, or it is not accepted."
    found = read(text)
    if found.complaints:
        return ""
    ladders, beside = ladders_of(found.designs), [one for one in found.designs if not one.goal]
    goals = [ladder.goal for ladder in ladders]
    if not ladders or not set(goals) <= set(GOALS) or len(set(goals)) < len(goals) or len(beside) > 2:
        return f"goals {goals}, {len(beside)} environments"
    if not all(1 <= len(ladder.stages) <= MAX_STAGES for ladder in ladders):
        return "number of stages"
    again = read(format_reply(found.designs))
    if again.complaints or [(one.goal, one.world) for one in again.designs] != [
            (one.goal, one.world) for one in (*beside, *(one for ladder in ladders for one in found.designs
                                                         if one.goal == ladder.goal))]:
        return f"written and read again it is something else: {again.complaints}"
    try:
        expected = strict(text)
    except Wrong as error:
        return f"a strict reader does not take it: {error}"
    if expected is None:                                   # JSON by a lenient reader only; no ladder may be lost
        named = len(re.findall(r'"stages"\s*:', text)) or len(re.findall(rf'"(?:{"|".join(GOALS)})"\s*:', text))
        return "" if named == len(ladders) else f"{named} ladders are in it, {len(ladders)} were read"
    worlds = {ladder.goal: list(ladder.stages) for ladder in ladders}
    return "" if expected == (worlds, [one.world for one in beside]) else "it holds something else"


def test_no_mutated_reply_raises_and_none_slips(long):
    rng, texts, accepted = random.Random(572), originals(), 0
    assert [slipped(text) for text in texts] == [""] * len(texts)
    assert all(read(text).complaints == () for text in texts)
    for number in range(3_000 if long else 300):
        text = mutated(texts[number % len(texts)], rng)
        assert slipped(text) == "", text
        accepted += not read(text).complaints
    assert accepted > number / 20                          # or nothing would be tested but complaints


# --- whole runs

SMALL = dict(vocabulary="extended", design="ladders", num_cycles=4, num_worlds=2, cycle_steps=4_096, final_steps=1_024,
             world_length=64, evaluation_runs=1, evaluation_episodes=2, threads=1, seed=5, max_reasks=0,
             preset_options={"num_envs": 8, "rollout_steps": 64},
             curriculum_options={"begin": 0, "weak": 100, "learned": 0, "episodes": 5, "mastered": 5})


def structured(text: str) -> str:
    "A recorded reply in the form that a server gives which was sent the schema."
    beside = [{"purpose": "beside the ladders, and before them", "settings": {"inventory_settings": {"wood": 1}}}]
    return json.dumps({"environments": beside, "ladders": [
        {"purpose": f"back from {goal}", "goal": goal, "stages": [{"settings": stage} for stage in stages]}
        for goal, stages in json.loads(text).items()]})


def with_server(folder: Path, texts: list[str], **settings) -> tuple[RunFolder, list[dict]]:
    "A whole run whose designer is a server on loopback, and what it was sent."
    with ChatServer(*map(answer, texts)) as server:
        run = create_run(make_settings(**SMALL | settings, designer="openai", designer_options={
            "model": "m", "base_url": server.url}), folder)
        list(run_cycles(run.path))
    return run, server.requests


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    "A run of four cycles with the recorded ladders, the longest of them before the last correction."
    order = [RECORDED[k] for k in (2, 1, 0, 3)]
    return with_server(tmp_path_factory.mktemp("asked") / "run", [structured(path.read_text()) for path in order])


def test_a_run_with_four_calls_of_a_model(asked):
    run, requests = asked
    assert run.finished() and len(requests) == run.usage().calls == 4
    for number, request in enumerate(requests, start=1):
        assert [message["role"] for message in request["messages"]] == ["user"]       # it stands alone
        form = request["response_format"]["json_schema"]["schema"]
        assert form == response_schema(MODEL, 2, len(run.worlds(f"cycle-{number - 1}")), goals=GOALS)
        prompt = run.text(f"cycle-{number}", RunFolder.PROMPT)
        assert request["messages"][0]["content"].startswith(prompt)
        assert f"This is cycle {number} of 4." in prompt
    for number in (2, 3, 4):
        before, prompt = ladder_records(run, f"cycle-{number - 1}"), run.text(f"cycle-{number}", RunFolder.PROMPT)
        assert format_ladders(before, CRAFTER.costs) in prompt
        worlds = run.worlds(f"cycle-{number - 1}")                                     # a number is what `keep` takes
        assert all(worlds[stage.number - 1] == stage.record.world for one in before for stage in one.stages)
        assert [one.goal for one in before] == [*json.loads(RECORDED[(2, 1, 0)[number - 2]].read_text())]
    assert sum(len(one.stages) for one in before) == 32
    played = [stage for one in before for stage in one.stages if stage.record.episodes]
    assert played and all(f"% of {stage.record.episodes:,}" in prompt for stage in played)
    assert len(prompt) / 4 <= 6_000, len(prompt)                       # tokens, by the rule of four characters each


def test_by_hand_it_is_the_same_run(asked, tmp_path):
    """The prompts are carried to a chat window, and the replies back, as files."""
    settings = make_settings(**SMALL, designer="manual", designer_options={"poll": 0.02, "timeout": 60})
    run, ended = create_run(settings, tmp_path / "run"), threading.Event()

    def person() -> None:
        while not ended.wait(0.05):
            if found := unanswered(run.path / "manual"):
                prompt, reply = found
                cycle = reply.stem.removeprefix("reply-")
                assert prompt == asked[0].text(cycle, RunFolder.PROMPT)
                write_text(reply, asked[0].text(cycle, RunFolder.REPLY))

    answering = threading.Thread(target=person)
    answering.start()
    try:
        list(run_cycles(run.path))
    finally:
        ended.set()
        answering.join()
    assert len(list((run.path / "manual").glob("prompt-*.md"))) == 4
    same(run, asked[0])


RATES = dict(zip(sorted(GOALS), [
    75.0, 0.0, 82.3, 37.3, 97.3, 89.0, 99.7, 51.3, 84.0, 87.0, 0.0, 7.7, 7.3, 71.7, 55.7, 95.0, 84.3, 73.7, 97.3, 75.3,
    99.7, 76.7], strict=True))
PLAYED = {       # goal → of each stage that was played: how often it was reached, episodes, steps
    "make_iron_pickaxe": [(90, 750, 14), (86, 112, 102), (59, 239, 43), (61, 267, 38), (19, 232, 146), (18, 207, 84)],
    "make_iron_sword": [(82, 792, 13), (66, 506, 41), (27, 308, 127), (62, 631, 44)],
    "collect_iron": [(92, 848, 18), (89, 97, 92), (40, 415, 97), (44, 344, 119), (42, 94, 172)]}
SPENT = {"place_table": (1.1, 0.8), "make_wood_sword": (0.8, 0.1), "make_stone_sword": (0.6, 0.1),
         "make_stone_pickaxe": (0.3, 0.1), "place_furnace": (0.9, 0.2), "place_stone": (2.0, 1.5)}


MISSING = {"wood in the bag": 22.0, "table in reach": 60.0, "furnace in reach": 80.0}
FROM = ("after make_stone_pickaxe", "iron and coal in the bag", "after collect_iron", "after collect_stone")
FACTS = ("in the bag: sapling 1 (0-3), wood 3 (0-9), stone 5 (0-9), coal 1 (0-4); health 7, food 6, drink 6, energy 7; "
         "step 160 (70-310); achieved in most of them: collect_coal, collect_drink, eat_cow, make_stone_pickaxe, "
         "make_wood_sword, place_furnace, place_plant, place_stone, wake_up, and what these take")


@pytest.mark.parametrize("most, characters", [(5, 3.3), (9, 4.0)])
def test_the_last_correction_is_short(asked, most, characters):
    """With the ladders, their results and the rates of the recorded run at its last correction: 27 stages, 15 of them
    played, and six of these not mastered; by the usual rule of four characters a token. And with 20 of them, more than
    the prompt asks for, by what a tokenizer makes of such prompts, at least 3.3 characters a token."""
    ladders, played = [], 0
    for one in ladders_of(read(RECORDED[2].read_text()).designs):
        stages = []
        for k, world in enumerate(one.stages[:most]):
            record = WorldRecord(world, "", 0, None, None, {})
            if k < len(PLAYED.get(one.goal, ())):
                rate, episodes, steps = PLAYED[one.goal][k]
                record = replace(record, episodes=episodes, length=steps, success={one.goal: rate}, counts=SPENT)
                ends = {"the goal": rate, "the time": 60 - rate / 2, "zombie": 20.0, "lava": 20 - rate / 5}
                stages.append(StageRecord(record, (rate - 10, rate + 5), (490_000, 1_380_000), ends, MISSING))
                played += 1
            else:
                stages.append(StageRecord(record))
        ladders.append(LadderRecord(one.goal, tuple(stages), 2 * "Two stages more, as it was stuck between 2 and 3. ",
                                    "open; 7.3% of the ordinary training episodes reach it; stage 5 is the first that "
                                    "is not mastered; playing: 5, 6", 4, (4, 5)))
    context = design_context(asked[0], 4)
    context = replace(context, ladders=tuple(ladders), episodes=300, before={name: (rate, 1.0) for name, rate in
                                                                             RATES.items()},
                      original=replace(context.original, rates=RATES, facts=dict.fromkeys(FROM, FACTS)), unlearned=(
                          Unlearned("place_stone", 82.0, 75.3, (3,)),))
    prompt = update_prompt(load_templates(), CRAFTER, "extended", 2, context.before, (), context=context)
    count = sum(len(one.stages) for one in ladders)
    assert (count, played) == ((27, 15) if most == 9 else (20, 14)) and "at most 18 stages" in prompt
    assert len(prompt) / characters <= 6_000, len(prompt) / characters


# --- stopped and gone on

CHANCE = '{"place_table": [{"inventory_settings": {"wood": 9}}, {}]}'       # a player at random puts the table up
WOOD = ['{"collect_wood": [{"environment_settings": {"tree_rarity": "very common"}}, {}]}',
        '{"collect_wood": [{"environment_settings": {"tree_rarity": "very common"}}, {"start_settings": '
        '{"start_from": "after collect_sapling"}}, {"episode_settings": {"length": 100}}]}']
TRIED = {"num_cycles": 2, "max_reasks": 2, "trial_episodes": 2}

KILLED = """
import os, signal, sys
from envgen_nb.cycle import ask, run
from envgen_nb.cycle.events import Training

folder, place, cycle = sys.argv[1:]
evaluate, keep_attempt, write_complaints = ask.evaluate, ask._keep_attempt, ask._write_complaints


def die(*args):
    os.kill(os.getpid(), signal.SIGKILL)


def then_die(act):
    return lambda *args: (act(*args), die())


if place == "tried out":
    ask.evaluate = lambda *args, callback: evaluate(*args, callback=die)
if place == "replied":
    ask._keep_attempt = then_die(keep_attempt)
if place == "sent back":
    ask._write_complaints = then_die(write_complaints)
run.CHECKPOINT_SECONDS = 0.0
for event in run.run_cycles(folder):
    if place == "training" and isinstance(event, Training) and event.cycle == cycle and event.cycle_done >= 2_048:
        die()
"""
KILLS = [("replied", 1), ("tried out", 1), ("sent back", 1), ("replied", 1), ("training", 1), ("replied", 2),
         ("tried out", 2), ("training", 2)]


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    "A run of two cycles whose first reply is sent back, as its first stage is reached by chance."
    return with_server(tmp_path_factory.mktemp("tried") / "run", [CHANCE, *WOOD], **TRIED)


@pytest.mark.long
def test_a_stage_that_chance_reaches_is_sent_back(tried):
    run, requests = tried
    assert "place_table, stage 1: place_table is reached by chance" in run.text("cycle-1", "complaints-1.md")
    assert run.text("cycle-1", "rejected-1.md") == CHANCE and run.text("cycle-1", "reply.md") == WOOD[0]
    assert "is reached by chance" in requests[1]["messages"][-1]["content"] and len(requests) >= 3
    assert "random" in {one["player"] for one in run.selection("cycle-1")}
    steps = sum(one["steps"] for one in run.selection("cycle-1"))
    trained = sum(record["steps"] if "steps" in record else 0 for record in run.metrics("cycle-1"))
    assert steps > 0 and trained + steps <= SMALL["cycle_steps"] + 512
    positions = [one for record in run.metrics("cycle-1") for one in record.get("ladders", ())]
    assert any(one["playing"] for one in positions)                             # it was trained in


@pytest.mark.long
def test_killed_it_asks_nothing_twice_and_ends_the_same(tried, tmp_path):
    """While a reply is written down, a stage is tried out, a reply is sent back, and while stages are trained in."""
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    with ChatServer(*map(answer, [CHANCE, *WOOD])) as server:
        run = create_run(make_settings(**SMALL | TRIED, designer="openai", designer_options={
            "model": "m", "base_url": server.url}), tmp_path / "run")
        for place, cycle in KILLS:
            done = subprocess.run([sys.executable, script, run.path, place, f"cycle-{cycle}"], capture_output=True,
                                  text=True, timeout=300)
            assert done.returncode == -signal.SIGKILL, (place, cycle, done.stderr)
        list(run_cycles(run.path))
    assert [one["messages"] for one in server.requests] == [one["messages"] for one in tried[1]]
    assert run.usage().calls == tried[0].usage().calls == len(server.requests)
    same(run, tried[0])


@pytest.mark.long
def test_a_run_is_replayed_to_the_same_bits(tried, tmp_path):
    """With the reply that was sent back; and with the accepted ones alone, of which the last is given again."""
    settings = make_settings(**SMALL | TRIED, designer="replay", designer_options={"files": str(tried[0].path)})
    run = create_run(settings, tmp_path / "run")
    list(run_cycles(run.path))
    same(run, tried[0])
    for number, text in enumerate([CHANCE, WOOD[1]], start=1):
        write_text(tmp_path / "two" / f"reply-{number}.md", text)
    stubborn = create_run(make_settings(**SMALL | TRIED, designer="replay", designer_options={
        "files": str(tmp_path / "two")}), tmp_path / "stubborn")
    list(run_cycles(stubborn.path))
    assert stubborn.text("cycle-1", "rejected-1.md") == stubborn.text("cycle-1", "reply.md") == CHANCE
    assert [one.goal for one in stubborn.designs("cycle-2")] == ["collect_wood"] * 3


# --- other games, and a file


@pytest.mark.parametrize("game", [pytest.param("heist", marks=pytest.mark.long), "minigrid"])
def test_the_ladders_of_a_game_are_a_designer(game, tmp_path):
    if game == "heist":
        pytest.importorskip("envgen_nb.simulators.heist.game")
        if not procgen_package():
            pytest.skip("there is no build of Procgen for this machine")
    options = {"num_envs": 8, "rollout_steps": 32, "minibatches": 2}
    small = {"folder": tmp_path / "run", "designer": "ladders", "num_worlds": 4, "num_cycles": 2, "threads": 1,
             "cycle_steps": 2_560, "final_steps": 5_120, "world_length": 40,
             "evaluation_runs": 1, "evaluation_episodes": 2,
             "preset_options": json.dumps(options), "curriculum_options": '{"begin": 0, "weak": 100}'}
    command = [part for name, value in small.items() for part in ("-p", name, str(value))]
    assert main(["run", game, *command, "-p", "design", "ladders"]) == 0
    run = RunFolder(tmp_path / "run")
    assert run.finished() and run.settings.curriculum == "ladder"
    own = [stage for one in run.simulator.ladders() for stage in one.stages]
    assert run.worlds("cycle-1") == run.worlds("cycle-2") == own and run.selection("cycle-1") == []
    assert run.numbers("cycle-1") == run.numbers("cycle-2")                     # the stages of before: they keep theirs
    assert any(one["playing"] for record in run.metrics("final") for one in record.get("ladders", ()))


def test_a_game_of_ones_own_needs_practice_worlds_and_no_more(tmp_path):
    game = Orchard()
    assert [(one.goal, len(one.stages)) for one in game.ladders()] == [("find_apple", 3), ("find_apple_soon", 3)]
    assert all(one.stages[-1] == game.world_class()() for one in game.ladders())
    if "orchard" not in games.names():
        games.register("orchard", "game_by_docs:Orchard")
    run = create_run(make_settings(
        simulator="orchard", design="ladders", designer="ladders", num_cycles=2, cycle_steps=512, final_steps=256,
        evaluation_runs=1, evaluation_episodes=4, threads=1, curriculum_options={"begin": 0, "weak": 100},
        preset_options={"num_envs": 8, "rollout_steps": 16, "minibatches": 2}), tmp_path / "run")
    list(run_cycles(run.path))
    assert run.finished() and len(run.worlds("cycle-2")) == 6
    before = ladder_records(run, "cycle-2")
    assert [one.goal for one in before] == ["find_apple", "find_apple_soon"]
    assert any(stage.record.episodes for one in before for stage in one.stages)


@pytest.mark.parametrize("form", ["recorded", "prompt", "structured"])
def test_worlds_checks_a_file_of_ladders(form, tmp_path, capsys):
    text, path = RECORDED[3].read_text(), tmp_path / "ladders.md"
    forms = {"recorded": text, "prompt": format_reply(read(text).designs), "structured": structured(text)}
    path.write_text(forms[form])
    command = ["worlds", "crafter", str(path), "--vocabulary", "extended"]
    assert main([*command, "--out", str(tmp_path / "ladders.png")]) == 0
    said = capsys.readouterr().out
    assert said.count("Ladder ") == 16 and "Ladder collect_iron, stage 4: {" in said
    assert "starts at a moment of the agent's own episodes: after make_stone_pickaxe" in said
    width, height = Image.open(tmp_path / "ladders.png").size
    rows = height - 312 * (form == "structured")                    # in which a large picture of a world is below them
    assert width > height and 4 * 104 < rows < 4 * 208              # a row for each of four ladders
    path.write_text(path.read_text().replace('"collect_iron"', '"colect_iron"').replace('"after make_stone_pickaxe"',
                                                                                        '"after lunch"'))
    assert main(command) == 1
    said = capsys.readouterr().err
    assert "its goal is 'colect_iron'" in said and '"after lunch" is not allowed' in said


def test_a_file_of_ladders_is_a_designer(tmp_path):
    path = tmp_path / "mine.md"
    path.write_text(format_reply(read(RECORDED[1].read_text()).designs, "These are mine."))
    designer = make_designer("ladders", file=str(path))
    reply = designer.reply(Request(CRAFTER, "extended", ladders=True))
    assert reply.designs == read(RECORDED[1].read_text()).designs
    path.write_text(path.read_text().replace('"length": 64', '"length": 6'))
    with pytest.raises(DesignerError, match="stage 1, episode_settings.length: 6 is not allowed"):
        designer.reply(Request(CRAFTER, "extended", ladders=True))
