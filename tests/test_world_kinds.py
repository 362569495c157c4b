"""Every kind of setting that a world may have: in prompts, replies, schemas, draws, the studio, files and runs."""
import json
import random
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, model_validator
from test_designer_reply import check_strict, fits
from test_simple import Building, StairsWorld

from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.folder import RunFolder
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.designer.prompt import first_prompt, load_templates
from envgen_nb.designer.reply import Design, format_reply, parse_reply
from envgen_nb.designer.schema import response_schema
from envgen_nb.game.words import differences, settings_in_words
from envgen_nb.game.world import Section, World, check_world, parameters, random_world
from envgen_nb.game.world_files import laid_out, load_worlds, save_worlds
from envgen_nb.studio.worlds import Worlds, _Card

Place = tuple[Annotated[int, Field(ge=0, le=7)], Annotated[int, Field(ge=-2, le=5)]]


class Key(Section):
    colour: Literal["red", "blue"] = Field(description="the colour")
    place: Place = Field(description="where it lies")
    weight: float | None = Field(None, ge=0.5, le=2, description="kilograms")
    hidden: bool | None = Field(None, description="whether it is hidden")


class Cellar(Section):
    dampness: float | None = Field(None, ge=-1, le=1, description="how damp it is")
    stairs: Place | None = Field(None, description="where the stairs are")
    keys: tuple[Key, ...] | None = Field(None, max_length=3, description="the keys in it")


class HouseWorld(World):
    cellar: Cellar = Cellar()
    door: Place | None = Field(None, description="where the door is")
    keys: tuple[Key, ...] | None = Field(None, max_length=2, description="the keys upstairs")
    floors: int | None = Field(None, ge=1, le=3, description="how many floors")
    pets: tuple[Literal["cat", "dog"], ...] | None = Field(None, max_length=2, description="who lives there")

    @model_validator(mode="after")
    def _apart(self):
        keys = enumerate(self.keys or ())
        wrong = [f"keys[{k}].place: the door is there" for k, key in keys if key.place == self.door]
        wrong += ["cellar.keys[0]: there are two keys of one place in all"] * (
            bool(self.keys and self.cellar.keys) and self.keys[0].place == self.cellar.keys[0].place)
        if wrong:
            raise ValueError("\n".join(wrong))
        return self


class House(Building):
    name, vocabularies = "house", {"paper": HouseWorld}

    def describe(self, world=None, seed=0):
        return {}

    def preview(self, world=None, seed=0):
        return np.zeros((8, 8, 3), np.uint8)


PLACES = st.tuples(st.integers(0, 7), st.integers(-2, 5))
KEYS = st.builds(Key, colour=st.sampled_from(["red", "blue"]), place=PLACES,
                 weight=st.none() | st.floats(0.5, 2), hidden=st.none() | st.booleans())
CELLARS = st.builds(Cellar, dampness=st.none() | st.floats(-1, 1), stairs=st.none() | PLACES,
                    keys=st.none() | st.lists(KEYS, max_size=3).map(tuple))
HOUSES = st.fixed_dictionaries({"cellar": CELLARS}, optional={
    "door": PLACES, "keys": st.lists(KEYS, max_size=2).map(tuple), "floors": st.integers(1, 3),
    "pets": st.just(("cat", "dog"))}).map(
        lambda data: check_world(HouseWorld, HouseWorld.model_construct(**data).model_dump(exclude_none=True))[0]
    ).filter(bool)


def complaints(data) -> dict[str, str]:
    return {c.field: c.message for c in check_world(HouseWorld, data)[1]}


def test_the_prompt_tells_each_kind():
    prompt = first_prompt(load_templates(), House())
    for line in ("- door: [x, y], x 0-7, y -2-5 (where the door is)",
                 "- keys: a list of up to 2 objects with: colour, place, weight, hidden (the keys upstairs)",
                 "  - place: [x, y], x 0-7, y -2-5 (required; where it lies)",
                 "  - weight: a number from 0.5 to 2 (kilograms)", "  - hidden: true | false (whether it is hidden)",
                 "- floors: 1-3 (how many floors)", "- pets: a list of up to 2 of: cat | dog (who lives there)",
                 "In cellar:\n- dampness: a number from -1 to 1 (how damp it is)"):
        assert f"\n{line}\n" in prompt, line
    assert '"keys": [{"colour": ..., "place": ..., "weight": ..., "hidden": ...}, ...]' in prompt


