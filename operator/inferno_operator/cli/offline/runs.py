"""Results of benchmark runs: CSV files, and what `vllm bench serve` and other programs save."""

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from inferno_operator.cli.offline.documents import refuse_separators
from inferno_operator.runtime.files import read_text
from inferno_optimizer.calibration.windows import Window, batch_at_poisson_arrivals
from inferno_optimizer.errors import InputError
from inferno_optimizer.suggestions import alternatives
from inferno_optimizer.units import MS_PER_SECOND

# Quantities, and the names of columns that have them; a time may end in `_ms` or `_s`.
COLUMNS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "concurrency": ("concurrency", "max_concurrency", "batch", "batch_size", "users"),
        "rate": ("rate", "request_rate", "request_throughput", "rps", "qps"),
        "input_tokens": ("input_tokens", "input_len", "isl", "prompt_tokens", "prompt_len"),
        "output_tokens": ("output_tokens", "output_len", "osl", "completion_tokens", "gen_tokens"),
        "itl": ("itl", "mean_itl", "tpot", "mean_tpot", "inter_token_latency"),
        "ttft": ("ttft", "mean_ttft", "time_to_first_token", "prefill"),
    }
)

TIMES = ("itl", "ttft")
LOADS = ("concurrency", "rate")


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run.

    `origin`: file and line; `concurrency`, `rate`: requests in progress, or requests/s that
    arrive at random; NaN where it is not given; `input_tokens`, `output_tokens`: mean tokens of
    a request; `itl_ms`, `ttft_ms`: mean inter-token latency, and time to first token, without a
    wait in a queue [ms].
    """

    origin: str
    concurrency: float
    rate: float
    input_tokens: float
    output_tokens: float
    itl_ms: float
    ttft_ms: float

    @property
    def window(self) -> Window:
        """The run as a window of one replica."""
        return Window(
            end=0.0,
            itl_ms=self.itl_ms,
            intervals=math.inf,
            batch=self._estimate_batch(),
            prefill_ms=self.ttft_ms,
            prefills=math.inf,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            replica=self.origin,
        )

    def _estimate_batch(self) -> float:
        """The concurrency; or from the rate and the time of the decode, by Little's law."""
        if math.isfinite(self.concurrency):
            return self.concurrency
        decode_s = (self.output_tokens - 1.0) * self.itl_ms / MS_PER_SECOND
        return batch_at_poisson_arrivals(self.rate * decode_s)


def read_runs(paths: Iterable[str]) -> tuple[list[Run], list[str]]:
    """Read the runs in the files, and warnings about columns that are not used.

    Raises InputError if a file cannot be read, a column is missing, or a value is not a
    positive number; the text names the file and the line.
    """
    runs: list[Run] = []
    warnings: list[str] = []
    for path in paths:
        text = read_text(path)
        if text.lstrip().startswith(("{", "[")):
            runs += _read_benchmarks(text, path)
        else:
            table, unused = _read_table(text, path)
            runs += table
            warnings += [f"{path}: column {name!r} is not used" for name in unused]
    return runs, warnings


def _read_table(text: str, path: str) -> tuple[list[Run], list[str]]:
    rows = list(csv.reader(io.StringIO(text, newline=None)))
    if not rows:
        raise InputError(f"{path}: is empty")
    header, *lines = rows
    refuse_separators(header, path)
    columns = _find_columns(header, path)
    used = {name for name, _ in columns.values()}
    runs = [
        _read_run(dict(zip(header, line, strict=False)), columns, f"{path}:{number}")
        for number, line in enumerate(lines, 2)
        if any(cell.strip() for cell in line)
    ]
    return runs, [name for name in header if name not in used]


def _find_columns(header: Sequence[str], path: str) -> dict[str, tuple[str, float]]:
    """The column of each quantity, and the factor that makes its unit ours."""
    columns: dict[str, tuple[str, float]] = {}
    for column in header:
        quantity, factor = _name_quantity(column)
        if quantity:
            columns.setdefault(quantity, (column, factor))
    missing = [name for name in COLUMNS if name not in columns and name not in LOADS]
    if not any(load in columns for load in LOADS):
        missing.insert(0, "concurrency or rate")
    if missing:
        unknown = [column for column in header if not _name_quantity(column)[0]]
        raise InputError(f"{path}: no column for {', '.join(missing)}{_suggest_column(unknown)}")
    return columns


def _suggest_column(unknown: Sequence[str]) -> str:
    if not unknown:
        return f" (known: {', '.join(COLUMNS)})"
    column_names = [name for names in COLUMNS.values() for name in names]
    hint = alternatives(_simplify_heading(unknown[0])[0], column_names).partition(" (known")[0]
    return f"; column {unknown[0]!r} is unknown{hint} (known: {', '.join(COLUMNS)})"


def _name_quantity(column: str) -> tuple[str, float]:
    """The quantity of a column, "" if unknown, and the factor that makes its unit ours."""
    name, unit = _simplify_heading(column)
    for quantity, names in COLUMNS.items():
        if name in names:
            seconds = quantity in TIMES and unit == "s"
            return quantity, MS_PER_SECOND if seconds else 1.0
    return "", 1.0


