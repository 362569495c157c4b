"""A small game, written by the documentation of `envgen_nb.game.world` alone: an apple is to be found on 5 × 5 cells.

It makes new arrays in each step and plays in one thread, so it takes `copy` and `num_threads` and ignores them.
"""

from typing import Literal

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from pydantic import Field

from envgen_nb.game.simulator import Simulator
from envgen_nb.game.vector import GameVectorEnv, base_seeds, check_changes, check_number, step_limits, world_fingerprint
from envgen_nb.game.world import World, check_world

MOVES = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])
OBJECTIVES = ("find_apple", "find_apple_soon")
SOON = 4


class OrchardWorld(World):
    apple: Literal["near", "far"] | None = Field(None, description="how far away the apple is")
    corner: bool | None = Field(None, description="whether the picker starts in a corner")


def places(world, seed, episode):
    "Picker and apple at the start of an episode, (2, 2) int64; they follow from the base seed and the episode alone."
    world, random = world or OrchardWorld(), np.random.default_rng((seed, episode))
    while True:
        picker, apple = random.integers(5, size=(2, 2))
        if world.corner:
            picker = np.where(picker < 2, 0, 4)
        distance = np.abs(picker - apple).sum()
        if distance and (world.apple is None or (distance <= 2) == (world.apple == "near")):
            return np.stack([picker, apple])


def draw(picker, apple):
    "The orchard from above, (160, 160, 3) uint8."
    picture = np.full((5, 5, 3), (40, 120, 40), np.uint8)
    picture[tuple(apple)], picture[tuple(picker)] = (220, 40, 40), (240, 240, 90)
    return picture.repeat(32, 0).repeat(32, 1)


class OrchardVec(GameVectorEnv):
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": ["rgb_array"]}
    render_mode = "rgb_array"
    single_action_space = spaces.Discrete(5)
    single_observation_space = spaces.Dict({"grid": spaces.Box(0, 2, (5, 5), np.uint8),
                                            "late": spaces.Box(0, 1, (1,), np.float32)})

    def __init__(self, worlds, num_envs, seed, length, episodes):
        check_number("num_envs", num_envs, 1, optional=False)
        check_number("episodes", episodes, 1)
        self.worlds, self.lengths, self.num_envs, self.episodes = (), (), num_envs, episodes
        self.add_worlds(worlds, length)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.playing = np.arange(num_envs, dtype=np.int32) % len(worlds)
        self.next = self.playing.copy()
        # of each: base seed, episode, those played, steps, picker, apple, what was reached
        self.state, self.ready = np.zeros((num_envs, 10), np.int64), False
        self.state[:, 0] = base_seeds(seed, num_envs)

    @property
    def finished(self):
        return self.state[:, 2] == (self.episodes or -1)

    @property
    def unlocked(self):
        return self.state[:, 8:] > 0

    @property
    def assigned(self):
        return self.next.copy()

    def add_worlds(self, worlds, length=None):
        if not worlds or not all(world is None or isinstance(world, OrchardWorld) for world in worlds):
            raise ValueError("worlds are OrchardWorlds, or None for the original game")
        first, lengths = len(self.worlds), step_limits(length, len(worlds), 20)
        self.worlds, self.lengths = self.worlds + tuple(worlds), self.lengths + lengths
        return range(first, len(self.worlds))

    def assign(self, changes, now=False):
        changes = check_changes(changes, self.num_envs, len(self.worlds))
        if now and not self.ready:
            raise RuntimeError("there is no episode to drop: call reset() first")
        for i, world in changes.items():
            self.next[i] = world
            if now and not self.finished[i]:
                self._begin(i)
        return self._see()

    def _begin(self, i):
        self.playing[i] = self.next[i]
        self.state[i, 1] += 1
        self.state[i, 3:] = 0
        self.state[i, 4:8] = places(self.worlds[self.playing[i]], *self.state[i, :2].tolist()).reshape(-1)

    def _limits(self):
        return np.array(self.lengths)[self.playing]

    def _see(self):
        grid, rows = np.zeros((self.num_envs, 5, 5), np.uint8), np.arange(self.num_envs)
        grid[rows, self.state[:, 6], self.state[:, 7]] = 1
        grid[rows, self.state[:, 4], self.state[:, 5]] = 2
        return {"grid": grid, "late": (self.state[:, 3:4] / self._limits()[:, None]).astype(np.float32)}

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.state[:, 0], self.state[:, 1] = base_seeds(seed, self.num_envs), 0
        self.state[:, 2], self.ready = 0, True
        for i in range(self.num_envs):
            self._begin(i)
        return self._see(), {}

    def step(self, actions):
        actions = np.asarray(actions)
        if not self.ready:
            raise RuntimeError("there is no episode to step in: call reset() first")
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu" or not set(actions) <= set(range(5)):
            raise ValueError(f"expected {self.num_envs} actions from 0 to 4, got {actions!r}")
        live, state = ~self.finished, self.state
        state[live, 4:6] = np.clip(state[live, 4:6] + MOVES[actions[live]], 0, 4)
        state[:, 3] += live
        terminated = live & (state[:, 4:6] == state[:, 6:8]).all(1)
        truncated = live & ~terminated & (state[:, 3] >= self._limits())
        rewards, ended, infos = terminated.astype(float), terminated | truncated, {}
        state[terminated, 8], state[terminated & (state[:, 3] <= SOON), 9] = 1, 1
        if ended.any():
            results = {"return": rewards.copy(), "length": state[:, 3].astype(np.int32), "unlocked": self.unlocked,
                       "world": self.playing.copy()}
            infos = {"final_obs": self._see(), "_final_obs": ended, "results": results, "_results": ended}
            state[:, 2] += ended
            for i in np.flatnonzero(ended & ~self.finished):
                self._begin(i)
        return self._see(), rewards, terminated, truncated, infos

    def render(self):
        return tuple(draw(row[4:6], row[6:8]) for row in self.state)

    def get_state(self):
        return [self._known(self.playing[i]) + self._known(self.next[i]) + row.tobytes()
                for i, row in enumerate(self.state)]

    def _known(self, world):
        return np.array([world, self.lengths[world]]).tobytes() + world_fingerprint(self.worlds[world])

    def set_state(self, states):
        if [len(state) for state in states] != [48 + self.state[0].nbytes] * self.num_envs:
            raise ValueError("these are no states of this game")
        pairs = [[int(np.frombuffer(state[at:at + 8], np.int64)[0]) for at in (0, 24)] for state in states]
        for state, pair in zip(states, pairs, strict=True):
            if not all(0 <= world < len(self.worlds) for world in pair) \
                    or state[:48] != self._known(pair[0]) + self._known(pair[1]):
                raise ValueError("a state is of a world that is not known")
        self.state = np.stack([np.frombuffer(state[48:], np.int64) for state in states])
        self.playing[:], self.next[:] = zip(*pairs, strict=True)
        self.ready = True
        return self._see()


