"""Ladders are climbed as a short plain reference says, whatever episodes come, and saved states go on alike."""
import copy
import json
import random

import numpy as np
import pytest

from envgen_nb.curriculum import curricula
from envgen_nb.curriculum.ladder import Ladder
from envgen_nb.cycle.settings import RunSettings, SettingsError, changed_settings, make_settings, training_plan
from envgen_nb.experiment.file import parse_experiment
from envgen_nb.game.episodes import Course, Episodes, episodes_of

NONE = Episodes.join([])
TWO = [Course(1, (0,), (1, 2, 3)), Course(2, (0, 1), (4, 5))]


def episodes_in(*rows: tuple[int, str], cut: bool = False) -> Episodes:
    """The world of each episode, and a letter for each objective: 1 reached, 0 not, - not there."""
    marks = np.array([list(row) for _, row in rows])
    return episodes_of({"return": np.zeros(len(rows)), "length": np.ones(len(rows), np.int32), "unlocked": marks == "1",
                        "world": np.array([world for world, _ in rows], np.int32), "possible": marks != "-"},
                       np.ones(len(rows), bool), cut)


def climbing(courses=TWO, num_envs: int = 8, done: int = 0, total: int = 0, **options) -> Ladder:
    """A curriculum that has begun; half of the games are for stages."""
    ladder = Ladder(num_envs, 0, 0.5, **options)
    ladder.climb(courses, done, total)
    ladder.begin([world for course in courses for world in course.stages], 1000)
    return ladder


# --- gates


def test_gates_open_and_shut():
    ladder = climbing()
    shut = lambda: [one["shut_by"] for one in ladder.positions()]          # noqa: E731
    assert shut() == ["goal", "goal"] and ladder.assigned == [0] * 4       # nothing is known yet
    ladder.update(100, episodes_in(*[(0, "000")] * 19))
    assert shut() == [0, 0]
    ladder.update(100, episodes_in((0, "100")))
    assert shut() == [0, 0] and ladder.rate(0) == 5.0                      # more than 5% is asked for
    ladder.update(100, episodes_in((0, "100")))
    assert shut() == [None, 1]                                             # of two prerequisites one is missing
    ladder.update(100, episodes_in(*[(0, "110")] * 2))
    assert shut() == [None, None]
    ladder.update(100, episodes_in(*[(0, "110")] * 12))
    assert shut() == ["goal", None] and ladder.rate(1) == 40.0             # less than 40%
    ladder.update(100, episodes_in(*[(0, "100")] * 2))
    assert shut() == [None, None]                                          # it is forgotten again


def test_only_whole_episodes_of_the_original_game_count():
    ladder = climbing()
    ladder.update(100, episodes_in(*[(0, "111")] * 50, cut=True))
    ladder.update(100, episodes_in(*[(1, "111"), (9, "111")] * 50))
    assert ladder.rate(1) is None and ladder.positions()[0]["rate"] is None
    ladder.update(100, episodes_in((0, "1-0"), (0, "110"), (0, "100")))
    assert ladder.rate(1) == 50.0                                          # one episode did not have it
    ladder.update(100, episodes_in(*[(0, "101")] * 300))
    assert ladder.rates == [100.0, 0.0, 100.0] and len(ladder.game) == 300


# --- stages


def test_mastery_is_gained_and_lost():
    ladder = climbing(TWO[:1], learned=0.0)
    ladder.update(100, episodes_in((0, "100")))
    assert ladder.assigned == [1, 2, 1, 2]
    ladder.update(100, episodes_in(*[(1, "010")] * 19, (2, "010")))
    assert ladder.positions()[0]["at"] == 0                                # 19 episodes do not say it
    ladder.update(100, episodes_in((1, "0-0")))
    ladder.update(100, episodes_in((1, "010"), cut=True))
    assert ladder.positions()[0]["at"] == 0                                # nor do those without the goal, or cut
    ladder.update(100, episodes_in((1, "000")))
    assert ladder.positions()[0]["at"] == 1 and ladder.assigned == [2, 3, 2, 3]
    ladder.update(100, episodes_in(*[(3, "010")] * 20))
    assert ladder.assigned == [2, 3, 2, 3]                                 # the second stage is still to do
    ladder.update(100, episodes_in(*[(2, "010")] * 19))
    assert ladder.positions()[0]["at"] == 3 and ladder.assigned == [3] * 4
    ladder.update(100, episodes_in(*[(3, "000")] * 20))
    assert ladder.positions()[0]["at"] == 3                                # a half
    ladder.update(100, episodes_in((3, "000")))
    assert ladder.positions()[0]["at"] == 2 and ladder.assigned == [3] * 4
    ladder.update(100, episodes_in(*[(3, "010")] * 25))
    assert ladder.positions()[0]["at"] == 3 and len(ladder.windows[1][3]) == 50


