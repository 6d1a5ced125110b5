"""Recorded loads from CSV files, also compressed ones: steps with rates, or single requests."""

import csv
import gzip
import io
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np

from inferno_operator.cli.offline.documents import refuse_separators
from inferno_operator.runtime.files import decoded, read_bytes, write_bytes
from inferno_optimizer.errors import InputError
from inferno_optimizer.replay.trace import Trace, build_trace
from inferno_optimizer.sizing.queueing import FloatArray
from inferno_optimizer.suggestions import NAMES_SHOWN, cut, nearest
from inferno_optimizer.validation import MAX_COUNT

# Columns of a file with a step of a client on each line.
STEPS = ("client", "start_s", "rate_per_s", "input_mean", "output_mean")

# Columns of a file with a request on each line; `client` is optional.
REQUESTS = ("arrival_s", "input_tokens", "output_tokens")

# Other names of columns, and what their numbers are multiplied by.
RATES = {"rate_per_min": 1 / 60, "rate_per_h": 1 / 3600}

# Columns with dates and times (ISO 8601) instead of seconds.
TIMES = ("start", "arrival", "timestamp")

REQUESTS_STEP_S = 60.0  # steps into which single requests are counted [s]
MOST_STEPS = 1_000_000  # most of these steps: nearly two years
ONLY_CLIENT = "all"  # the client of requests without one
TOLERANCE_S = 1e-6  # difference of two times that rounding explains [s]
GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class TraceRow:
    """A line of a file: what a client sends in a step, or one request.

    `column` is that of the time; `rate` is in requests/s; lengths are NaN where nothing is sent.
    """

    origin: str
    client: str
    column: str
    time_s: float
    rate: float
    input_tokens: float
    output_tokens: float

    @property
    def time(self) -> str:
        """The time as the column has it."""
        if self.column in TIMES:
            return datetime.fromtimestamp(self.time_s, UTC).isoformat()
        return f"{self.time_s:g}"


def read_trace(path: str, remark: Callable[[Sequence[str]], None] = lambda _: None) -> Trace:
    """Read a trace.

    `remark` is called with what has no effect: columns that are unknown, and requests without
    tokens.

    Raises InputError if the file cannot be read, lacks a column or has no line; or a value is
    not valid, a step is missing, or time goes back. The text names the file and the line.
    """
    reader = csv.reader(io.StringIO(_read_text(path)))
    header = [name.strip() for name in next(reader, [])]
    if not header:
        raise InputError(f"{path}: is empty")
    refuse_separators(header, path)
    requests = "arrival_s" in header or {*REQUESTS[1:]} <= {*header}
    columns = REQUESTS if requests else STEPS
    own = _find_columns(header, columns)
    _refuse_missing(path, header, own, columns)
    remark([*_list_unused(path, header, own, ("client", *columns))])
    lines = ((number, line) for number, line in enumerate(reader, 2) if any(line))
    cells = (
        Cells(f"{path}:{n}", _list_cells(f"{path}:{n}", header, line), own) for n, line in lines
    )
    rows = [_read_request(row) if requests else _read_step(row) for row in cells]
    if not rows:
        raise InputError(f"{path}: has no line below its header")
    remark([*_warn_without_output(path, rows)])
    return _count_requests(rows) if requests else _build_from_steps(path, rows)


def find_client_line(path: str, client: str) -> str:
    """The file and the first line of a client, for messages."""
    reader = csv.DictReader(io.StringIO(_read_text(path)))
    names = ((row.get("client") or "").strip() or ONLY_CLIENT for row in reader)
    return next((f"{path}:{line}" for line, name in enumerate(names, 2) if name == client), path)


