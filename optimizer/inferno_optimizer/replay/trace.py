"""Loads over time: the rate and the mean lengths of the requests of each server, step by step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from inferno_optimizer.errors import InputError
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.system import Server
from inferno_optimizer.units import SECONDS_PER_MINUTE

SAME_LENGTH = 0.02
"""Relative change of a mean length below which a replica is taken to perform as before."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The load of some clients, each a column; rows are steps of `step_s` seconds.

    `rate` is in requests/s, `input_tokens` and `output_tokens` are means per request; arrays
    have the shape (steps, clients). Where nothing arrives, the lengths are those of before.
    """

    clients: tuple[str, ...]
    step_s: float
    rate: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.rate)

    @property
    def lengths(self) -> FloatArray:
        """Mean input and output tokens; shape (steps, 2, clients)."""
        return np.stack((self.input_tokens, self.output_tokens), axis=1)

    @property
    def seconds(self) -> float:
        """Its length [s]."""
        return self.steps * self.step_s

    def between(self, start_s: float, end_s: float) -> "Trace":
        """The part between two times since its start."""
        first, last = (round(time / self.step_s) for time in (start_s, end_s))
        if not 0 <= first < last:
            raise InputError(f"nothing of the trace is between {start_s:g} s and {end_s:g} s")
        return self._select(slice(first, last))

    def every(self, step_s: float) -> "Trace":
        """The same load in other steps; rates of longer steps are means.

        Raises InputError if neither step is a multiple of the other.
        """
        finer, longer = self.step_s / step_s, step_s / self.step_s
        if finer >= 1 and finer.is_integer():
            rows = np.repeat(np.arange(self.steps), int(finer))
            return replace(self._select(rows), step_s=step_s)
        if not longer.is_integer():
            raise InputError(
                f"steps of {step_s:g} s: take a multiple or a whole part of the"
                f" {self.step_s:g} s of the trace"
            )
        return self._average(int(longer))

    def scale(self, factor: float) -> "Trace":
        """The same shape with more or fewer requests."""
        return replace(self, rate=self.rate * factor)

    def _select(self, rows: slice | np.ndarray[tuple[int], np.dtype[np.int64]]) -> "Trace":
        columns = (self.rate[rows], self.input_tokens[rows], self.output_tokens[rows])
        return Trace(self.clients, self.step_s, *columns)

    def _average(self, size: int) -> "Trace":
        starts = np.arange(0, self.steps, size)
        counts = np.diff([*starts, self.steps])[:, None]
        sums = np.add.reduceat(self.rate, starts)

        def mean(lengths: FloatArray) -> FloatArray:
            total = np.add.reduceat(lengths * self.rate, starts)
            plain = np.add.reduceat(lengths, starts) / counts
            return np.where(sums > 0, total / np.where(sums > 0, sums, 1.0), plain)

        return Trace(
            self.clients,
            self.step_s * size,
            sums / counts,
            mean(self.input_tokens),
            mean(self.output_tokens),
        )


def build_trace(
    clients: tuple[str, ...],
    step_s: float,
    rate: FloatArray,
    lengths: tuple[FloatArray, FloatArray],
) -> Trace:
    """A trace of input and output tokens that are NaN where they are not known.

    Then they are those of the step before; at the beginning, of the first step after.
    """
    return Trace(clients, step_s, rate, *map(_fill_forward, lengths))


def _fill_forward(lengths: FloatArray) -> FloatArray:
    filled = np.ones_like(lengths)
    for client, column in enumerate(lengths.T):
        measured = np.flatnonzero(~np.isnan(column))
        if measured.size:
            newest = np.searchsorted(measured, np.arange(len(column)), side="right") - 1
            filled[:, client] = column[measured[np.maximum(newest, 0)]]
    return filled


def assign_clients(trace: Trace, servers: Sequence[Server]) -> Trace:
    """The load of each server, in the order of the servers.

    Where clients are named as servers, each server gets the load of its client as it is, and
    none without one. Where no client is, the clients are dealt to the servers in turn: of a
    client, the server gets the shape, scaled so that its highest rate and its mean lengths are
    those of the server's own load.
    """
    names = [server.name for server in servers]
    if not set(names) & set(trace.clients):
        return _deal_clients(trace, servers)
    places = {client: place for place, client in enumerate(trace.clients)}

    def own(values: FloatArray, missing: float) -> FloatArray:
        nothing = np.full(trace.steps, missing)
        columns = [values[:, places[name]] if name in places else nothing for name in names]
        return np.stack(columns, axis=1)

    lengths = own(trace.input_tokens, 1.0), own(trace.output_tokens, 1.0)
    return Trace(tuple(names), trace.step_s, own(trace.rate, 0.0), *lengths)


def _deal_clients(trace: Trace, servers: Sequence[Server]) -> Trace:
    dealt = np.arange(len(servers)) % len(trace.clients)
    loads = [server.load for server in servers]
    rates = np.array([load.arrival_rate / SECONDS_PER_MINUTE for load in loads])
    own_input = [float(load.input_tokens) for load in loads]
    own_output = [float(load.output_tokens or load.tokens_per_request) for load in loads]
    return Trace(
        tuple(server.name for server in servers),
        trace.step_s,
        _divide(trace.rate, trace.rate.max(axis=0))[:, dealt] * rates,
        _divide(trace.input_tokens, trace.input_tokens.mean(axis=0))[:, dealt] * own_input,
        _divide(trace.output_tokens, trace.output_tokens.mean(axis=0))[:, dealt] * own_output,
    )


def _divide(values: FloatArray, whole: FloatArray) -> FloatArray:
    """Values over time as shares; 0 of nothing."""
    return np.where(whole > 0, values / np.where(whole > 0, whole, 1.0), 0.0)


def iterate_epochs(trace: Trace) -> Iterator[slice]:
    """Steps in a row in which no mean length changes by more than `SAME_LENGTH`."""
    lengths, start = trace.lengths, 0
    moves = np.flatnonzero((lengths[1:] != lengths[:-1]).any(axis=(1, 2))) + 1
    for step in moves.tolist():
        if have_lengths_changed(lengths[step], lengths[start]).any():
            yield slice(start, step)
            start = step
    yield slice(start, trace.steps)


def have_lengths_changed(lengths: FloatArray, before: FloatArray) -> npt.NDArray[np.bool_]:
    """Which clients have other mean lengths; arrays of shape (2, clients)."""
    other: npt.NDArray[np.bool_] = np.any(np.abs(lengths - before) > SAME_LENGTH * before, axis=0)
    return other
