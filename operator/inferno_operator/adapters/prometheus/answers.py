"""What the Prometheus API answers; pure functions.

The format is that of https://prometheus.io/docs/prometheus/latest/querying/api/.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inferno_operator.runtime.prometheus import Answer, Sample

INFO = "PromQL info"
"""Start of remarks that Prometheus 2.48 to 2.54 lists as warnings; they tell nothing is missing."""

LONGEST_QUOTED = 300
"""Largest number of characters of a query or an answer that a message shows."""


class UnusableError(ValueError):
    """An answer is not what was asked for; the text says why."""


def decode_answer(body: bytes) -> Answer:
    """Decode the answer to an instant query.

    Raises
    ------
    UnusableError
        It is not an answer of Prometheus, or does not have one number for each series.
    """
    document = _document(body)
    try:
        samples = _samples(document["data"]["resultType"], document["data"]["result"])
        warnings = tuple(_warnings(document))
    except UnusableError:
        raise
    except (IndexError, KeyError, TypeError, ValueError) as error:
        text = f"the answer has no samples in the form of the API: {quoted(body)}"
        raise UnusableError(text) from error
    return Answer(samples, warnings)


def decode_names(body: bytes) -> tuple[str, ...]:
    """Decode the values of a label, sorted.

    Raises
    ------
    UnusableError
        It is not an answer of Prometheus.
    """
    names = _document(body).get("data")
    if not isinstance(names, list):
        raise UnusableError(f"the answer has no list of names: {quoted(body)}")
    return tuple(sorted(map(str, names)))


def error_text(body: bytes) -> str:
    """Return the error message in an answer, or else its start."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return quoted(body)
    error = document.get("error") if isinstance(document, dict) else None
    return shortened(str(error)) if error else quoted(body)


def shortened(text: str) -> str:
    """Return a text in one line, without its end if it is long."""
    line = " ".join(text[: 4 * LONGEST_QUOTED].split())
    return line if len(line) <= LONGEST_QUOTED else f"{line[:LONGEST_QUOTED].rstrip()}..."


def quoted(body: bytes) -> str:
    """Return the start of an answer in one line and in quotes."""
    text = shortened(body[: 4 * LONGEST_QUOTED].decode(errors="replace"))
    return repr(text) if text else "an empty answer"


def _document(body: bytes) -> Mapping[str, Any]:
    """Return the JSON of a successful answer."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UnusableError(f"the answer is not JSON: {quoted(body)}") from error
    if not isinstance(document, dict) or document.get("status") != "success":
        raise UnusableError(f"the answer is not that of Prometheus: {error_text(body)}")
    return document


def _warnings(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield why an answer may be incomplete."""
    if document.get("isPartial"):  # VictoriaMetrics says so instead
        yield "the answer is partial"
    for text in map(str, document.get("warnings") or ()):
        if not text.startswith(INFO):
            yield text


def _samples(kind: str, result: Sequence[Any]) -> tuple[Sample, ...]:
    if kind == "scalar":
        return (Sample({}, float(result[0]), float(result[1])),)
    if kind != "vector":
        raise UnusableError(f"the query gives a {kind}, not one number for each series")
    if any("histogram" in item for item in result):
        raise UnusableError("the query gives native histograms, not one number for each series")
    return tuple(
        # float() reads NaN, +Inf and -Inf as well.
        Sample(item["metric"], float(item["value"][0]), float(item["value"][1]))
        for item in result
    )