def write_trace(path: str, trace: Trace, start_s: float) -> None:
    """Write a trace as a file of steps, compressed if its name ends in .gz; see `read_trace`.

    Raises InputError if the file cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(STEPS)
    for column, client in enumerate(trace.clients):
        starts = (start_s + step * trace.step_s for step in range(trace.steps))
        numbers = (
            a[:, column].tolist() for a in (trace.rate, trace.input_tokens, trace.output_tokens)
        )
        writer.writerows(
            (client, f"{start:.10g}", *row) for start, *row in zip(starts, *numbers, strict=True)
        )
    content = text.getvalue().encode()
    write_bytes(path, gzip.compress(content) if path.endswith(".gz") else content)


def _read_text(path: str) -> str:
    content = read_bytes(path)
    try:
        plain = gzip.decompress(content) if content.startswith(GZIP) else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: not a whole gzip file: {error}") from error
    return decoded(plain, path)


def _find_columns(header: Sequence[str], wanted: Sequence[str]) -> Mapping[str, str]:
    """Return the names that a file has for the columns that it needs."""
    others = {"start_s": TIMES, "arrival_s": TIMES, "rate_per_s": tuple(RATES)}
    found = {}
    for column in wanted:
        names = (column, *others.get(column, ()))
        if own := next((name for name in names if name in header), None):
            found[column] = own
    return found


def _refuse_missing(
    path: str, header: Sequence[str], own: Mapping[str, str], wanted: Sequence[str]
) -> None:
    missing = [name for name in wanted if name not in own]
    if missing:
        given = ", ".join(map(cut, header[:NAMES_SHOWN]))
        raise InputError(
            f"{path}:1: no column {', '.join(missing)} (given: {given}); expected either columns"
            f" {', '.join(STEPS)} (rates per interval) or columns {', '.join(REQUESTS)} (single"
            f" requests); also {', '.join(TIMES)} with dates, and {', '.join(RATES)}"
        )
    if twice := [name for name in own.values() if header.count(name) > 1]:
        raise InputError(f"{path}:1: column {twice[0]!r} is there twice")


def _list_unused(
    path: str, header: Sequence[str], own: Mapping[str, str], known: Sequence[str]
) -> Iterator[str]:
    used = {"client", *own.values()}
    for name in header:
        if name not in used:
            missing = [column for column in known if column not in header]
            yield f"{path}:1: column {name!r} is not used{nearest(name, missing)}"


def _warn_without_output(path: str, rows: Sequence[TraceRow]) -> Iterator[str]:
    """What is sent without output tokens, which counts as no load; or that nothing is sent."""
    if not any(row.rate for row in rows):
        yield f"{path}: all rates are 0"
    empty = [row for row in rows if row.rate > 0 and row.output_tokens == 0]
    if empty:
        yield (
            f"{empty[0].origin}: no output tokens: counts as no load"
            f" ({len(empty)} of {len(rows)} lines)"
        )


def _list_cells(origin: str, header: Sequence[str], line: Sequence[str]) -> dict[str, str]:
    if len(line) > len(header):
        cells = f"has {len(line)} cells, where there are {len(header)} columns"
        raise InputError(f"{origin}: {cells}; a number such as 1,5 is written 1.5")
    return dict(zip(header, line, strict=False))


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of a line by the names of the columns; `own` are the names that are needed."""

    origin: str
    texts: Mapping[str, str]
    own: Mapping[str, str]

    @property
    def client(self) -> str:
        """The client, or nothing."""
        return self.texts.get("client", "").strip()

    def read_time(self, column: str) -> float:
        """Return a time [s]."""
        text = self._text(column)
        if self.own[column] not in TIMES:
            try:
                return self.read_number(column)
            except InputError as error:
                with_dates = column.removesuffix("_s")
                advice = f"a time in seconds; dates are for a column {with_dates}"
                raise InputError(f"{error}: {advice}") from error
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError as error:
            raise InputError(
                f"{self.origin}: {self.own[column]}: must be a date and time such as"
                f" 2026-11-29T08:00:00Z, not {cut(text)!r}; seconds are for a column {column}"
            ) from error
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

    def read_length(self, column: str, *, needed: bool) -> float:
        """Return a number of tokens; NaN if it is empty and not needed."""
        if not needed and not self._text(column).strip():
            return math.nan
        return self.read_number(column)

    def read_number(self, column: str) -> float:
        """Return a number of at least 0, in the unit of the column that is needed."""
        name, text = self.own[column], self._text(column)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= 0):
            raise InputError(
                f"{self.origin}: {name}: must be a number of at least 0, not {cut(text)!r}"
            )
        if value > MAX_COUNT:
            raise InputError(
                f"{self.origin}: {name}: must be at most {MAX_COUNT}, not {cut(text)!r}"
            )
        return value * RATES.get(name, 1.0)

    def _text(self, column: str) -> str:
        return self.texts.get(self.own[column], "")


