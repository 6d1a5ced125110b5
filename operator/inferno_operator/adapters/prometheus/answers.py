"""What the Prometheus API answers; pure functions.

The format is that of https://prometheus.io/docs/prometheus/latest/querying/api/. Whatever has
another form is refused as a whole: half an answer would count as less load.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from pydantic_core import from_json

from inferno_operator.runtime.prometheus import (
    QueryResult,
    RangeResult,
    Sample,
    Series,
)
from inferno_operator.runtime.texts import LONGEST_QUOTED, shortened

INFO = "PromQL info"
"""Start of remarks that Prometheus 2.48 to 2.54 lists as warnings; they tell nothing is missing."""

WARNINGS = 3
"""Warnings that are told; of others, how many there are."""

LONGEST_ERROR = 2**16
"""Size of an answer up to which an error message is looked for in it [bytes]."""

CLOCKS_APART = 300.0
"""Time by which the evaluation of a query may differ from what was asked for [s]."""


class UnusableError(ValueError):
    """An answer is not what was asked for; the text says why."""


def decode_answer(body: bytes, at: float) -> QueryResult:
    """Decode the answer to an instant query.

    Parameters
    ----------
    body
        The answer.
    at
        The time for which the query was to be evaluated, Unix time [s].

    Raises
    ------
    UnusableError
        It is not an answer of Prometheus, does not have one number for each series, or is that
        of another time.
    """
    document = _document(body)
    with _form_of_the_api("samples", body):
        data = document["data"]
        samples = tuple(_samples(data["resultType"], data["result"]))
        warnings = tuple(_warnings(document))
    for sample in samples:
        if not abs(sample.time - at) <= CLOCKS_APART:
            raise UnusableError(_of_another_time(sample.time, at))
    return QueryResult(samples, warnings)


def decode_range(body: bytes, start: float, end: float) -> RangeResult:
    """Decode the answer to a range query.

    Parameters
    ----------
    body
        The answer.
    start, end
        The times between which the query was to be evaluated, Unix times [s].

    Raises
    ------
    UnusableError
        It is not an answer of Prometheus, does not have numbers over time for each series, or has
        some of another time.
    """
    document = _document(body)
    with _form_of_the_api("series", body):
        series = tuple(_series(document["data"]))
        warnings = tuple(_warnings(document))
    for time in (time for one in series for time in one.times[:: max(len(one.times) - 1, 1)]):
        if not start - CLOCKS_APART <= time <= end + CLOCKS_APART:
            raise UnusableError(_of_another_time(time, start))
    return RangeResult(series, warnings)


def decode_names(body: bytes) -> tuple[str, ...]:
    """Decode the values of a label, sorted.

    Raises
    ------
    UnusableError
        It is not an answer of Prometheus.
    """
    names = _document(body).get("data")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UnusableError(f"the answer has no list of names: {quoted(body)}")
    return tuple(sorted(map(shortened, names)))


def error_text(body: bytes) -> str:
    """Return the error message in an answer, or else its start."""
    if len(body) > LONGEST_ERROR:
        return quoted(body)
    try:
        document = from_json(body, allow_inf_nan=False)
    except ValueError:
        return quoted(body)
    error = document.get("error") if isinstance(document, dict) else None
    return shortened(str(error)) if error else quoted(body)


def quoted(body: bytes) -> str:
    """Return the start of an answer in one line and in quotes."""
    text = shortened(body[: 4 * LONGEST_QUOTED].decode(errors="replace"))
    return repr(text) if text else "an empty answer"


def _document(body: bytes) -> Mapping[str, Any]:
    """Return the JSON of a successful answer; all of its texts can be written as UTF-8."""
    try:
        document = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise UnusableError(f"the answer is not JSON: {quoted(body)}") from error
    if not isinstance(document, dict) or document.get("status") != "success":
        raise UnusableError(f"the answer is not from Prometheus: {error_text(body)}")
    return document


@contextmanager
def _form_of_the_api(content: str, body: bytes) -> Iterator[None]:
    """Turn what is raised when an answer has another form into an `UnusableError`."""
    try:
        yield
    except UnusableError:
        raise
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        text = f"the answer has no {content} in the form of the API: {quoted(body)}"
        raise UnusableError(text) from error


def _warnings(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield why an answer may be incomplete."""
    if document.get("isPartial"):  # VictoriaMetrics says so instead
        yield "the answer is partial"
    warnings = document.get("warnings") or []
    if not isinstance(warnings, list) or not all(isinstance(text, str) for text in warnings):
        raise UnusableError("the answer has warnings that are not a list of texts")
    doubts = [text for text in warnings if not text.startswith(INFO)]
    yield from map(shortened, doubts[:WARNINGS])
    if len(doubts) > WARNINGS:
        yield f"and {len(doubts) - WARNINGS} more warnings"


def _samples(kind: object, result: object) -> Iterator[Sample]:
    if kind == "scalar":
        yield _sample({}, result)
        return
    if kind != "vector":
        raise UnusableError(
            f"the query gives a {shortened(str(kind))}, not one number for each series"
        )
    if not isinstance(result, list):
        raise TypeError(result)
    for item in result:
        if "histogram" in item:
            raise UnusableError("the query gives native histograms, not one number for each series")
        yield _sample(item["metric"], item["value"])


def _series(data: Mapping[str, Any]) -> Iterator[Series]:
    kind, result = data["resultType"], data["result"]
    if kind != "matrix":
        raise UnusableError(f"the query gives a {shortened(str(kind))}, not numbers over time")
    if not isinstance(result, list):
        raise TypeError(result)
    for item in result:
        if "histograms" in item:
            raise UnusableError("the query gives native histograms, not numbers over time")
        samples = [_sample(item["metric"], value) for value in item["values"]]
        times, values = (
            tuple(column) for column in zip(*((t, v) for _, t, v in samples), strict=True)
        )
        yield Series(item["metric"], times, values)


def _sample(labels: object, value: object) -> Sample:
    """Return a sample: texts by name, and the pair of a time and a number as text."""
    if not isinstance(labels, dict) or not all(isinstance(text, str) for text in labels.values()):
        raise TypeError(labels)
    if not isinstance(value, list):
        raise TypeError(value)
    time, text = value
    if not isinstance(time, int | float) or isinstance(time, bool) or not isinstance(text, str):
        raise TypeError(value)
    if text != text.strip() or "_" in text:
        raise ValueError(text)  # float() reads these
    return Sample(labels, float(time), float(text))  # also NaN, +Inf and -Inf


def _of_another_time(time: float, at: float) -> str:
    try:
        when = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        when = f"{time:g} s after 1970"
    asked = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"the answer is of {when}, and was asked for {asked}: compare the clocks"
