"""Text output of the command line: published performance parameters."""

from collections.abc import Iterator, Sequence

from inferno_operator.cli.offline.catalogue import Figures, PublishedFigures
from inferno_operator.cli.tables.solution import Part, TextTable
from inferno_operator.resources import PerformanceData

START = "These figures are a start: calibrate your own with `inferno calibrate`."


def catalogue_parts(catalogue: PublishedFigures) -> Iterator[Part]:
    """Yield the models, and for each its accelerators and its source."""
    rows = [
        (figures.model, figures.engine, ", ".join(d.acc for d in figures.data), figures.source)
        for figures in catalogue.figures
    ]
    yield TextTable(("MODEL", "ENGINE", "ACCELERATORS", "SOURCE"), rows)
    yield ""
    yield START


def figures_parts(catalogue: PublishedFigures, groups: Sequence[Figures]) -> Iterator[Part]:
    """Yield the figures of a model, and what is known of their sources."""
    headings = ("ACCELERATOR", ">CARDS", ">ALPHA", ">BETA", ">BATCH", ">AT TOKENS", "SOURCE")
    rows = [_row(data, figures.source) for figures in groups for data in figures.data]
    yield TextTable(headings, rows)
    for key in dict.fromkeys(figures.source for figures in groups):
        source = catalogue.sources[key]
        yield ""
        yield f"{key}: {source.title}; {source.url}; read {source.date}"
        yield source.note
    yield ""
    yield START


def _row(data: PerformanceData, source: str) -> tuple[str, ...]:
    parameters = data.decode_parms or data
    alpha, beta = parameters.alpha or 0.0, parameters.beta or 0.0
    numbers = (data.acc_count, alpha, beta, data.max_batch_size, data.at_tokens)
    return (data.acc, *(f"{number:g}" for number in numbers), source)