class Orchard(Simulator):
    name = "orchard"
    task = "A picker on 5 x 5 cells is to find an apple. Finding it is rewarded and ends the episode."
    objectives = OBJECTIVES
    rules = (f"An apple is found soon within {SOON} steps.", "An apple is near within 2 steps.")
    actions = ("stay", "up", "down", "left", "right")
    keys = {"up": "ArrowUp", "down": "ArrowDown", "left": "ArrowLeft", "right": "ArrowRight"}
    vocabularies = {"default": OrchardWorld}
    observations = ("symbols",)

    def make_vec(self, worlds=(None,), num_envs=8, seed=0, obs="symbols", length=None, episodes=None,
                 num_threads=None, copy=True):
        if obs != "symbols":
            raise ValueError(f"orchard shows symbols, not {obs!r}")
        return OrchardVec(worlds, num_envs, seed, length, episodes)

    def preview(self, world=None, seed=0):
        return draw(*places(world, seed, 1))

    def describe(self, world=None, seed=0):
        picker, apple = places(world, seed, 1)
        return {"distance to the apple": int(np.abs(picker - apple).sum())}

    def prerequisites(self, objective):
        return {"find_apple": (), "find_apple_soon": ("find_apple",)}[self._known(objective)]

    def practice(self, objective, vocabulary="default"):
        self._known(objective)
        settings = {"apple": "near"}, {"apple": "near", "corner": True}
        return [check_world(self.world_class(vocabulary), data)[0] for data in settings]

    def score(self, success_rates):
        return float(np.mean([success_rates[name] for name in OBJECTIVES]))

    def _known(self, objective):
        if objective not in OBJECTIVES:
            raise ValueError(f"orchard has no objective {objective!r}")
        return objective
