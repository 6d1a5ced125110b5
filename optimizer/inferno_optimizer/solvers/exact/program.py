"""What the searches share until they are joined."""

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.cases import Case

BoolArray = npt.NDArray[np.bool_]


def weight_of(case: Case) -> float:
    """Load that counts as served [requests/min]; 1 for a floor without arrivals."""
    return case.server.load.arrival_rate or 1.0
