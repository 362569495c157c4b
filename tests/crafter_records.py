"The reference's game as a record of the compiled engine, and what differs between the two, in words."

from itertools import pairwise

import numpy as np

from envgen_nb.simulators.crafter.fast.records import OBJECT_FIELDS, SAME, compact, count_ground
from envgen_nb.simulators.crafter.fast.state import CHUNK, CHUNKS, CHUNKS_DOWN, DX, DY, GAME, KINDS, MOST
from envgen_nb.simulators.crafter.reference import ITEMS, OBJECTIVES

FACINGS = {facing: number for number, facing in enumerate(zip(DX, DY, strict=True))}     # (0, 1) is down, number 3
COUNTERS = {"Zombie": "cooldown", "Skeleton": "reload", "Plant": "grown"}
NAMES = {"inventory": ITEMS, "achievements": OBJECTIVES, "given": OBJECTIVES}            # what a field's numbers mean


def record_of(game):
    """A game of the reference engine as a record, () of dtype GAME, with no empty slots between objects.

    What only the engine keeps is 0 (`fresh`, `total`, …)."""
    record, world, player = np.zeros((), GAME), game._world, game._player
    _, record["words"], record["word"], *_ = world.random.get_state()
    record["material"] = world._mat_map
    record["grass"], record["path"] = count_ground(world._mat_map)
    things = [thing for thing in world._objects if thing is not None]
    write_objects(record, things)
    write_chunks(record, world, things)
    record["inventory"], record["achievements"] = (
        list(part.values()) for part in (player.inventory, player.achievements))
    record["sleeping"] = player.sleeping
    record["hunger"], record["thirst"] = player._hunger, player._thirst
    record["fatigue"], record["recover"] = player._fatigue, player._recover
    record["hurt_health"], record["paid_health"] = player._last_health, game._last_health
    record["step"], record["daylight"], record["clock"] = game._step, world.daylight, game._clock
    record["given"] = [name in game._given for name in OBJECTIVES]
    record["seed"], record["episode"] = game._seed, game._episode
    return record


def write_objects(record, things):
    "Put all objects into slots, from 1 on."
    record["slots"] = record["objects"] = count = len(things)
    for slot, thing in enumerate(things, 1):
        name = type(thing).__name__
        record["x"][slot], record["y"][slot] = thing.pos
        record["kind"][slot], record["health"][slot] = KINDS.index(name), thing.inventory["health"]
        record["facing"][slot] = FACINGS[tuple(thing.facing)] if name in ("Player", "Arrow") else 0
        record["count"][slot] = getattr(thing, COUNTERS[name]) if name in COUNTERS else 0
    record["slot"][record["x"][1:count + 1], record["y"][1:count + 1]] = np.arange(1, count + 1)


def write_chunks(record, world, things):
    "Link the members of each chunk, in the order in which they came, and list the chunks in theirs."
    slot_of = {thing: slot for slot, thing in enumerate(things, 1)}
    order = []
    for (left, _, top, _), members in world._chunks.items():
        chunk, slots = left // CHUNK * CHUNKS_DOWN + top // CHUNK, [slot_of[member] for member in members]
        order.append(chunk)
        for one, other in pairwise(slots):
            record["after"][one], record["before"][other] = other, one
        if slots:
            record["first"][chunk], record["last"][chunk] = slots[0], slots[-1]
    record["entered"], record["order"][:len(order)], record["known"][order] = len(order), order, 1


def differences(game, record):
    "What differs between a reference game and an engine's record, in words, the reference's value first."
    wanted, found = record_of(game), compact(record)
    wanted["health"][1] = wanted["inventory"][ITEMS.index("health")]
    if wanted.tobytes() == found.tobytes():
        return []
    said = []
    for slot in range(1, int(max(wanted["slots"], found["slots"])) + 1):
        one, other = (object_in(record, slot) for record in (wanted, found))
        if one != other:
            said.append(f"object {slot}: {one}, not {other}")
    for chunk in range(CHUNKS):
        for head, links in (("first", "after"), ("last", "before")):
            one, other = (chain(record[head][chunk], record[links]) for record in (wanted, found))
            if one != other:
                said.append(f"members of chunk {chunk} from the {head}: objects {one}, not {other}")
    for field in ("slot", "order", *SAME):
        for place in list(zip(*np.nonzero(np.atleast_1d(wanted[field] != found[field])), strict=True))[:3]:
            place = place if wanted[field].ndim else ()
            name = f" {NAMES[field][place[0]]}" if field in NAMES else "".join(f" {int(i)}" for i in place)
            said.append(f"{field}{name}: {wanted[field][place]}, not {found[field][place]}")
    return said


def object_in(record, slot):
    "What is in a slot, in words."
    kind = int(record["kind"][slot])
    name = KINDS[kind] if kind < len(KINDS) else f"kind {kind}"
    return f"{name} " + " ".join(f"{field} {record[field][slot]}" for field in OBJECT_FIELDS if field != "kind")


def chain(start, links):
    "The slots of a list, followed until its end or until it cannot be one."
    found = []
    while start and len(found) < MOST:
        found.append(int(start))
        start = links[start] if start < MOST else 0
    return found
