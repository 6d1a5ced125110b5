"""The metrics of measured servers, and their rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inferno_operator.adapters.http.series import Row, replaced
from inferno_operator.runtime.observer import MeasuredServer

ARRIVAL_RATE = replaced(
    "server_measured_arrival_rate", ("server",), "Measured load of a server [requests/min]."
)
MEASURED = replaced(
    "server_measured_milliseconds",
    ("server", "quantity"),
    "Measured mean latency of a server; quantity is itl, ttft or wait.",
)
PREDICTED = replaced(
    "server_predicted_milliseconds",
    ("server", "quantity"),
    "Mean latency of a server that its plan predicts; quantity is itl, ttft or wait.",
)
TARGET = replaced(
    "server_target_milliseconds",
    ("server", "quantity"),
    "Target of a latency of a server; quantity is itl, ttft or wait.",
)
MISSES = replaced(
    "server_misses_target",
    ("server", "target"),
    "1 if the measured value misses a target of the server, else 0; target is such as slo-ttft.",
)
CORRECTION = replaced(
    "server_load_correction",
    ("server",),
    "What the load of a server is multiplied by for plans, as it missed targets with replicas that"
    " should be enough; 1 without a correction.",
)
AGE = replaced(
    "server_measurement_age_seconds", ("server",), "Age of the newest sample of a server."
)
QUALITY = replaced(
    "server_measurement_quality",
    ("server", "quality"),
    "1 for the quality of a measurement: Fresh, Idle, Partial, Stale, Missing or Refused.",
)

MEASUREMENT_METRICS = (ARRIVAL_RATE, MEASURED, PREDICTED, TARGET, MISSES, CORRECTION, AGE, QUALITY)
"""Metrics whose series the next measurement of the namespace replaces."""


@dataclass(frozen=True, slots=True)
class NamespaceMeasurement:
    """The last measurement of the servers of a namespace, and its time [s]."""

    time: float
    servers: tuple[MeasuredServer, ...]

    def rows(self, now: float) -> Iterator[Row]:
        """Yield the rows of all servers; samples are as old as they are at a time [s]."""
        for server in self.servers:
            yield from _rows(server, now - self.time)


def measurement(time: float, servers: Sequence[MeasuredServer]) -> NamespaceMeasurement:
    """Return the measurement of a time [s], with its servers in the order of their names."""
    return NamespaceMeasurement(time, tuple(sorted(servers, key=lambda server: server.server)))


def _rows(server: MeasuredServer, elapsed: float) -> Iterator[Row]:
    name = server.server
    yield QUALITY, (name, server.quality), 1
    if server.arrival_rate is not None:
        yield ARRIVAL_RATE, (name,), server.arrival_rate
    if server.age is not None:
        yield AGE, (name,), server.age + elapsed
    if server.correction is not None:
        yield CORRECTION, (name,), server.correction
    for target, missed in server.misses.items():
        yield MISSES, (name, target), missed
    for quantity, latency in server.latencies.items():
        values = ((MEASURED, latency.measured), (PREDICTED, latency.predicted))
        for metric, value in (*values, (TARGET, latency.target)):
            if value is not None:
                yield metric, (name, quantity), value