def _read_step(cells: Cells) -> TraceRow:
    rate = cells.read_number("rate_per_s")
    lengths = [cells.read_length(name, needed=rate > 0) for name in STEPS[3:]]
    if not cells.client:
        raise InputError(f"{cells.origin}: client: is empty")
    time = cells.own["start_s"], cells.read_time("start_s")
    return TraceRow(cells.origin, cells.client, *time, rate, *lengths)


def _read_request(cells: Cells) -> TraceRow:
    lengths = [cells.read_length(name, needed=True) for name in REQUESTS[1:]]
    client = cells.client or ONLY_CLIENT
    time = cells.own["arrival_s"], cells.read_time("arrival_s")
    return TraceRow(cells.origin, client, *time, 1.0, *lengths)


def _build_from_steps(path: str, rows: Sequence[TraceRow]) -> Trace:
    by_client: dict[str, list[TraceRow]] = {}
    for row in rows:
        by_client.setdefault(row.client, []).append(row)
    first = next(iter(by_client.values()))
    if len(first) == 1:
        raise InputError(f"{path}: client {first[0].client!r} has one step; a trace has several")
    step_s = first[1].time_s - first[0].time_s
    for own in by_client.values():
        _refuse_gaps(own, step_s)
        _refuse_other_times(own, first)
    columns = [
        np.array([[getattr(row, name) for row in own] for own in by_client.values()]).T
        for name in ("rate", "input_tokens", "output_tokens")
    ]
    return build_trace(tuple(by_client), step_s, columns[0], (columns[1], columns[2]))


def _refuse_gaps(rows: Sequence[TraceRow], step_s: float) -> None:
    for before, row in pairwise(rows):
        passed = row.time_s - before.time_s
        if passed <= 0:
            raise InputError(
                f"{row.origin}: {row.column}: time goes back for client {row.client!r},"
                f" from {before.time} to {row.time}"
            )
        if abs(passed - step_s) > TOLERANCE_S:
            raise InputError(
                f"{row.origin}: {row.column}: {passed:g} s after the step before of client"
                f" {row.client!r}, where steps are {step_s:g} s"
            )


def _refuse_other_times(rows: Sequence[TraceRow], first: Sequence[TraceRow]) -> None:
    for one, other in ((rows[0], first[0]), (rows[-1], first[-1])):
        if abs(one.time_s - other.time_s) > TOLERANCE_S:
            raise InputError(
                f"{one.origin}: {one.column}: client {one.client!r} has {one.time} here, where"
                f" client {other.client!r} has {other.time} ({other.origin})"
            )


def _count_requests(rows: Sequence[TraceRow]) -> Trace:
    """The trace of single requests: how many came in each step, from that of the first on."""
    for before, row in pairwise(rows):
        if row.time_s < before.time_s:
            raise InputError(
                f"{row.origin}: {row.column}: time goes back, from {before.time} to {row.time}"
            )
    clients = list(dict.fromkeys(row.client for row in rows))
    step = np.array([int(row.time_s // REQUESTS_STEP_S) for row in rows])
    step -= step[0]  # times may be those of a calendar
    if step[-1] > MOST_STEPS:
        raise InputError(
            f"{rows[-1].origin}: {rows[-1].column}: {rows[-1].time}"
            f" is more than {MOST_STEPS} minutes"
            f" after the first request; times are in seconds"
        )
    column = np.array([clients.index(row.client) for row in rows])
    shape = (int(step.max()) + 1, len(clients))

    def total(values: Iterator[float]) -> FloatArray:
        sums = np.zeros(shape)
        np.add.at(sums, (step, column), np.array(list(values)))
        return sums

    count = total(row.rate for row in rows)
    requests = np.where(count > 0, count, np.nan)
    lengths = (
        total(row.input_tokens for row in rows) / requests,
        total(row.output_tokens for row in rows) / requests,
    )
    return build_trace(tuple(clients), REQUESTS_STEP_S, count / REQUESTS_STEP_S, lengths)
