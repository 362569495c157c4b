"""The vector environment on the compiled engine, against the same environment on the reference."""

import threading
import time

import numpy as np
import pytest
from forms import first

from envgen_nb.game import conformance
from envgen_nb.game.simulator import make_vec
from envgen_nb.simulators.crafter.fast.batch import READY
from envgen_nb.simulators.crafter.reference import OBJECTIVES
from envgen_nb.simulators.crafter.simulator import Crafter
from envgen_nb.simulators.crafter.vector import CrafterVectorEnv
from envgen_nb.simulators.crafter.world import EpisodeSettings, ExtendedCrafterWorld, StartSettings

CRAFTER = Crafter()
WORLDS = [None, *CRAFTER.practice("eat_cow", "extended")[:2], CRAFTER.practice("defeat_skeleton", "extended")[0],
          CRAFTER.practice("collect_iron")[0]]


def rows(steps, num_envs, seed=0):
    return np.random.default_rng(seed).integers(17, size=(steps, num_envs))


def parts(obs):
    return obs if isinstance(obs, dict) else {"": obs}


def assert_equal_steps(ours, theirs):
    "Everything that two steps returned."
    for mine, other in zip(ours[1:4], theirs[1:4], strict=True):
        assert np.array_equal(mine, other)
    ended = ours[4].get("_results")
    assert (ended is None) == ("_results" not in theirs[4])
    for key, value in parts(ours[0]).items():
        assert np.array_equal(value, parts(theirs[0])[key]), key
    for key in ("achievements", "inventory", "position"):
        assert np.array_equal(ours[4][key], theirs[4][key]), key
    if ended is not None:
        assert np.array_equal(ended, theirs[4]["_results"])
        for key, value in parts(ours[4]["final_obs"]).items():
            assert np.array_equal(value[ended], parts(theirs[4]["final_obs"])[key][ended]), key
        alone = {"death", "conditions"}                                                    # the reference does not know
        assert set(ours[4]["results"]) - set(theirs[4]["results"]) == alone
        for key, value in ours[4]["results"].items():
            assert key in alone or np.array_equal(value[ended], theirs[4]["results"][key][ended]), key


@pytest.mark.parametrize("settings", [
    {"obs": "both", "length": 70}, {"obs": "pixels", "length": 40, "num_threads": 2}, {"obs": "symbols", "length": 3},
    {"obs": "symbols", "noise": False, "length": 230}, {"obs": "both", "length": 30, "episodes": 2}], ids=str)
def test_the_engine_plays_what_the_reference_plays(settings):
    "Several episodes in a row: worlds that were made ahead, and worlds that were not, maps and maps at night."
    n, steps = 5, 240
    fast = CrafterVectorEnv(WORLDS, n, seed=4, **settings)
    slow = CrafterVectorEnv(WORLDS, n, seed=4, **(settings | {"engine": "reference"}))
    assert all(np.array_equal(a, b) for a, b in zip(parts(fast.reset()[0]).values(), parts(slow.reset()[0]).values(),
                                                    strict=True))
    ends = spares = 0
    for k, row in enumerate(rows(steps, n)):
        spares += int((fast._engine.ready == READY).sum())
        ours, theirs = fast.step(row), slow.step(row)
        assert_equal_steps(ours, theirs)
        ends += int((ours[2] | ours[3]).sum())
        if k % 40 == 0:
            assert np.array_equal(fast.semantic(), slow.semantic())
    assert ends >= n and spares
    assert np.array_equal(fast.finished, slow.finished)
    fast.close(), slow.close()


@pytest.mark.parametrize("settings", [
    {"obs": "both", "num_threads": 2}, {"obs": "symbols", "noise": False, "episodes": 3}], ids=str)
