"""Loads of the last day from Prometheus: after a start, nothing is remembered."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inferno_operator.controllers.measurement.lookahead import STEP_S, Lookahead
from inferno_operator.engines.catalogue import MetricSources
from inferno_operator.engines.past import PastLoad, Span, loads_of
from inferno_operator.engines.series_groups import windows_of
from inferno_operator.resources import Measure
from inferno_operator.resources.objects import Key
from inferno_operator.runtime.prometheus import PrometheusPast
from inferno_optimizer.errors import InfernoError
from inferno_optimizer.forecast import HISTORY_S

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PastRates:
    """Reads the rates of servers in the last day.

    Attributes
    ----------
    prometheus
        What to ask.
    catalogue
        The sources.
    clock
        The time of day, Unix time [s].
    """

    prometheus: PrometheusPast
    catalogue: MetricSources
    clock: Callable[[], float]

    async def fill(self, lookahead: Lookahead, measures: Mapping[Key, Measure]) -> None:
        """Fill histories; of servers whose past cannot be read, they begin now."""
        end = self.clock() // STEP_S * STEP_S
        span = Span(end - HISTORY_S + 2 * STEP_S, end, STEP_S)
        for part in _apart(measures):
            seconds = windows_of(next(iter(part.values()))).long
            try:
                loads, _ = await loads_of(
                    part, self.prometheus, self.catalogue, span, logger.debug, seconds
                )
            except InfernoError as error:
                logger.warning("the loads of the last day are not known: %s", error)
                continue
            for key, load in loads.items():
                lookahead.remember(key, _rates(load, span))
                await asyncio.sleep(0)  # a thousand histories take seconds


def _apart(measures: Mapping[Key, Measure]) -> list[dict[Key, Measure]]:
    """Servers that share queries; those with queries of their own alone."""
    parts: defaultdict[object, dict[Key, Measure]] = defaultdict(dict)
    for key, measure in measures.items():
        own = key if measure.queries else None
        labels, windows = tuple(sorted(measure.labels)), windows_of(measure)
        parts[measure.source, labels, windows, own][key] = measure
    return list(parts.values())


def _rates(load: PastLoad, span: Span) -> dict[float, float]:
    """The known rates by time [requests/min]."""
    rates = enumerate(load.rate.tolist(), start=1)
    return {span.start + n * span.step_s: 60 * rate for n, rate in rates if rate == rate}  # noqa: PLR0124
