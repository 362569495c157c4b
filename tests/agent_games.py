"""A small game with the whole contract of our vector environments, for the tests of the agent."""

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

OBJECTIVES = ("apple", "quick")
MOVES = np.array([[0, 0], [0, -1], [0, 1], [-1, 0], [1, 0]])


class Orchard(VectorEnv):
    """A picker looks for an apple on 5×5 cells; finding it ends the episode, `length` steps truncate it.

    Sub-environment i's episode e depends on its seed and e alone. All returned arrays are overwritten by the next
    call, as the contract allows with `copy=False`.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
    worlds = (None,)
    single_action_space = spaces.Discrete(5)

    def __init__(self, num_envs=8, seed=0, length=20, obs="symbols", episodes=None):
        self.num_envs, self.seed, self.length, self.obs, self.episodes = num_envs, seed, length, obs, episodes
        self.single_observation_space = spaces.Box(0, 255, (40, 40, 3), np.uint8) if obs == "pixels" else spaces.Dict(
            {"grid": spaces.Box(0, 2, (5, 5), np.uint8), "late": spaces.Box(0, 1, (1,), np.float32)})
        self.buffers = {}

    def reset(self, *, seed=None, options=None):
        self.episode, self.steps = np.zeros((2, self.num_envs), np.int64)
        self.places = np.zeros((2, self.num_envs, 2), np.int64)            # of picker and apple
        self._begin(np.arange(self.num_envs))
        return self._see("obs"), {}

    def _begin(self, which):
        for i in which:
            self.episode[i] += 1
            self.steps[i] = 0
            cells = np.random.default_rng((self.seed, i, self.episode[i])).permutation(25)[:2]
            self.places[:, i] = np.stack(np.divmod(cells, 5), 1)

    def _see(self, buffer):
        grid, rows = np.zeros((self.num_envs, 5, 5), np.uint8), np.arange(self.num_envs)
        for kind, place in ((1, self.places[1]), (2, self.places[0])):
            grid[rows, place[:, 0], place[:, 1]] = kind
        if self.obs == "pixels":
            colours = np.array([[30, 120, 30], [220, 30, 30], [240, 240, 90]], np.uint8)
            return self._out(buffer, colours[grid.repeat(8, 1).repeat(8, 2)])
        return {"grid": self._out(buffer + "grid", grid),
                "late": self._out(buffer + "late", (self.steps / self.length).astype(np.float32)[:, None])}

    def _out(self, name, value):
        if name not in self.buffers:
            self.buffers[name] = np.empty_like(value)
        self.buffers[name][...] = value
        return self.buffers[name]

    def step(self, actions):
        alive = np.ones(self.num_envs, bool) if self.episodes is None else self.episode <= self.episodes
        self.places[0] = np.where(alive[:, None], np.clip(self.places[0] + MOVES[actions], 0, 4), self.places[0])
        self.steps += alive
        terminated = alive & (self.places[0] == self.places[1]).all(1)
        truncated = alive & ~terminated & (self.steps >= self.length)
        ended, rewards, infos = terminated | truncated, terminated.astype(np.float64), {}
        if ended.any():
            final = self._see("final")
            unlocked = np.stack([terminated, terminated & (self.steps <= 8)], 1)
            results = {"return": rewards, "length": self.steps.astype(np.int32), "unlocked": unlocked,
                       "world": np.zeros(self.num_envs, np.int32)}
            results = {name: self._out(name, value) for name, value in results.items()}
            infos = {"final_obs": final, "_final_obs": ended, "results": results, "_results": ended}
            self._begin(np.flatnonzero(ended))
        return (self._see("obs"), self._out("rewards", rewards), self._out("terminated", terminated),
                self._out("truncated", truncated), infos)

    def get_state(self):
        state = np.stack([self.episode, self.steps, *self.places[0].T, *self.places[1].T], 1)
        return [row.tobytes() for row in state]

    def set_state(self, states):
        state = np.stack([np.frombuffer(row, np.int64) for row in states]).T.copy()
        self.episode, self.steps, self.places = state[0], state[1], np.stack([state[2:4].T, state[4:6].T])
        return self._see("obs")