def test_both_engines_play_the_worlds_that_are_assigned(settings):
    "For later and at once, with states in between; a world that lies ready is made again where another is assigned."
    n, luck = 5, np.random.default_rng(3)
    fast, slow = (CrafterVectorEnv(WORLDS[:2], n, seed=4, length=[30, 40], **(settings | engine)) for engine in (
        {"engine": "fast"}, {"engine": "reference"}))
    for venv in (fast, slow):
        assert venv.add_worlds(WORLDS[2:], [25, None, 9]) == range(2, 5) and venv.lengths == (30, 40, 25, 10_000, 9)
        venv.reset()
    ready = 0
    for k, row in enumerate(rows(130, n)):
        if k % 6 == 5:
            changes = {int(i): int(luck.integers(5)) for i in luck.choice(n, 2, replace=False)}
            ready += int((fast._engine.ready[list(changes)] == READY).sum())
            seen = [parts(venv.assign(changes, now=k % 18 == 5)) for venv in (fast, slow)]
            assert all(np.array_equal(part, seen[1][name]) for name, part in seen[0].items())
        if k == 70:
            seen = [parts(venv.set_state(venv.get_state())) for venv in (fast, slow)]
            assert all(np.array_equal(part, seen[1][name]) for name, part in seen[0].items())
        assert_equal_steps(fast.step(row), slow.step(row))
        assert np.array_equal(fast.assigned, slow.assigned)
        assert all(np.array_equal(part, slow.running[name]) for name, part in fast.running.items())
    assert ready and np.array_equal(fast.semantic(), slow.semantic())
    assert all(np.array_equal(one, other) for one, other in zip(fast.render(), slow.render(), strict=True))
    fast.close(), slow.close()


def test_ten_thousand_worlds_and_any_number_of_threads():
    "Each of ten thousand worlds can be played; who plays what does not depend on who makes the worlds ahead."
    worlds, found = (WORLDS * 2001)[1:10_001], []
    for num_threads in (1, 2):
        venv, luck, told = CrafterVectorEnv(num_envs=16, seed=3, obs="symbols", num_threads=num_threads), \
            np.random.default_rng(4), []
        assert venv.add_worlds(worlds, [20 + k % 5 for k in range(10_000)]) == range(1, 10_001)
        venv.reset()
        for k, row in enumerate(rows(300, 16)):
            if k % 3 == 0:
                venv.assign({int(luck.integers(16)): int(luck.integers(10_001))}, now=k % 15 == 0)
            obs, *rest, infos = venv.step(row)
            told += [part.tobytes() for part in [*obs.values(), *rest]]
            told += [infos["results"]["world"][infos["_results"]].tobytes()] if "results" in infos else []
        found.append((hash(b"".join(told)), venv.get_state()))
        assert len(set(venv.running["world"].tolist())) > 8
        with pytest.raises(ValueError, match="65,536 worlds"):
            venv.add_worlds([None] * 60_000)
        assert len(venv.worlds) == len(venv.lengths) == 10_001
        venv.close()
    assert found[0] == found[1]


def test_how_often_each_skill_was_shown_in_an_episode():
    "Added up step by step from where the episode began; given skills and those of before a moment do not count."
    worlds = [None, ExtendedCrafterWorld(inventory_settings={"wood": 9, "sapling": 9, "stone": 9},
                                         episode_settings=EpisodeSettings(length=90, achieved=("place_stone",))),
              ExtendedCrafterWorld(start_settings=StartSettings(start_from="after collect_wood"),
                                   episode_settings=EpisodeSettings(length=60))]
    venv, began, again = CrafterVectorEnv(worlds, 24, seed=3, obs="symbols", length=150, moments=True), 0, 0
    before, shown = venv.reset()[1]["achievements"].copy(), np.zeros((24, 22), int)
    for row in rows(500, 24):
        running = venv.running["counts"]
        assert np.array_equal(running, shown)
        *_, infos = venv.step(row)
        ended, now = infos.get("_results", np.zeros(24, bool)), infos["achievements"]
        shown[~ended] += (now - before)[~ended]
        for i in np.flatnonzero(ended):
            counts = infos["results"]["counts"][i]
            more = counts - shown[i]                       # the last step shows one skill at most
            assert more.min() >= 0 and more.sum() <= 1
            assert np.array_equal(infos["results"]["unlocked"][i], (counts > 0) & infos["results"]["possible"][i])
            again += int((counts > 1).any())
            shown[i] = 0
        began += int((now[ended].max(1, initial=0) > 0).sum())
        before = now.copy()
    venv.close()
    assert began > 5 and again > 5


