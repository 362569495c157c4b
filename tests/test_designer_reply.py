"""Replies: the recorded ones, many broken ones, and whatever hypothesis can think of."""

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from envgen_nb.designer.base import reply_with
from envgen_nb.designer.lenient import Reader, broken
from envgen_nb.designer.reply import (
    MAX_CHARACTERS,
    Design,
    annotated,
    format_reply,
    parse_reply,
    read_reply,
    strip_markdown,
)
from envgen_nb.designer.schema import response_schema
from envgen_nb.game.examples import GardenWorld, Soil
from envgen_nb.game.simulator import get_simulator
from envgen_nb.game.world import Section, World, parameters, random_world
from envgen_nb.studio.conversation import reply_html

RECORDINGS = Path(__file__).parent / "recordings"
CRAFTER = get_simulator("crafter")
CrafterWorld, ExtendedCrafterWorld = CRAFTER.world_class("paper"), CRAFTER.world_class("extended")


class MazeWorld(World):
    "The worlds that the recorded Heist prompt speaks of: no sections."
    maze_size: Literal[3, 5, 7, 9] | None = Field(None, description="cells on a side")
    locks: int | None = Field(None, ge=0, le=3, description="doors, each with its key")
    keys_held: int | None = Field(None, ge=0, le=3, description="keys at the start")
    gem_distance: Literal["near", "any", "far"] | None = Field(None, description="how far the gem is")
    loops: Literal["none", "few", "many"] | None = Field(None, description="extra openings")


def said(reply: str, num_worlds: int = 2, model: type[World] = GardenWorld) -> list[str]:
    return [str(complaint) for complaint in parse_reply(reply, model, num_worlds)[1]]


def fenced(*blocks: str, label: str = "json") -> str:
    return "\n".join(f"Environment {n}:\n```{label}\n{block}\n```\nPurpose: number {n}."
                     for n, block in enumerate(blocks, start=1))


# --- recorded replies


@pytest.mark.parametrize("name, model", [("crafter-first", CrafterWorld), ("crafter-update", CrafterWorld),
                                         ("crafter-first", ExtendedCrafterWorld), ("heist-first", MazeWorld)])
def test_recorded_replies_are_read_whole(name, model):
    designs, complaints = parse_reply((RECORDINGS / f"{name}.md").read_text(encoding="utf-8"), model, 4)
    assert complaints == [] and len(designs) == 4
    assert all(20 < len(design.purpose) < 2_000 for design in designs)
    assert not any("Environment" in design.purpose and "```" in design.purpose for design in designs)
    assert len({design.world for design in designs}) == 4


def test_recorded_details():
    designs, _ = parse_reply((RECORDINGS / "crafter-first.md").read_text(encoding="utf-8"), CrafterWorld, 4)
    assert designs[0].world.settings() == {
        "environment_settings": {"target_biome": "mountain", "coal_rarity": "common", "iron_rarity": "very common",
                                 "diamond_rarity": "common"},
        "inventory_settings": {"wood": 9, "wood_pickaxe": 1}}
    assert [d.purpose.split()[0] for d in designs] == ["Climb", "Explore", "Farm", "Join"]
    designs, _ = parse_reply((RECORDINGS / "crafter-update.md").read_text(encoding="utf-8"), CrafterWorld, 4)
    assert all("Rates behind it:" in d.purpose for d in designs) and designs[3].world.inventory_settings.sapling == 9
    designs, _ = parse_reply((RECORDINGS / "heist-first.md").read_text(encoding="utf-8"), MazeWorld, 4)
    assert designs[0].purpose.startswith("practise open_lock_1") and designs[3].world.keys_held == 0
    assert "I have not run" not in designs[3].purpose                          # a note on all of them, not a purpose


def test_recorded_reply_cut_off_anywhere():
    text = (RECORDINGS / "crafter-update.md").read_text(encoding="utf-8")
    whole, _ = parse_reply(text, CrafterWorld, 4)
    last = text.rindex("}\n```")
    for length in range(0, len(text), 37):
        designs, complaints = parse_reply(text[:length], CrafterWorld, 4)
        assert bool(complaints) == (length <= last), length
        assert [d.world for d in designs] == [d.world for d in whole][:len(designs)], length


# --- what is accepted