def _simplify_heading(column: str) -> tuple[str, str]:
    """A column's name in lower case without its unit, and the unit."""
    name = re.sub(r"[^a-z0-9]+", "_", column.lower()).strip("_")
    match = re.fullmatch(r"(.+?)_(ms|s|req_s|tokens_s)", name)
    return (match[1], match[2]) if match else (name, "")


def _read_run(row: Mapping[str, str], columns: Mapping[str, tuple[str, float]], origin: str) -> Run:
    values = {
        quantity: _read_number(row.get(column, ""), column, origin, required=quantity not in LOADS)
        * factor
        for quantity, (column, factor) in columns.items()
    }
    load = {name: values.pop(name, math.nan) for name in LOADS}
    if not any(math.isfinite(value) for value in load.values()):
        raise InputError(f"{origin}: give a concurrency or a rate")
    return Run(
        origin,
        **load,
        input_tokens=values["input_tokens"],
        output_tokens=values["output_tokens"],
        itl_ms=values["itl"],
        ttft_ms=values["ttft"],
    )


def _read_number(text: str, column: str, origin: str, *, required: bool) -> float:
    """A positive number; NaN for an empty or infinite one that is not required."""
    if not required and text.strip().lower() in ("", "inf", "none", "null", "nan"):
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{origin}: {column}: must be a number above 0, not {text!r}")
    return value


def _read_benchmarks(text: str, path: str) -> Iterator[Run]:
    for number, document in enumerate(_list_results(text, path), 1):
        if not isinstance(document, Mapping):
            raise InputError(f"{path}: result {number}: expected an object")
        origin = f"{path}: result {number}"
        if "metrics" in document:
            yield _read_guidellm(document, origin)
        elif "input_config" in document:
            yield _read_genai_perf(document, origin)
        else:
            yield _read_benchmark(document, origin)


def _list_results(text: str, path: str) -> Iterator[object]:
    for document in _parse_lines(text, path):
        several = document.get("benchmarks") if isinstance(document, Mapping) else None
        yield from several if isinstance(several, list) else [document]


def _parse_lines(text: str, path: str) -> Iterator[object]:
    decoder, rest = json.JSONDecoder(), text.lstrip()
    while rest:
        try:
            document, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not valid JSON: {error}") from error
        yield from document if isinstance(document, list) else [document]
        rest = rest[end:].lstrip()


def _read_benchmark(document: Mapping[str, object], origin: str) -> Run:
    """A result of `vllm bench serve --save-result`; a rate is the one that was achieved."""

    def number(key: str) -> float:
        return _read_number(str(document.get(key, "")), key, origin, required=True)

    completed = number("completed")
    concurrency = _read_number(
        str(document.get("max_concurrency", "")), "max_concurrency", origin, required=False
    )
    offered = _read_number(
        str(document.get("request_rate", "")), "request_rate", origin, required=False
    )
    if math.isfinite(offered):
        concurrency = math.nan  # a limit, which the random arrivals need not reach
    return Run(
        origin,
        concurrency,
        number("request_throughput"),
        number("total_input_tokens") / completed,
        number("total_output_tokens") / completed,
        number("mean_tpot_ms"),
        number("mean_ttft_ms"),
    )


def _read_guidellm(document: Mapping[str, object], origin: str) -> Run:
    """A benchmark in the report of `guidellm benchmark`: means of the successful requests."""

    def mean(metric: str, *, required: bool = True) -> float:
        return _find_value(
            document, ("metrics", metric, "successful", "mean"), origin, required=required
        )

    strategy = _find_inside(document, ("config", "strategy")) or _find_inside(
        document, ("args", "strategy")
    )
    kind = strategy.get("type_") if isinstance(strategy, Mapping) else None
    clients = {"synchronous": 1.0}.get(str(kind), math.nan)
    if kind == "concurrent":
        clients = _find_value({"strategy": strategy}, ("strategy", "streams"), origin)
    return Run(
        origin,
        clients,
        mean("requests_per_second", required=not math.isfinite(clients)),
        mean("prompt_token_count"),
        mean("output_token_count"),
        mean("inter_token_latency_ms"),
        mean("time_to_first_token_ms"),
    )


def _read_genai_perf(document: Mapping[str, object], origin: str) -> Run:
    """What `genai-perf profile` exports; latencies are in ms."""

    def mean(metric: str, *, required: bool = True) -> float:
        return _find_value(document, (metric, "avg"), origin, required=required)

    place = ("input_config", "perf_analyzer", "stimulus", "concurrency")
    clients = _find_value(document, place, origin, required=False)
    return Run(
        origin,
        clients,
        mean("request_throughput", required=not math.isfinite(clients)),
        mean("input_sequence_length"),
        mean("output_sequence_length"),
        mean("inter_token_latency"),
        mean("time_to_first_token"),
    )


def _find_value(
    document: Mapping[str, object], place: Sequence[str], origin: str, *, required: bool = True
) -> float:
    value = _find_inside(document, place)
    text = "" if value is None else str(value)
    return _read_number(text, ".".join(place), origin, required=required)


def _find_inside(document: object, place: Sequence[str]) -> object:
    for key in place:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document