@pytest.mark.parametrize("num_threads", [1, 2])
def test_nobody_waits_for_a_world_that_lies_ready(num_threads):
    "What was changed in the spare worlds is there when the next episodes begin: no world was made in between."
    venv = CrafterVectorEnv(num_envs=64, obs="symbols", length=200, num_threads=num_threads)
    venv.reset()
    batch, noops = venv._engine, np.zeros(64, int)
    for _ in range(100):                           # nobody starves or is killed so soon; a helper works in the pauses
        venv.step(noops)
        if (batch.ready == READY).all():
            break
        time.sleep(0.01)
    assert (batch.ready == READY).all()
    batch.spares["material"][:, 63, 63] = 12
    begun = np.zeros(64, bool)
    while not begun.all():
        *_, infos = venv.step(noops)
        ended = infos.get("_results", np.zeros(64, bool))
        assert (batch.games["material"][ended & ~begun, 63, 63] == 12).all()
        begun |= ended
    venv.close()


@pytest.mark.parametrize("num_threads", first(1, [2, 1, 4]))
def test_the_whole_contract(num_threads):
    conformance.check_simulator(CRAFTER, num_envs=5, options={"num_threads": num_threads})


def test_the_number_of_threads_changes_nothing():
    found = []
    for num_threads in (1, 2, 4):
        venv, seen = CrafterVectorEnv(WORLDS, 13, seed=3, obs="both", num_threads=num_threads), []
        venv.reset()
        for row in rows(400, 13):
            obs, *rest, infos = venv.step(row)
            seen.append(b"".join(np.ascontiguousarray(part).tobytes() for part in [*obs.values(), *rest]))
        found.append((hash(b"".join(seen)), venv.get_state()))
        venv.close()
    assert found[0] == found[1] == found[2]


