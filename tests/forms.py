"""The short and the long form of a test over several values."""
from collections.abc import Sequence
from typing import Any

import pytest


def first(count: int, values: Sequence[Any]) -> list[Any]:
    """The first values in both forms of the tests, the others in the long one only."""
    return [*values[:count], *(pytest.param(value, marks=pytest.mark.long) for value in values[count:])]
