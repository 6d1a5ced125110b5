"""Entries of arrays that stand together in groups."""

import numpy as np

from inferno_optimizer.sizing.queueing import IntArray


def rank_in_group(group: IntArray) -> IntArray:
    """Position of each entry among those of its group, which stand together."""
    first = np.flatnonzero(np.diff(group, prepend=-1))
    return np.arange(len(group)) - np.repeat(first, np.diff(first, append=len(group)))