def test_a_world_in_two_ladders_counts_for_each_goal():
    ladder = climbing([Course(1, (), (1, 2)), Course(2, (), (1, 3))])
    ladder.update(100, episodes_in((0, "000")))
    assert ladder.assigned == [1, 2, 3, 1]                                 # it gets one slot
    ladder.update(100, episodes_in(*[(1, "010")] * 20))
    assert [one["at"] for one in ladder.positions()] == [1, 0]


# --- slots


def test_slots_go_to_the_rarest_goals_in_turn():
    courses = [*TWO, Course(None, (), (6,)), Course(3, (), (7,)), Course(None, (), (8, 9))]
    ladder = climbing(courses, num_envs=32, slots=20)
    assert ladder.assigned == [(6, 8, 9)[i % 3] for i in range(16)]        # open from the start
    ladder.update(100, episodes_in((0, "1101"), *[(0, "1100")] * 2, *[(0, "1000")] * 7))
    assert ladder.playing() == [4, 7, 1, 5, 2, 6, 8, 9]                    # rates 0, 10 and 30%
    assert [one["playing"] for one in ladder.positions()] == [[1, 2], [4, 5], [6], [7], [8, 9]]
    ladder.slots = 4
    ladder.update(100, NONE)
    assert ladder.assigned == [4, 7, 1, 5] * 4
    assert [one["playing"] for one in ladder.positions()] == [[1], [4, 5], [], [7], []]
    few = climbing(courses, num_envs=4)
    few.update(100, episodes_in((0, "1101"), *[(0, "1100")] * 2, *[(0, "1000")] * 7))
    assert few.assigned == [4, 7]                                          # two places are all there are
    assert Ladder(4, 0, 0.0).playing() == Ladder(4, 0, 0.0).assigned == []


def test_worlds_without_ladders_are_played_as_well():
    """Of a designer that writes no ladders: the newest worlds, as with `constant`."""
    ladder = Ladder(8, 0, 0.5)
    assert ladder.begin([1, 1, 2], 1000).worlds == {0: 1, 1: 2, 2: 1, 3: 2}
    assert ladder.begin([3], 1000).worlds == dict.fromkeys(range(4), 3)
    assert ladder.begin([], 1000).worlds == ladder.update(100, NONE).worlds == {}      # after the last cycle
    assert ladder.positions() == []


# --- time


def test_it_begins_within_a_cycle():
    ladder = climbing(done=200, total=2000, begin=0.3)
    for done in range(300, 600, 100):
        assert ladder.update(100, episodes_in((0, "100"))).worlds == {} and ladder.done == done
    assert ladder.positions()[0]["open"] and ladder.positions()[0]["playing"] == []
    changes = ladder.update(100, NONE)
    assert changes.worlds == {0: 1, 1: 2, 2: 1, 3: 2} and not changes.now
    assert ladder.update(100, NONE).worlds == {}                           # nothing changes: nothing is said


def test_a_correction_keeps_what_is_known_of_a_stage():
    ladder = climbing(TWO[:1])
    ladder.update(100, episodes_in((0, "100"), *[(1, "010")] * 20, *[(2, "010")] * 7))
    assert ladder.assigned == [2, 3, 2, 3]
    ladder.climb([Course(1, (0,), (6, 1, 2)), Course(2, (), (1,))], 1000, 4000)
    assert ladder.windows == {1: {6: [], 1: [1] * 20, 2: [1] * 7}, 2: {1: []}}
    assert ladder.begin([6], 1000).worlds == {0: 6, 1: 1, 2: 6, 3: 1}
    ladder.update(100, episodes_in(*[(6, "010")] * 20, *[(3, "010")] * 20))     # the last ones of a world that is gone
    assert ladder.assigned == [2, 1, 2, 1] and 3 not in ladder.windows[1]
    ladder.climb([], 2000, 4000)
    assert ladder.begin([], 1000).worlds == dict.fromkeys(range(4), 0) and ladder.positions() == []


