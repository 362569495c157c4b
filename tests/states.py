"""Whether two states, of a learner or of a run, are the same."""
from typing import Any

import torch


def same(a: Any, b: Any) -> bool:
    """Whether two states hold the same, bit by bit."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b