ONE, TWO = '{"seeds": 1}', '{"soil": {"wetness": "dry"}}'
WORLDS = [GardenWorld(seeds=1), GardenWorld(soil=Soil(wetness="dry"))]
DRAFT = fenced('{"seeds": 8}', '{"seeds": 9}')
THOUGHTS = {          # the marks of public models around their thoughts
    "<think>": "</think>", "<thinking>": "</thinking>", "<thought>": "</thought>", "<reasoning>": "</reasoning>",
    "[THINK]": "[/THINK]", "◁think▷": "◁/think▷", "<seed:think>": "</seed:think>", "<mm:think>": "</mm:think>",
    "<longcat_think>": "</longcat_think>", "<|START_THINKING|>": "<|END_THINKING|><|START_RESPONSE|>",
    "<|begin_of_thought|>": "<|end_of_thought|>\n<|begin_of_solution|>", "<|inner_prefix|>": "<|inner_suffix|>",
    "<|channel>thought\n": "<channel|>", "<|channel|>analysis<|message|>":
    "<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>", "": "assistantfinal",
    "Here is my thought process:": "Here is my response:", "Here are my reasoning steps:\n": "[BEGIN FINAL RESPONSE]\n"}
ACCEPTED = {
    "fenced": fenced(ONE, TWO),
    "other label": fenced(ONE, TWO, label="JSON5"),
    "no label": fenced(ONE, TWO, label=""),
    "python label": fenced(ONE, TWO, label="python"),
    "tildes": fenced(ONE, TWO).replace("```", "~~~"),
    "long fences": fenced(ONE, TWO).replace("```", "`````"),
    "one line": f"```json {ONE}``` and ```json {TWO}```",
    "windows line ends": fenced(ONE, TWO).replace("\n", "\r\n"),
    "indented in a list": f"1. First\n   ```json\n   {ONE}\n   ```\n2. Second\n   ```json\n   {TWO}\n   ```\n",
    "both in one block": f"```json\n{ONE}\n{TWO}\n```",
    "commas between": f"```json\n{ONE},\n{TWO},\n```",
    "list": f"[{ONE}, {TWO}]",
    "fenced list": f"Here:\n```json\n[{ONE}, {TWO}]\n```\nGood luck!",
    "list under a key": f'{{"environments": [{ONE}, {TWO}]}}',
    "list under a key, with notes": f'{{"notes": "two", "worlds": [{ONE}, {TWO}]}}',
    "keyed": f'{{"Environment 1": {ONE}, "Environment 2": {TWO}}}',
    "keyed otherwise": f'{{"env_1": {ONE}, "env_2": {TWO}}}',
    "keyed in blocks": fenced(f'{{"Environment 1": {ONE}}}', f'{{"Environment 2": {TWO}}}'),
    "structured": f'{{"environments": [{{"purpose": "a", "settings": {ONE}}}, {{"settings": {TWO}}}]}}',
    "nulls": '[{"seeds": 1, "soil": {"wetness": null}}, {"soil": {"wetness": "dry", "stones": null}, "fence": null}]',
    "bare": f"First {ONE} and then {TWO}, and no more.",
    "line comments": fenced('{\n  // how many\n  "seeds": 1 // one {seed}\n}', TWO),
    "block comments": fenced('{"seeds": /* a " quote */ 1} /* done */', TWO),
    "comment first": fenced(f"// the first\n{ONE}", TWO),
    "trailing commas": '[{"seeds": 1,}, {"soil": {"wetness": "dry",},},]',
    "python words": '[{"seeds": 1, "fence": None}, {"soil": {"wetness": "dry", "stones": None}}]',
    "missing last fence": fenced(ONE, TWO).rpartition("\n```")[0],
    "forgotten closing fence": f"```json\n{ONE}\nPurpose: a\n```json\n{TWO}\n```",
    "thoughts before": f"<think>Maybe {{\"seeds\": 77}}? No.\n```json\n{{}}\n```</think>\n{fenced(ONE, TWO)}",
    "thoughts, opening lost": f"Maybe {{\"seeds\": 77}}? No.</think>\n{fenced(ONE, TWO)}",
    **{f"thoughts {opening}": f"{opening}Perhaps\n{DRAFT}\nor no, better:\n{closing}\n{fenced(ONE, TWO)}"
       for opening, closing in THOUGHTS.items()},
    **{f"thoughts, {opening} lost": f"Perhaps\n{DRAFT}\n{closing}{fenced(ONE, TWO)}"
       for opening, closing in THOUGHTS.items() if not opening.startswith("Here is")},
    "thoughts behind": f"{fenced(ONE, TWO)}\n\n<reasoning>\nNot\n{DRAFT}\n</reasoning>",
    "thoughts that are cut off behind": f"{fenced(ONE, TWO)}\n\n<think>\nOr rather\n{DRAFT}\n",
    "thoughts and a word behind": f"{fenced(ONE, TWO)}\n\n<think>All right?</think>\nDone!",
    "thoughts twice": f"<think>{DRAFT}</think>So:\n{DRAFT}\n<think>No.</think>{fenced(ONE, TWO)}",
    "marks in structured output": f'{{"environments": [{{"purpose": "</think> [THINK]", "settings": {ONE}}}, {TWO}]}}',
    "a mark in a purpose": f"{fenced(ONE, TWO)}\nPurpose: <thought> is no mark within a sentence.",
    "byte order mark": "\ufeff" + f"[{ONE}, {TWO}]",
    "a number beside": f'{{"num_environments": 2, "environments": [{ONE}, {TWO}]}}',
    "no-break spaces": f"[{ONE},\u00a0{TWO}]",
    "prose with braces": f"A {{plan}} in [two] steps.\n{fenced(ONE, TWO)}\nSee {{above}}.",
    "empty block": f"```\n```\n{fenced(ONE, TWO)}",
    "code beside": f"```bash\nmake run\n```\n{fenced(ONE, TWO)}",
    "escapes": '[{"seeds": 1, "purpose": "a \\"b\\" \\u00e9 // c"}, {"soil": {"wetness": "d\\u0072y"}}]',
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name):
    designs, complaints = parse_reply(ACCEPTED[name], GardenWorld, 2)
    assert complaints == [] and [design.world for design in designs] == WORLDS


