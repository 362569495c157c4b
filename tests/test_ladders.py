"""Ladders from reply to report: mutated replies, whole runs with few calls, kills, replays, other games, files."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from envgen_nb.designer.lenient import MAX_NESTING
from envgen_nb.designer.reply import (
    MAX_STAGES,
    Design,
    format_reply,
    ladders_of,
    read_reply,
)
from envgen_nb.game.simulator import get_simulator
from envgen_nb.game.world import World, check_world

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
