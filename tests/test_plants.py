"""benchmarks/plants.py trains in the worlds that its text describes, and counts what it says: a guide rests on it."""

import numpy as np
import plants
import pytest
from sleep import plants_of

from envgen_nb.game.simulator import make_vec
from envgen_nb.simulators.crafter.fast.state import ZOMBIE
from envgen_nb.simulators.crafter.symbols import MATERIALS


@pytest.mark.parametrize("grown, zombies", plants.WORLDS)
def test_the_worlds(grown, zombies):
    venv = make_vec("crafter", (plants.WORLDS[grown, zombies],), 8, 0, "symbols")
    obs, _ = venv.reset()
    there, age = plants_of(venv)
    assert there.all() and (age == grown).all()
    assert (obs["material"] == MATERIALS.index("water")).any((1, 2)).all()
    seen = False
    for _ in range(60):
        venv.step(np.zeros(8, int))
        seen |= bool((venv._engine.games["kind"] == ZOMBIE).any())
    assert seen == (zombies != "none")
    venv.close()


def test_what_is_counted():
    "Three episodes: a plant is eaten, one gets ripe after the episode's end, and a zombie kills the player."
    played = {"unlocked": np.zeros((3, 22), bool), "plants": np.ones((4, 3), bool), "playing": np.ones((4, 3), bool),
              "grown": np.array([[299, 290, 0], [300, 291, 1], [301, 301, 2], [302, 301, 3]]),
              "deaths": np.array([0, 0, 1])}
    played["playing"][2:, 1] = False
    played["unlocked"][0, plants.EAT_PLANT] = True
    found = plants.measure(played)
    assert (found["eaten"], found["ripe"]) == pytest.approx((100 / 3, 100 / 3))
    assert found["length"] == pytest.approx(10 / 3) and found["deaths"]["zombie"] == pytest.approx(100 / 3)
    assert sum(found["deaths"].values()) == found["deaths"]["zombie"]