def test_complaints_say_where():
    key = {"colour": "red", "place": [0, 0]}
    found = complaints({"door": [8, 0], "floors": 4, "pets": ["cat", "cow"], "cellar": {
        "dampness": 2, "stairs": [1, 2, 3], "keys": [key, key | {"weight": 3.5}, {"colour": "green", "place": [0, 6]}]},
        "keys": [key | {"size": 3}, {"place": 3}]})
    assert found == {
        "cellar.dampness": "2 is not allowed; allowed: a number from -1 to 1",
        "cellar.stairs": "[1, 2, 3] is not allowed; allowed: [x, y], x 0-7, y -2-5",
        "cellar.keys[1].weight": "3.5 is not allowed; allowed: a number from 0.5 to 2",
        "cellar.keys[2].colour": '"green" is not allowed; allowed: red | blue',
        "cellar.keys[2].place[1]": "6 is not allowed; allowed: -2-5",
        "door[0]": "8 is not allowed; allowed: 0-7", "floors": "4 is not allowed; allowed: 1-3",
        "keys[0].size": "there is no such setting; here one may set: colour, hidden, place, weight",
        "keys[1].colour": "it is missing; allowed: red | blue",
        "keys[1].place": "3 is not allowed; allowed: [x, y], x 0-7, y -2-5",
        "pets": '"cow" is not allowed; allowed: a list of up to 2 of: cat | dog'}
    assert "up to 2 objects" in complaints({"keys": [key] * 3})["keys"]
    assert complaints({"keys": [7]}) == {"keys[0]": "expected a JSON object with settings, got 7"}
    twice = {"door": [0, 0], "keys": [key, key], "cellar": {"keys": [key]}}
    assert list(complaints(twice)) == ["keys[0].place", "keys[1].place", "cellar.keys[0]"]


@given(HOUSES)
def test_a_world_survives_whatever_it_goes_through(world):
    assert load_worlds(HouseWorld, json.dumps([world.settings()])) == ([world], [])
    design = Design(world, "a house")
    assert parse_reply(format_reply([design]), HouseWorld, 1) == ([design], [])
    assert json.loads(laid_out(world.settings())) == json.loads(str(world))
    assert settings_in_words(world) == settings_in_words(eval(repr(world))) and differences(world, world) == []
    assert bool(differences(None, world)) == (world.settings() not in ({"cellar": {}}, {}))


def test_replies_are_read_leniently_and_cut_off_ones_kept_so_far():
    whole = '{"keys": [{"colour": "red", "place": [1, 2,], "hidden": True,}, /* and */ ], "door": [0, -2]}'
    designs, wrong = parse_reply(f"```json\n{whole}\n```", HouseWorld, 1)
    assert not wrong and designs[0].world == HouseWorld(
        door=(0, -2), keys=(Key(colour="red", place=(1, 2), hidden=True),))
    for end in ("", ", \"place\": [1", ", \"place\": [1, 2]}"):
        designs, wrong = parse_reply(f'[{whole}, {{"keys": [{{"colour": "red"{end}', HouseWorld, 2)
        assert len(designs) == 1 and str(wrong[0]).startswith("Environment 2: the reply is cut off")


def full(model, world) -> dict:
    """Settings with every key present, as strict mode writes them."""
    if isinstance(world, Section):
        return {name: full(model, getattr(world, name)) for name in type(world).model_fields}
    return [full(model, part) for part in world] if isinstance(world, tuple) else world


@given(HOUSES)
def test_structured_output(world):
    schema = response_schema(HouseWorld, 1)
    check_strict(schema)
    reply = {"environments": [{"purpose": "p", "settings": full(HouseWorld, world)}]}
    assert fits(schema, reply) and parse_reply(json.dumps(reply), HouseWorld, 1) == ([Design(world, "p")], [])


def test_what_the_schema_refuses():
    one = response_schema(HouseWorld, 1)["properties"]["environments"]["items"]["properties"]["settings"]["properties"]
    key = {"colour": "red", "place": [0, 0], "weight": None, "hidden": None}
    assert fits(one["keys"], [key]) and fits(one["door"], [0, 0]) and fits(one["floors"], None)
    for name, wrong in (("keys", [key] * 3), ("keys", [key | {"colour": None}]), ("keys", [key | {"weight": 3.0}]),
                        ("door", [1]), ("door", [1, 9]), ("door", [1.5, 0])):
        assert not fits(one[name], wrong), (name, wrong)
    assert "[x, y], x 0-7, y -2-5" in one["door"]["description"]


def test_luck_draws_all_that_is_allowed():
    worlds = [random_world(HouseWorld, random.Random(k), fill=0.7) for k in range(300)]
    assert all(check_world(HouseWorld, json.loads(str(world))) == (world, []) for world in worlds)
    assert all(json.loads(str(world)) == world.settings() for world in worlds), "lists in a file are no tuples"
    assert worlds == [random_world(HouseWorld, random.Random(k), fill=0.7) for k in range(300)]
    keys = [key for world in worlds for key in (*(world.keys or ()), *(world.cellar.keys or ()))]
    assert {key.place[0] for key in keys} == set(range(8)) and {key.place[1] for key in keys} == set(range(-2, 6))
    assert {len(world.cellar.keys) for world in worlds if world.cellar.keys is not None} == {0, 1, 2, 3}
    assert {key.hidden for key in keys} == {None, True, False}
    weights = {key.weight for key in keys if key.weight is not None}
    assert len(weights) > 50 and 0.5 <= min(weights) < 0.7 and 1.8 < max(weights) <= 2
    assert min(world.cellar.dampness or 0 for world in worlds) < -0.8