def test_environments_in_several_python_threads_do_not_disturb_each_other():
    def play(found, k):
        venv = CrafterVectorEnv(WORLDS, 6, seed=k % 2, obs="symbols", num_threads=2, length=50)
        venv.reset()
        for row in rows(300, 6):
            venv.step(row)
        found[k] = venv.get_state()
        venv.close()

    found = {}
    threads = [threading.Thread(target=play, args=(found, k)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found[0] == found[2] and found[1] == found[3] and found[0] != found[1]


def test_helpers_end_with_the_environment():
    before = set(threading.enumerate())  # other tests' threads may end meanwhile: only the new ones count
    venv = CrafterVectorEnv(num_envs=4, num_threads=3)
    helpers = [thread for thread in threading.enumerate()
               if thread not in before and thread.name == "crafter helper"]
    assert len(helpers) == 2
    venv.close()
    for helper in helpers:
        helper.join(5)
    assert not any(helper.is_alive() for helper in helpers)


def test_a_state_comes_back_at_night_in_another_kind_of_observation():
    n = 3
    venv, other = (CrafterVectorEnv(WORLDS, n, seed=8, obs=obs) for obs in ("symbols", "both"))
    venv.reset()
    quiet = np.zeros(n, int)
    for _ in range(170):
        obs = venv.step(quiet)[0]
    assert obs["daylight"].min() < 0.5
    seen = other.set_state(venv.get_state())
    assert all(np.array_equal(obs[name], seen[name]) for name in obs)
    picture = seen["pixels"].copy()
    assert np.array_equal(other.set_state(other.get_state())["pixels"], picture)
    for row in rows(200, n):
        ours, theirs = venv.step(row), other.step(row)
        assert all(np.array_equal(a, b) for a, b in zip(ours[1:4], theirs[1:4], strict=True))
    assert venv.get_state() == other.get_state()
    shuffled = CrafterVectorEnv([None], 2, obs="symbols")
    shuffled.reset()
    one, two = shuffled.get_state()
    shuffled.set_state([two, two])                            # a state is copied from one sub-environment to another
    obs = shuffled.step([5, 5])[0]
    assert all(np.array_equal(part[0], part[1]) for part in obs.values()) and one != two


def test_broken_states_are_refused_and_the_game_goes_on():
    venv = CrafterVectorEnv([None], 2, obs="symbols", length=50)
    venv.reset()
    good = venv.get_state()
    other = CrafterVectorEnv(WORLDS[1:2], 2, obs="symbols", length=50)
    other.reset()
    free = CrafterVectorEnv([None], 2, obs="symbols", length=50, noise=False)
    free.reset()
    reference = CrafterVectorEnv([None], 2, obs="symbols", length=50, engine="reference")
    reference.reset()
    rng = np.random.default_rng(0)
    flipped = [bytes(byte ^ (at == spot) for at, byte in enumerate(good[0]))
               for spot in rng.integers(len(good[0]), size=20).tolist()]
    for wrong in (*flipped, b"", good[0][:-1], good[0] + b"x", "text", None, other.get_state()[0], free.get_state()[0],
                  reference.get_state()[0]):
        with pytest.raises(ValueError, match="sub-environment 1"):
            venv.set_state([good[0], wrong])
    assert venv.get_state() == good
    venv.step([0, 0])


@pytest.mark.long
def test_ten_thousand_environments_and_less_than_100_kilobytes_each():
    venv = CrafterVectorEnv(num_envs=10_000, obs="symbols", noise=False)
    batch = venv._engine
    assert sum(part.nbytes for part in (batch.games, batch.snapshots, batch.spares, batch.board)) / 10_000 < 100_000
    venv.reset()
    rewards = venv.step(np.full(10_000, 5))[1]
    assert rewards.shape == (10_000,) and venv.num_envs == 10_000
    venv.close()


# Moments to start from.

AFTER_WOOD = ExtendedCrafterWorld(start_settings=StartSettings(start_from="after collect_wood"),
                                  episode_settings=EpisodeSettings(length=32))


def with_moments(steps=300, **options):
    """An environment that has kept some."""
    venv = make_vec("crafter", [None, AFTER_WOOD], 16, seed=3, obs="symbols", length=200, moments=True, **options)
    venv.reset()
    for row in np.random.default_rng(0).integers(17, size=(steps, 16)):
        venv.step(row)
    return venv


def test_moments_go_along_when_an_environment_is_saved():
    """With two threads as with one; what is no memory is refused, and nothing is touched."""
    venv = with_moments()
    memory, states, kept = venv.get_memory(), venv.get_state(), venv.moments
    assert kept["after collect_wood"] > 3 and kept["after collect_diamond"] == 0 and max(kept.values()) <= 18
    other = with_moments(steps=5, num_threads=2)
    for wrong in (b"", b"nothing", memory[:-1], memory[:40] + b"\1" + memory[41:]):
        with pytest.raises(ValueError, match="moments|broken|saved"):
            other.set_memory(wrong)
    assert sum(other.moments.values()) < sum(kept.values())
    other.set_memory(memory)
    other.set_state(states)
    for row in np.random.default_rng(1).integers(17, size=(150, 16)):
        ours, theirs = venv.step(row), other.step(row)
        assert all(np.array_equal(ours[0][name], theirs[0][name]) for name in ours[0])
    assert other.get_memory() == venv.get_memory() and other.get_state() == venv.get_state()


def test_without_moments_such_a_world_plays_its_ordinary_start():
    """As long as none is kept, and where none ever is; the reference says that it keeps none."""
    venv = make_vec("crafter", [AFTER_WOOD], 2, seed=3, obs="symbols")
    plain = make_vec("crafter", [None], 2, seed=3, obs="symbols")
    assert np.array_equal(venv.reset()[0]["material"], plain.reset()[0]["material"]) and venv.moments == {}
    assert venv.get_memory() == b""
    with pytest.raises(ValueError, match="with moments"):
        venv.set_memory(with_moments(steps=1).get_memory())
    with pytest.raises(ValueError, match="engine='fast' only"):
        make_vec("crafter", [None], 2, engine="reference", moments=True)


def test_which_moments_come_when():
    """Each is kept in the very step in which it comes, and at most once of an episode; only of the original game."""
    venv = make_vec("crafter", [None, AFTER_WOOD], 2, seed=8, obs="symbols", moments=True)
    venv.reset()
    before, rng = venv.unlocked, np.random.default_rng(5)
    for _ in range(120):
        kept = sum(venv.moments[f"after {name}"] for name in OBJECTIVES)
        *_, terminated, truncated, infos = venv.step(rng.integers(17, size=2))
        now = venv.unlocked
        fresh = int((now & ~before)[0].sum()) if not (terminated | truncated)[0] else 0
        assert sum(venv.moments[f"after {name}"] for name in OBJECTIVES) - kept == fresh
        before = now
    assert kept > 2