# --- any stream of episodes


class Reference:
    """What a ladder is to do, from all that has ever happened, in as few words as there are."""

    def __init__(self, places: int, begin: float, slots: int, episodes: int):
        self.places, self.begin, self.slots, self.episodes = places, begin, slots, episodes
        self.seen, self.known, self.done = [], {}, 0

    def climb(self, courses, done, total):
        self.courses, self.done, self.total = courses, done, total
        now = {(course.goal, world) for course in courses for world in course.stages}
        self.known = {key: since for key, since in self.known.items() if key in now}
        for key in now:
            self.known.setdefault(key, len(self.seen))                     # what was before does not count

    def update(self, steps, rows):
        self.seen += rows
        self.done += steps

    def rate(self, objective):
        found = [row[objective] for world, row in self.seen if world == 0][-300:]
        found = [mark for mark in found if mark != "-"]
        return 100 * found.count("1") / len(found) if found else None

    def is_open(self, course):
        rates = [self.rate(one) for one in (course.goal, *course.before)]
        return None not in rates and rates[0] < 40 and all(rate > 5 for rate in rates[1:])

    def at(self, course):
        for k, world in enumerate(course.stages):
            found = [row[course.goal] for where, row in self.seen[self.known[course.goal, world]:] if where == world]
            found = [mark for mark in found if mark != "-"][-50:]
            if len(found) < self.episodes or found.count("1") < len(found) / 2:
                return k
        return len(course.stages)

    def assigned(self):
        ladders = [course for course in self.courses if self.is_open(course)]
        ladders = sorted(ladders, key=lambda course: (self.rate(course.goal), self.courses.index(course)))
        turns, worlds = [[], []], []
        for course in ladders:
            first = min(self.at(course), len(course.stages) - 1)
            for turn, world in zip(turns, course.stages[first:first + 2], strict=False):
                turn.append(world)
        for world in turns[0] + turns[1]:
            if world not in worlds:
                worlds.append(world)
        worlds = worlds[:min(self.slots, self.places)] if self.done >= self.begin * self.total else []
        return [worlds[i % len(worlds)] if worlds else 0 for i in range(self.places)]


@pytest.mark.parametrize("seed", range(12))
def test_any_episodes_are_climbed_as_the_reference_says(seed):
    luck = random.Random(seed)
    options = {"begin": luck.choice([0.0, 0.25]), "slots": luck.randint(1, 7), "episodes": luck.randint(1, 20)}
    ladder, plain = Ladder(24, 0, 0.5, **options), Reference(12, **options)
    playing, done, new = [0] * 12, 0, 1
    worlds, seen = [], set()
    for _ in range(4):                                                     # the cycles
        worlds = [world for world in worlds if luck.random() < 0.6] + list(range(new, new := new + luck.randint(1, 8)))
        courses = []
        for goal in luck.sample(range(5), luck.randint(1, 4)):
            before = tuple(luck.sample([one for one in range(5) if one != goal], luck.randint(0, 2)))
            courses.append(Course(goal, before, tuple(luck.sample(worlds, min(len(worlds), luck.randint(1, 5))))))
        chances = {world: [luck.random() ** (3 if world == 0 else 1) for _ in range(5)] for world in (0, *worlds)}
        ladder.climb(courses, done, 4 * 60 * 100)
        plain.climb(courses, done, 4 * 60 * 100)
        changes = ladder.begin(list(dict.fromkeys(world for one in courses for world in one.stages)), 60 * 100)
        for _ in range(60):                                                # the rollouts
            assert all(playing[i] != world for i, world in changes.worlds.items()) and not changes.now
            playing = [changes.worlds.get(i, world) for i, world in enumerate(playing)]
            assert playing == plain.assigned() == ladder.assigned
            seen.add(tuple(playing))
            rows = []
            for _ in range(luck.randint(0, 8)):
                world = luck.choice([0, 0, luck.choice(playing), luck.choice(worlds)])
                marks = [luck.choice("-01") if luck.random() < 0.05 else "01"[luck.random() < chance]
                         for chance in chances[world]]
                rows.append((world, "".join(marks)))
            if luck.random() < 0.1:                                        # saved, and gone on with
                state = json.loads(json.dumps(ladder.state_dict()), object_hook=numbered)
                ladder = Ladder(24, 0, 0.5, **options)
                ladder.load_state_dict(state)
            changes = ladder.update(100, episodes_in(*rows) if rows else NONE)
            plain.update(100, rows)
            positions = ladder.positions()
            assert positions == json.loads(json.dumps(positions))
            assert [(one["open"], one["at"]) for one in positions] == [(plain.is_open(course), plain.at(course))
                                                                       for course in courses]
        playing = [changes.worlds.get(i, world) for i, world in enumerate(playing)]
        done += 60 * 100
    assert len(seen) > 3                                                   # it did move


