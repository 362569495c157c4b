"""Settings of which one excludes the other: whatever a world class refuses, the prompt has said."""

import itertools
import re

import pytest

from envgen_nb.designer.prompt import first_prompt, load_templates
from envgen_nb.game.simulator import get_simulator
from envgen_nb.game.world import check_world, parameters

DOOR = {"room": [0, 0], "side": "right", "colour": "red", "state": "closed"}
RECORDS = {          # of MiniGrid: lists of records, from which all that matters of them can be seen
    "doors": [[], [DOOR], [DOOR | {"state": "locked"}], [DOOR | {"side": "down"}], [DOOR | {"blocked": True}]],
    "keys": [[], [{"colour": "red", "room": [0, 0]}], [{"colour": "blue", "room": [0, 0], "in_box": True}],
             [{"colour": "red", "room": [2, 2]}]],
    "distractors": [[], [{"kind": "ball", "colour": "blue", "room": [0, 0]}],
                    [{"kind": "box", "colour": "red", "room": [2, 2]}]]}
BASES = [            # what else is set: what some settings need
    ("crafter", "paper", {}), ("crafter", "extended", {}),
    ("crafter", "extended", {"episode_settings": {"achieved": ["what the bag shows"]}}),
    ("heist", "default", {}), ("heist", "default", {"locks": 3, "keys_held": 1}), ("heist", "hard", {}),
    ("minigrid", "default", {}), ("minigrid", "default", {"columns": 3, "rows": 3, "openings": True, "doors": []})]


def values(parameter):
    "Values of a setting that may matter; None: it is not set."
    p = parameter
    if p.kind == "records":
        return [None, *RECORDS[p.name]]
    if p.kind == "position":
        return [None, [0, 0], [1, 0], [0, 1], [2, 2]]
    if p.many:
        return [None, [], *([one] for one in p.choices), list(p.choices[:p.high])]
    if p.choices:
        return [None, *p.choices]
    return [None, *sorted({p.low, min(p.low + 1, p.high), (p.low + p.high) // 2, p.high})]


def with_settings(base, *pairs):
    "The data of a world in which these settings have these values."
    data = {name: dict(part) if isinstance(part, dict) else part for name, part in base.items()}
    for parameter, value in pairs:
        place = data
        for name in parameter.path[:-1]:
            place = place.setdefault(name, {})
        place.pop(parameter.name, None) if value is None else place.update({parameter.name: value})
    return data


def exclusions(model, base):
    "Pairs of settings of which values are refused together, each of which is taken beside another value of the other."
    for one, other in itertools.combinations(parameters(model), 2):
        rows, columns = values(one), values(other)
        taken = {(i, j): check_world(model, with_settings(base, (one, rows[i]), (other, columns[j])))[0] is not None
                 for i in range(len(rows)) for j in range(len(columns))}
        for i, j in taken:
            if (not taken[i, j] and any(taken[i, k] for k in range(len(columns)))
                    and any(taken[k, j] for k in range(len(rows)))):
                yield (one, rows[i]), (other, columns[j])


def named(parameter, found, line):
    "True if a line names a setting, or its section; of a list also the things in it, where it is about one or two."
    things = {value[0] for value in found if parameter.many and value and len(value) == 1}
    said = re.search(rf"\b({parameter.name}|{parameter.path[0]})\b", line)
    return bool(said) and (len(things) > 2 or all(thing in line for thing in things))


@pytest.mark.parametrize("name, vocabulary, base", BASES)
def test_the_prompt_says_which_settings_exclude_each_other(name, vocabulary, base):
    simulator = get_simulator(name)
    model = simulator.world_class(vocabulary)
    assert check_world(model, base)[0] is not None
    rules = first_prompt(load_templates(), simulator, vocabulary, 2).split("## Rules")[1].split("\n## ")[0].splitlines()
    found = {}
    for (one, value), (other, its) in exclusions(model, base):
        pair = found.setdefault((one.path, other.path), (one, [], other, []))
        pair[1].append(value)
        pair[3].append(its)
    missing = [(one.name, other.name) for one, first, other, second in found.values()
               if not any(named(one, first, line) and named(other, second, line) for line in rules)]
    assert not missing
    assert found or vocabulary == "paper"            # the paper's settings go together in every way


@pytest.mark.parametrize("name, vocabulary", [("crafter", "extended")])
def test_the_prompt_says_which_lists_take_a_thing_once(name, vocabulary):
    model = get_simulator(name).world_class(vocabulary)
    lists = [p for p in parameters(model) if p.many]
    refused = [p for p in lists if check_world(model, with_settings({}, (p, [p.choices[0]] * 2)))[0] is None]
    assert refused and any(all(p.name in rule for p in refused) and "once" in rule for rule in model.constraints)


def test_what_a_language_model_asked_for_in_vain():
    "Five of six first replies had `near: ripe_plant` with `plant_grown`."
    prompt = first_prompt(load_templates(), get_simulator("crafter"), "extended")
    line, = (line for line in prompt.splitlines() if line.startswith("- plant_grown puts"))
    assert "near has no ripe_plant" in line
    assert "plant_grown" not in first_prompt(load_templates(), get_simulator("crafter"), "paper")
