"""The rate of clients that wait for their answers, n in a batch at once; many batches at a time.

Each client sends its next request after an answer, so that x S(x) = n - 1, with the rate x of the
other clients and the stay S in the batch, which grows with x. See `sizing.md`, section "Steps that
mix prefill and decode".
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from inferno_optimizer.sizing.queueing import FloatArray

POINTS = 6
"""Rates at which stays are computed; all but a few are then exact."""

EXACT = 1e-9
"""Where a stay has a kink, the rate is off by as much as the last point at most."""


def client_rates(
    stay_ms: Callable[[FloatArray], FloatArray],
    others: FloatArray,
    lone: FloatArray,
    pole: FloatArray,
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """The rates x of clients [requests/ms], and which of them are known.

    S is taken as (a + b x) / (1 - c x) through the last three points, because it has a pole where
    prompts take all of the time: the next point is the root of a quadratic equation.

    Parameters
    ----------
    stay_ms
        S(x) of all batches [ms].
    others
        n - 1, above 0.
    lone
        S(0) [ms].
    pole
        About 1 / c, the rate at which prompts take all of the time [requests/ms].
    """
    rates, stays = [np.zeros_like(lone)], [lone]
    following = others / (lone + others / pole)
    for _ in range(POINTS):
        rates.append(following)
        stays.append(stay_ms(following))
        following = _following(rates[-3:], stays[-3:], others, pole)
    known = np.abs(rates[-1] * stays[-1] / others - 1.0) < EXACT
    return following, known


def _following(
    rates: list[FloatArray], stays: list[FloatArray], others: FloatArray, pole: FloatArray
) -> FloatArray:
    """The rate at which the rational function through the points has the stay; else the last."""
    last, stay = rates[-1], stays[-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = [(s - stay) / (x - last) for x, s in zip(rates[:-1], stays[:-1], strict=True)]
        if len(slopes) == 1:
            c = 1.0 / (pole - last)
        else:
            c = (slopes[1] - slopes[0]) / (stays[1] - stays[0])
        b = slopes[-1] - c * stays[-2]
        middle, missing = stay + b * last + c * others, others - last * stay
        root = np.sqrt(np.maximum(middle**2 + 4.0 * b * missing, 0.0))
        more = 2.0 * missing / (middle + root)
    return np.where(np.isfinite(more), last + more, last)