def numbered(found: dict) -> dict:
    """A dictionary read from JSON, whose keys were numbers."""
    return {int(key) if key.isdigit() else key: value for key, value in found.items()}


def test_a_saved_state_is_a_copy():
    ladder = climbing()
    ladder.update(100, episodes_in((0, "100"), (1, "010")))
    state = ladder.state_dict()
    kept = copy.deepcopy(state)
    ladder.update(100, episodes_in((0, "110"), (1, "010")))
    assert state == kept != ladder.state_dict()


# --- settings


@pytest.mark.parametrize(("given", "said"), [
    ({"curriculum": "ladder", "curriculum_options": {"slot": 4}},
     "the curriculum 'ladder' has no setting slot; it takes: weak, learned, mastered, episodes, begin, slots"),
    ({"curriculum_options": {"slots": 4}}, "the curriculum 'envgen' has no setting slots; it takes none"),
    ({"curriculum": "domain_randomisation", "designer": "none", "curriculum_options": {"slots": 4}}, "it takes none"),
    ({"curriculum": "ladder", "curriculum_options": {"slots": 0}},
     "the curriculum 'ladder', setting slots: input should be greater than or equal to 1"),
    ({"curriculum": "ladder", "curriculum_options": {"weak": 101.0}}, "weak: input should be less than or equal"),
    ({"curriculum": "ladder", "curriculum_options": {"learned": -1}}, "learned: input should be greater than"),
    ({"curriculum": "ladder", "curriculum_options": {"begin": float("nan")}}, "setting begin: "),
    ({"curriculum": "ladder", "curriculum_options": {"episodes": 51}}, "episodes: input should be less than"),
    ({"curriculum": "ladder", "curriculum_options": {"mastered": "half"}}, "mastered: input should be a valid number"),
    ({"curriculum": "ladder", "curriculum_options": 4}, "curriculum_options: Input should be a valid dictionary"),
])
def test_options_that_are_refused(given, said):
    with pytest.raises(SettingsError, match=said):
        make_settings(**given)


def test_options_are_taken():
    settings = make_settings(curriculum="ladder", curriculum_options={"slots": 4, "weak": 30})
    assert RunSettings(**json.loads(settings.model_dump_json())) == settings
    ladder = curricula.make("ladder", 8, 0, 0.5, **settings.curriculum_options)
    assert (ladder.slots, ladder.weak, ladder.start) == (4, 30.0, 0.25)
    assert "At most 4 stages" in training_plan(settings, 1) and "less than 30%" in training_plan(settings, 1)
    assert "all of them are the ordinary game" not in training_plan(changed_settings(
        settings, curriculum_options={"begin": 0.0}), 1)
    assert changed_settings(settings, curriculum="plr").curriculum_options == {}
    assert changed_settings(settings, num_worlds=2).curriculum_options == settings.curriculum_options


def test_options_in_an_experiment(tmp_path):
    """Those of all arms hold for the arms with the same curriculum."""
    experiment = parse_experiment("""
name = "one"
question = "?"
baseline = "plain"
seeds = [1]

[settings]
curriculum = "ladder"
curriculum_options = {slots = 4, weak = 30}

[arms.plain]
curriculum = "constant"

[arms.few]
curriculum_options.slots = 2
""", tmp_path)
    assert experiment.settings_of("few", 1).curriculum_options == {"slots": 2, "weak": 30}
    assert experiment.settings_of("plain", 1).curriculum_options == {}
