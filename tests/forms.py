"""The short and the long form of a test over several values, and the names that the kit itself registers."""
from collections.abc import Sequence
from typing import Any

import pytest


def first(count: int, values: Sequence[Any]) -> list[Any]:
    """The first values in both forms of the tests, the others in the long one only."""
    return [*values[:count], *(pytest.param(value, marks=pytest.mark.long) for value in values[count:])]


def own_names(registry: Any) -> list[str]:
    """The names of the kit, without those that other tests have registered."""
    return [name for name, target in registry.targets.items() if target.startswith("envgen_nb.")]