def test_records_that_do_not_fit_are_left_out_of_a_draw():
    class Strict(HouseWorld):
        @model_validator(mode="after")
        def _only_red(self):
            wrong = [f"keys[{k}]: not {key.colour}" for k, key in enumerate(self.keys or ()) if key.colour != "red"]
            if wrong:
                raise ValueError("\n".join(wrong))
            return self

    drawn = [random_world(Strict, random.Random(k), fill=1.0) for k in range(50)]
    assert {key.colour for world in drawn for key in world.keys} == {"red"}
    assert {len(world.keys) for world in drawn} == {0, 1, 2}


def find(view, description):
    """What has that name in a view."""
    inside = [view] if getattr(view, "description", None) == description else []
    return inside + [found for child in getattr(view, "children", ()) for found in find(child, description)]


def test_the_studio_has_a_control_for_each_kind():
    state = Worlds(House(), designs=(Design(HouseWorld(), "a house"),))
    card = _Card(state, 0)
    state.observe(lambda _: card.show(), ["designs", "complaints"])
    card.show(), find(card.box, "Edit")[0].click()
    damp, keys, stairs = (card.editor.controls[f"cellar.{name}"] for name in ("dampness", "keys", "stairs"))
    damp.inputs[0].value = "-0.5"
    keys.inputs[1].value = '[{"colour": "red", "place": [0, 0]}, {"colour": "red", "place": [9, 0]}]'
    assert state.designs[0].world.settings() == {"cellar": {"dampness": -0.5}}
    assert [c.field for c in state.complaints[0]] == ["cellar.keys[1].place[0]"]
    assert "keys[1].place[0]: 9 is not allowed; allowed: 0-7" in keys.complaint.value
    keys.inputs[1].value = '[{"colour": "red", "place": [0, 0]}, {"colour": "red", "place": [7, 0], "hidden": true}]'
    stairs.inputs[0].value = "[3, -2]"
    find(card.box, "floors")[0].value = 2
    find(card.box, "dog")[0].value = True
    assert not state.complaints and state.designs[0].world == HouseWorld(
        floors=2, pets=("dog",), cellar=Cellar(dampness=-0.5, stairs=(3, -2), keys=(
            Key(colour="red", place=(0, 0)), Key(colour="red", place=(7, 0), hidden=True))))
    for _ in range(6):
        state.undo()
    assert state.designs[0].world == HouseWorld()
    assert (damp.inputs[0].value, keys.inputs[1].value, stairs.inputs[0].value) == ("", "", "")


class TallerWorld(StairsWorld):
    "The stairs' worlds, with settings that came later."
    wind: float | None = Field(None, ge=0, le=1, description="how windy it is")
    window: Place | None = Field(None, description="where the window is")
    keys: tuple[Key, ...] | None = Field(None, max_length=2, description="keys")


def test_settings_that_come_later_leave_files_and_runs_readable(tmp_path, monkeypatch):
    old = [StairsWorld(height=3), StairsWorld(door=False), StairsWorld()]
    save_worlds(old, tmp_path / "worlds.json")
    read, wrong = load_worlds(TallerWorld, Path(tmp_path / "worlds.json").read_text())
    assert not wrong and [world.settings() for world in read] == [world.settings() for world in old]
    settings = make_settings(
        simulator="building", num_cycles=2, num_worlds=2, cycle_steps=256, final_steps=0, evaluation_runs=1,
        evaluation_episodes=4, threads=1, preset_options={"num_envs": 8, "rollout_steps": 16, "minibatches": 2})
    events = run_cycles(create_run(settings, tmp_path / "run").path)
    while not (tmp_path / "run" / "cycle-1" / "evaluation.json").exists():
        next(events)
    events.close()
    before = [world.settings() for world in RunFolder(tmp_path / "run").worlds("cycle-1")]
    monkeypatch.setattr(Building, "vocabularies", {"paper": TallerWorld})
    run = RunFolder(tmp_path / "run")
    assert type(run.worlds("cycle-1")[0]) is TallerWorld and not run.finished()
    assert [world.settings() for world in run.worlds("cycle-1")] == before
    list(run_cycles(run.path))                                                     # and it goes on
    assert RunFolder(run.path).finished() and type(run.worlds("cycle-2")[0]) is TallerWorld


@pytest.mark.parametrize("kind", [float, tuple[int, int], tuple[Key, ...], tuple[HouseWorld, ...], list[Key], dict])
def test_a_kind_that_no_prompt_could_say_is_refused(kind):
    with pytest.raises(TypeError, match="a world's field is a Literal"):
        parameters(type("Odd", (World,), {"__annotations__": {"odd": kind | None}, "odd": None}))