# --- what is refused, and what is said about it

REFUSED = {
    "empty": ("", ["the reply is empty; 2 environments are expected"]),
    "white space": (" \n\t", ["the reply is empty"]),
    **{f"only thoughts {opening}": (f"{opening}{{}}{{}} hmm\n{DRAFT}", ["the reply is empty"]) for opening in THOUGHTS
       if opening},
    "only prose": ("I cannot help with that.", ["there is no JSON in the reply; 2 environments are expected"]),
    "an empty list": ("[]", ["2 environments are expected; the reply holds 0"]),
    "one too few": (fenced(ONE), ["2 environments are expected; the reply holds 1"]),
    "one too many": (fenced(ONE, TWO, ONE), ["2 environments are expected; the reply holds 3"]),
    "a number": ('{"environments": [3, {}]}', ["Environment 1: expected a JSON object with settings, got 3"]),
    "a list in a list": ("[[{}], {}]", ["Environment 1: expected a JSON object"]),
    "text for worlds": ('["dry", "wet"]', ['Environment 1: expected a JSON object with settings, got "dry"',
                                           "Environment 2: expected a JSON object"]),
    "too large": (fenced('{"seeds": 12}', TWO), ["Environment 1, seeds: 12 is not allowed; allowed: 0-9"]),
    "too small": (fenced('{"seeds": -1}', TWO), ["Environment 1, seeds: -1 is not allowed; allowed: 0-9"]),
    "huge": (fenced('{"seeds": 99999999999999999999999}', TWO),
             ["Environment 1, seeds: 99999999999999999999999 is not"]),
    "enormous": (fenced('{"seeds": %s}' % ("9" * 50), TWO), ["Environment 1: a number has more than 30 digits"]),
    "a float": (fenced('{"seeds": 1.5}', TWO), ["Environment 1, seeds: 1.5 is not allowed"]),
    "a round float": (fenced('{"seeds": 1.0}', TWO), ["Environment 1, seeds: 1.0 is not allowed"]),
    "text for a number": (fenced('{"seeds": "1"}', TWO), ['Environment 1, seeds: "1" is not allowed; allowed: 0-9']),
    "truth for a number": (fenced('{"seeds": True}', TWO), ["Environment 1, seeds: true is not allowed"]),
    "number for truth": (fenced('{"fence": 1}', TWO),
                         ["Environment 1, fence: 1 is not allowed; allowed: true | false"]),
    "unknown value": (fenced('{"soil": {"wetness": "moist"}}', TWO),
                      ['Environment 1, soil.wetness: "moist" is not allowed; allowed: dry | damp | wet']),
    "wrong case": (fenced('{"soil": {"wetness": "Dry"}}', TWO), ['Environment 1, soil.wetness: "Dry" is not allowed']),
    "unknown key": (fenced(ONE, '{"gnomes": 2}'), ["Environment 2, gnomes: there is no such setting; here one may set: "
                                                  "fence, pests, ripe, seeds, soil"]),
    "unknown key inside": (fenced(ONE, '{"soil": {"sand": 2}}'),
                           ["Environment 2, soil.sand: there is no such setting"]),
    "setting in the wrong place": (fenced(ONE, '{"stones": 2}'), ["Environment 2, stones: there is no such setting"]),
    "section of the wrong kind": (fenced(ONE, '{"soil": "dry"}'), ["Environment 2, soil: expected a JSON object"]),
    "section null": (fenced(ONE, '{"soil": null}'), ["Environment 2, soil: expected a JSON object"]),
    "list too long": (fenced('{"pests": ["snail", "snail", "snail"]}', TWO), ["Environment 1, pests: "]),
    "list of others": (fenced('{"pests": ["dog"]}', TWO), ["Environment 1, pests: "]),
    "purpose not text": (fenced('{"purpose": 3, "seeds": 1}', TWO),
                         ["Environment 1, purpose: there is no such setting"]),
    "three at once": (fenced('{"seeds": 10, "fence": "no", "gnomes": 1}', TWO),
                      ["Environment 1, seeds: 10", "Environment 1, fence: \"no\"", "Environment 1, gnomes: "]),
    "key twice": (fenced('{"seeds": 1, "seeds": 2}', TWO),
                  ['Environment 1: the key "seeds" occurs twice in one object']),
    "single quotes": (fenced("{'seeds': 1}", TWO), ["Environment 1: a key in double quotes is expected, not 'seeds'"]),
    "single-quoted value": (fenced("{\"soil\": {\"wetness\": 'dry'}}", TWO),
                            ["Environment 1: strings need double quotes"]),
    "typographic quotes": (fenced("{\"soil\": {\"wetness\": “dry”}}", TWO),
                           ['Environment 1: strings need plain double']),
    "bare key": (fenced("{seeds: 1}", TWO),
                 ["Environment 1: a key in double quotes is expected, not seeds (line 3 of the"]),
    "bare word": (fenced('{"soil": {"wetness": dry}}', TWO),
                  ["Environment 1: dry is not a value; strings need double"]),
    "no colon": (fenced('{"seeds" 1}', TWO), ['Environment 1: a colon is missing after the key "seeds"']),
    "no comma": (fenced('{"seeds": 1 "fence": true}', TWO), ['Environment 1: a comma or } is missing before "']),
    "no value": (fenced('{"seeds": }', TWO), ["Environment 1: a value is missing before '}'"]),
    "two commas": (fenced('{"seeds": 1,, "fence": true}', TWO),
                   ["Environment 1: a key in double quotes is expected, not ,"]),
    "wrong bracket": (fenced('{"seeds": 1]', TWO), ["Environment 1: a comma or } is missing before ]"]),
    "dots left": (fenced('{"seeds": ...}', TWO), ["Environment 1: '...' is where a value should"]),
    "dots for the rest": (fenced('{"seeds": 1, ...}', TWO), ["Environment 1: '...' is where a setting should"]),
    "NaN": (fenced('{"seeds": NaN}', TWO), ["Environment 1: NaN is not a number that may be used"]),
    "Infinity": (fenced('{"seeds": -Infinity}', TWO), ["Environment 1: -Infinity is not a number that may be used"]),
    "overflow": (fenced('{"seeds": 1e999}', TWO), ["Environment 1: 1e999 is too large"]),
    "leading zero": (fenced('{"seeds": 01}', TWO), ["Environment 1: 01 is not a number in JSON"]),
    "hexadecimal": (fenced('{"seeds": 0x1}', TWO), ["Environment 1: 0x1 is not a number in JSON"]),
    "a sum": (fenced('{"seeds": 1 + 1}', TWO), ["Environment 1: a comma or } is missing before +"]),
    "a call": (fenced('{"seeds": int(1)}', TWO), ["Environment 1: int(1) is not a value"]),
    "line break in text": (fenced('{"soil": {"wetness": "d\nry"}}', TWO),
                           ["Environment 1: a string does not end on its"]),
    "bad escape": (fenced('{"soil": {"wetness": "\\dry"}}', TWO), ["Environment 1: a string holds an escape"]),
    "half a character": (fenced('{"soil": {"wetness": "\\ud83d"}}', TWO), ["Environment 1: a string holds half a"]),
    "no braces": (fenced('"seeds": 1', TWO), ["Environment 1: a JSON object is expected in this block (line 3"]),
    "open comment": (fenced('{"seeds": 1} /* and', TWO), ["Environment 2: the comment /* is not closed"]),
    "hash comment": (fenced('{"seeds": 1 # one\n}', TWO), ["Environment 1: a comma or } is missing before #"]),
    "too deep": (fenced("[" * 40 + "]" * 40, TWO), ["brackets are nested deeper than 20"]),
    "too long": ("x" * (MAX_CHARACTERS + 1), ["the reply has 200001 characters; at most 200000 are read"]),
    "brace not closed in a block": (fenced('{"seeds": 1', TWO),
                                    ["Environment 1: it breaks off before the closing } (line"]),
    "cut off in a value": (fenced(ONE, '{"seeds": ').rpartition("\n```")[0], ["Environment 2: the reply is cut off"]),
    "cut off in text": (f'[{ONE}, {{"soil": {{"wetness": "dr',
                        ["Environment 2: the reply is cut off: it breaks off inside"]),
    "cut off in a word": (f'[{ONE}, {{"fence": fal', ["Environment 2: the reply is cut off"]),
    "cut off in a key": (f'[{ONE}, {{"fen', ["Environment 2: the reply is cut off"]),
    "cut off before a colon": (f'[{ONE}, {{"fence"', ["Environment 2: the reply is cut off"]),
    "cut off between": (f"[{ONE}, ", ["Environment 2: the reply is cut off: it breaks off before the closing ]"]),
    "cut off at the fence": (fenced(ONE) + "\nEnvironment 2:\n```json\n",
                             ["2 environments are expected; the reply holds 1"]),
    "cut off at the end": (f'{{"environments": [{ONE}, {TWO}]',
                           ["the reply is cut off: it breaks off before the closing }"]),
    "wrong in the middle of a list": ('[{"seeds": 1}, {"seeds": two}, {"seeds": 3}]',
                                      ["Environment 2: two is not a value"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    reply, expected = REFUSED[name]
    found = said(reply)
    for words in expected:
        assert any(words in complaint for complaint in found), found
    assert len(found) <= len(expected) + 1, found


def test_other_worlds_survive_a_broken_one():
    for reply in (fenced(ONE, '{"seeds": two}'), f'[{ONE}, {{"seeds": two}}]', f'{{"environments": [{ONE}, {{"se'):
        designs, complaints = parse_reply(reply, GardenWorld, 2)
        assert [d.world for d in designs] == WORLDS[:1] and [c.environment for c in complaints] == [2]


def test_a_broken_block_does_not_hide_the_number():
    assert said(fenced('{"seeds": two}', TWO), num_worlds=3) == [
        "3 environments are expected; the reply holds 2",
        'Environment 1: two is not a value; strings need double quotes (line 3 of the reply: {"seeds": two})']


def test_impossible_combination_names_the_environment():
    clash = '{"creature_settings": {"peaceful": true, "zombies": "common"}}'
    found = said(fenced("{}", clash), 2, ExtendedCrafterWorld)
    assert len(found) == 1 and found[0].startswith("Environment 2") and "peaceful" in found[0]


def test_purposes_wherever_they_stand():
    for reply in (f"Environment 1:\nPurpose: a.\n```json\n{ONE}\n```\nEnvironment 2:\nPurpose: b.\n```json\n{TWO}\n```",
                  f"**Environment 1**\n```json\n{ONE}\n```\n**Purpose:** a.\n\n---\n\n"
                  f"**Environment 2**\n```json\n{TWO}\n```\n**Purpose:** b.\n\n---\n\nNotes: none.",
                  f"Two worlds.\n```json\n{ONE}\n```\nPurpose: a.\n```json\n{TWO}\n```\nPurpose: b.",
                  f"Purpose: a.\n```json\n{ONE}\n```\nPurpose: b.\n```json\n{TWO}\n```",
                  f"```json\n[{ONE}, {TWO}]\n```\nEnvironment 1: a.\nEnvironment 2: b.",
                  '[{"purpose": "a.", "seeds": 1}, {"purpose": "b.", "soil": {"wetness": "dry"}}]'):
        designs, complaints = parse_reply(reply, GardenWorld, 2)
        assert complaints == [] and [d.purpose for d in designs] == ["a.", "b."], reply


@pytest.mark.parametrize("written, shown", [
    ("**Skills:** place_table", "Skills: place_table"), ("## Goal\n> build", "Goal\nbuild"),
    ("*a* _b_ __c__ ***d*** `e` [f](http://g)", "a b c d e f"), ("collect_wood, 2 * 3 * 4, a_b_c", ) * 2,
    ("**open and `open", ) * 2, ("<b>x</b> & **y**", "<b>x</b> & y"), ("- one\n- two", ) * 2])
def test_marks_are_left_out_where_a_purpose_is_shown(written, shown):
    assert strip_markdown(written) == shown


# --- whatever hypothesis can think of

SHARDS = ["```json\n", "```", "\n", "{", "}", "[", "]", ",", ":", '"', "'", "\\", "//", "/*", "*/", '"seeds"',
          '"soil"', '{"seeds": 1}', "1", "-", "1e9", "true", "None", "NaN", "...", "Environment 1:", "Purpose:",
          "<think>", "</think>", "\ud800", "\x00", "é", "~~~", " ", "\u2028", '{"environments": [', "environments"]
shards = st.lists(st.sampled_from(SHARDS), max_size=60).map("".join)
text = st.text(max_size=300) | shards | st.tuples(st.text(max_size=40), shards).map("".join)
worlds = st.builds(lambda r: random_world(GardenWorld, r), st.randoms(use_true_random=False))
crafter_worlds = st.builds(lambda r, model: random_world(model, r), st.randoms(use_true_random=False),
                           st.sampled_from([CrafterWorld, ExtendedCrafterWorld]))


@given(text, st.integers(1, 5))
def test_no_text_raises(reply, num_worlds):
    designs, complaints = parse_reply(reply, GardenWorld, num_worlds)
    assert complaints or len(designs) == num_worlds
    assert all(isinstance(d.world, GardenWorld) for d in designs)
    for complaint in complaints:
        assert 0 < len(str(complaint)) < 2_000


@given(text)
def test_the_reader_marks_where_it_stopped(reply):
    value, position, error = Reader(reply).read(0)
    assert 0 <= position <= len(reply)
    assert error is None or value is None or broken(value) is error


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-10**9, 10**9) | words | st.floats(-1e6, 1e6, allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4), max_leaves=20)


@given(json_values, st.booleans())
def test_json_is_read_as_json(value, ascii_only):
    written = json.dumps(value, ensure_ascii=ascii_only, indent=2)
    assert Reader(written).read(0) == (value, len(written), None)


@given(st.lists(st.tuples(crafter_worlds, st.text("abc .,;%-()", max_size=60)), min_size=1, max_size=6))
def test_formatted_replies_come_back(pairs):
    model = type(pairs[0][0])
    designs = [Design(world, " ".join(purpose.split())) for world, purpose in pairs if type(world) is model]
    reply = format_reply(designs, "Some worlds.")
    found, complaints = parse_reply(reply, model, len(designs))
    assert complaints == [] and [d.world for d in found] == [d.world for d in designs]
    assert all(a.purpose in (b.purpose, "") or a.purpose.strip(" *_-") == b.purpose.strip(" *_-")
               for a, b in zip(found, designs, strict=True))


@given(st.lists(crafter_worlds, min_size=1, max_size=3), st.text(max_size=200))
def test_no_purpose_disturbs_the_worlds(chosen, purpose):
    chosen = [world for world in chosen if type(world) is type(chosen[0])]
    reply = format_reply([Design(world, purpose) for world in chosen], intro=purpose)
    found, complaints = parse_reply(reply, type(chosen[0]), len(chosen))
    assert complaints == [] and [d.world for d in found] == chosen


TEXTS = st.text() | st.sampled_from(["...", "---", "**a** b", "x\n\nNote: y"])


@given(st.lists(crafter_worlds, min_size=1, max_size=4), TEXTS)
def test_worlds_of_a_program_are_those_that_its_text_says(chosen, purpose):
    """They are taken as they are; after a restart they are read in the text."""
    designs = [Design(world, purpose, 1 + k) for k, world in enumerate(chosen) if type(world) is type(chosen[0])]
    designs.append(Design(chosen[0], purpose, keep=1))
    reply, model, count = reply_with(designs, "Some worlds."), type(chosen[0]), len(designs)
    taken = read_reply(reply.text, model, count, [chosen[0]], reply.designs)
    read = read_reply(reply.text, model, count, [chosen[0]])
    assert (taken.designs, taken.complaints) == (read.designs, read.complaints) and len(read.designs) == count
    assert taken.complaints == () and [d.world for d in taken.designs] == [d.world for d in designs]
    assert read_reply(reply.text, model, count + 1, [], reply.designs).complaints      # of another number, with no keep


def test_worlds_of_another_class_are_refused_as_those_of_a_model_are():
    reply = reply_with([GardenWorld(seeds=1)])
    assert read_reply(reply.text, CrafterWorld, 1, (), reply.designs) == replace(
        read_reply(reply.text, CrafterWorld, 1), places=((0, 0),))


def decorate(value, draw, depth=0):
    "The same JSON with comments, trailing commas, Python's words and odd spacing."
    gap = draw(st.sampled_from(["", " ", "\n", "\t", " // note: {\"x\": [\n", "/* ], } \" */", " /* ' */ // \"\n"]))
    if isinstance(value, dict):
        members = [f"{gap}{json.dumps(k)}{gap}:{decorate(v, draw, depth + 1)}" for k, v in value.items()]
        return gap + "{" + ",".join(members) + (draw(st.sampled_from(["", ","])) if members else "") + gap + "}"
    if isinstance(value, list):
        return gap + "[" + ",".join(decorate(v, draw, depth + 1) for v in value) + ("," if value else "") + gap + "]"
    word = json.dumps(value)
    return gap + draw(st.sampled_from([word, {"true": "True", "false": "False", "null": "None"}.get(word, word)])) + gap


@given(st.lists(worlds, min_size=1, max_size=3), st.data())
def test_decoration_changes_nothing(chosen, data):
    reply = "\n".join(f"```json\n{decorate(world.settings(), data.draw)}\n```" for world in chosen)
    found, complaints = parse_reply(reply, GardenWorld, len(chosen))
    assert complaints == [] and [d.world for d in found] == chosen


# --- size

NASTY = ["{", "[", '{"a":', '[{"a":1},', '"', "\\", '"\\', "/*", "//", "```", "```json\n", "```json\n{", "~~~", '{"',
         "{'", "{//", "Environment 1:\n", "# " * 3, "#", "*", "_ ", "\n\n", "\n---", "Purpose:", "{}", '{"seeds": 1}\n',
         "[{}", "Environment 1:\n```json\n{}\n```\n", "<think>", "</think>", "\n \n", "-", "9", "9.", "1e", "\t",
         "env 1 ", '{"a1": 1, ', "[//", '{"a\x01', '{"a": "\n']


@pytest.mark.parametrize("shard", NASTY)
def test_the_largest_replies_are_read_to_an_end(shard):
    "Each takes well under a second; if time grew with the square of the length, it would be hours."
    for start in ("", '{"environments": ['):
        reply = start + shard * ((MAX_CHARACTERS - len(start)) // len(shard))
        assert parse_reply(reply, GardenWorld, 2)[1]


def filled_up(head: str, shard: str, tail: str = ""):
    "A function that makes such a reply of a given size: `head`, as many times `shard` as fit, `tail`."
    def reply(size: int) -> str:
        times, rest = divmod(size - len(head) - len(tail), len(shard))
        return head + shard * times + " " * rest + tail
    return reply


KEYS = ",".join(f'"k{n}":1' for n in range(4_990)) + "}"
HOSTILE = {
    "spaces behind a label": filled_up("Purpose", " ", "x"),
    "tabs behind a label, and stars": filled_up("```json\n{}\n```\n**Purpose", "\t", "**\t\t"),
    "stars behind a label": filled_up("Purpose", "*_", " x"),
    "labels without a colon": filled_up("", "purpose  *  \n"),
    "spaces behind a heading": filled_up("Environment 1", " ", "x"),
    "headings": filled_up("", "Environment 1:\n", "```json\n{}\n```"),
    "notes that are none": filled_up("```json\n{}\n```", "\n\n*_#>", "_n"),
    "empty lines": filled_up("", "\n", '{"a": x}'),
    "comments with brackets in them": filled_up("{", "/*}{/*/"),
    "comments with open brackets in them": filled_up("{/**/", "/*}{/**/"),
    "comments that are not closed": filled_up("", "{/*"),
    "line comments with brackets in them": filled_up("", "{//}\n"),
    "strings that are not closed": filled_up("", '{"a\\"'),
    "brackets with spaces": filled_up("", "{ [ "),
    "broken values, then spaces": filled_up('{"a": x}' * 99, " "),
    "empty lines, then broken values": filled_up("", "\n", '{"a": x}' * 99),
    "empty lines, then unknown keys": filled_up("{", "\n", KEYS),
    "unknown keys, written with escapes": filled_up("{", "\n", KEYS.replace("k", "\\u006b")),
    "empty lines in many worlds": filled_up("[", '{"q":1},\n\n\n\n\n', '{"q":1}]'),
    "a list of numbers": filled_up('[{"a": 1}, ', "-1,", "]"),
    "many fences": filled_up("", "```json\n{x\n```\n\n"),
    "fences without an end": filled_up("", "```json\n{"),
    "quotes": filled_up('{"k": 1, ', '"'),
    "thoughts": filled_up("<think>", "</think"),
}


def processor_time(work, reply: str) -> float:
    "The least of three measurements, in seconds; what takes long is measured once."
    times = []
    while not times or len(times) < 3 and sum(times) < 0.3:
        start = time.process_time()
        assert work(reply)
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize("name", HOSTILE)
def test_the_time_of_a_hostile_reply_grows_as_its_length(name):
    """For reading, annotating, reading ladders, and what the studio shows. From an eighth of the greatest size to the
    whole of it, the processor may take 32 times as long: linear growth is 8, quadratic growth 64. A busy machine may
    slow one measurement down fourfold, so there are three: quadratic growth fails them all."""
    model = CRAFTER.world_class("extended")
    settings = SimpleNamespace(vocabulary="extended", num_proposed=4, design="worlds")
    run = SimpleNamespace(simulator=CRAFTER, settings=settings,
                          cycles=["cycle-0", "cycle-1"], worlds=lambda cycle: [])
    long, short = HOSTILE[name](MAX_CHARACTERS), HOSTILE[name](MAX_CHARACTERS // 8)
    assert len(long) == MAX_CHARACTERS
    for work in (lambda reply: parse_reply(reply, model, 4), lambda reply: annotated(reply, model, 4),
                 lambda reply: parse_reply(reply, model, 4, objectives=CRAFTER.objectives),
                 lambda reply: reply_html(run, "cycle-1", reply)):
        least = max(processor_time(work, short), 0.02)        # below 20 ms is what every reply costs
        assert any(processor_time(work, long) < 32 * least for _ in range(3))


def test_complaints_stand_at_the_first_naming_of_their_field():
    text = 'Environment 1: "seeds"\n```json\n{"pests": [],\n "seeds": 10}\n```\n```json\n[{"seeds": 1},\n{"x": 1}]\n```'
    whole, lines = annotated(text, GardenWorld, 3)
    assert whole == [] and [(line, complaint.field) for line, found in lines for complaint in found] == [
        (' "seeds": 10}', "seeds"), ('{"x": 1}]', "x")]
    assert annotated("x" * (MAX_CHARACTERS + 1), GardenWorld, 3)[0][0].environment is None


def test_many_unknown_keys_are_bounded():
    many = "{" + ", ".join(f'"key{n}": {n}' for n in range(10_000)) + "}"
    assert len(said(many)) == 2 and "more than 5000 values" in said(many)[1]


# --- structured output


def check_strict(schema):
    "What strict mode demands of a schema."
    if schema.get("type") == "object":
        assert schema["additionalProperties"] is False and schema["required"] == list(schema["properties"])
        for part in schema["properties"].values():
            check_strict(part)
    for part in [schema.get("items"), *schema.get("anyOf", [])]:
        if part:
            check_strict(part)


def fits(schema, value) -> bool:
    "A small validator for the keywords that the schema uses."
    if "anyOf" in schema:
        return any(fits(part, value) for part in schema["anyOf"])
    kind = schema["type"]
    if kind == "object":
        return isinstance(value, dict) and list(value) == schema["required"] and all(
            fits(part, value[name]) for name, part in schema["properties"].items())
    if kind == "array":
        return (isinstance(value, list)
                and schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
                and all(fits(schema["items"], item) for item in value))
    if kind == "null":
        return value is None
    if kind == "number":
        return type(value) in (int, float) and schema["minimum"] <= value <= schema["maximum"]
    right = {"string": str, "integer": int, "boolean": bool}[kind]
    return (type(value) is right and value in schema.get("enum", [value])
            and (kind != "integer" or schema.get("minimum", value) <= value <= schema.get("maximum", value)))


@pytest.mark.parametrize("model", [CrafterWorld, ExtendedCrafterWorld, MazeWorld, GardenWorld])
def test_schema_is_strict_and_complete(model):
    schema = response_schema(model, 3)
    check_strict(schema)
    written = json.dumps(schema)
    for p in parameters(model):
        assert f'"{p.name}"' in written
        assert json.dumps(list(p.choices)) in written or p.low is not None or isinstance(p.choices[0], bool)


def filled(model, data=None):
    "Settings with every key present, as strict mode writes them."
    data = data or {}
    return {name: (filled(field.annotation, data.get(name)) if isinstance(field.annotation, type)
                   and issubclass(field.annotation, Section) else data.get(name))
            for name, field in model.model_fields.items()}


@given(st.lists(crafter_worlds, min_size=1, max_size=4))
def test_structured_replies_come_back(chosen):
    chosen = [world for world in chosen if type(world) is type(chosen[0])]
    model = type(chosen[0])
    plain = [json.loads(world.model_dump_json(exclude_none=True)) for world in chosen]
    reply = {"environments": [{"purpose": "p", "settings": filled(model, data)} for data in plain]}
    assert fits(response_schema(model, len(chosen)), reply)
    found, complaints = parse_reply(json.dumps(reply), model, len(chosen))
    assert complaints == [] and found == [Design(world, "p") for world in chosen]


def test_structured_replies_keep_worlds():
    """With all settings as null, which is the only way in strict mode; and a program's answer, with none."""
    kept = {"purpose": "p", "settings": filled(GardenWorld, {"pests": []}), "weight": 2, "keep": 1}
    other = {"purpose": "p", "settings": filled(GardenWorld, {"pests": [], "seeds": 3}), "weight": None, "keep": None}
    reply = {"environments": [kept, other]}
    assert fits(response_schema(GardenWorld, 2, previous=2), reply)
    found, complaints = parse_reply(json.dumps(reply), GardenWorld, 2, WORLDS)
    assert complaints == [] and [(one.world, one.weight, one.keep) for one in found] == [
        (WORLDS[0], 2, 1), (GardenWorld(seeds=3), 1, None)]
    kept["settings"]["seeds"] = 2
    assert "no settings of its own" in str(parse_reply(json.dumps(reply), GardenWorld, 2, WORLDS)[1][0])


def test_json_beside_the_blocks_is_not_left_out():
    """The environments of before in blocks, the new ones bare."""
    reply = f"Before:\n{fenced(ONE, TWO)}\nNow better:\n{{\"seeds\": 2}}\n{{\"seeds\": 3}}\n"
    assert "there is JSON outside of the ```json blocks" in said(reply)[0]


def test_numbered_headings_and_a_purpose_on_lines_of_its_own():
    reply = (f"1. **Environment 1**\n```json\n{ONE}\n```\n**Purpose**\nLearn iron.\n\n"
             f"2. **Environment 2**\n```json\n{TWO}\n```\n**Purpose**\nLearn coal.\n")
    designs, complaints = parse_reply(reply, GardenWorld, 2)
    assert complaints == [] and [one.purpose for one in designs] == ["Learn iron.", "Learn coal."]
