"""Expressions of Prometheus, evaluated by its own engine on real scrapes."""

import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True, slots=True)
class Scrape:
    """A page of metrics, and what Prometheus knows of where it got it, at a time [s]."""

    seconds: int
    page: str
    job: str
    pod: str

    def samples(self) -> Iterator[dict[str, Any]]:
        """What Prometheus would keep; labels of the page win, as the manifests ask for."""
        target = {"job": self.job, "pod": self.pod, "namespace": "inferno-system"}
        for family in text_string_to_metric_families(self.page):
            for sample in family.samples:
                labels = {**target, **sample.labels, "__name__": sample.name}
                yield _sample(labels, self.seconds, sample.value)


@dataclass(frozen=True, slots=True)
class Answer:
    """What an expression gave; `selectors` are those of series in it."""

    error: str
    selectors: list[str]
    samples: list[dict[str, Any]]


def evaluate(
    promql: Path, scrapes: Iterable[Scrape], expressions: Sequence[str], seconds: int
) -> list[Answer]:
    """Evaluate expressions at a time [s]."""
    document = {
        "samples": [sample for scrape in scrapes for sample in scrape.samples()],
        "queries": [{"expression": e, "milliseconds": 1000 * seconds} for e in expressions],
    }
    completed = subprocess.run(
        [promql], input=json.dumps(document), capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr

    return [Answer(**answer) for answer in json.loads(completed.stdout)]


def _sample(labels: dict[str, str], seconds: int, value: float) -> dict[str, Any]:
    return {"labels": labels, "milliseconds": 1000 * seconds, "value": value}
