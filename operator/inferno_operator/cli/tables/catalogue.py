"""Text output of the command line: published figures, and estimates."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

import numpy as np

from inferno_operator.cli.estimate import ModelEstimate, list_warnings
from inferno_operator.cli.offline.catalogue import (
    Card,
    Figures,
    KnownHardware,
    KnownModel,
    KnownModels,
    PublishedFigures,
)
from inferno_operator.cli.offline.model_config import read_architecture
from inferno_operator.cli.tables.table import Part, TextTable
from inferno_operator.resources import PerformanceData
from inferno_optimizer.calibration.roofline import CACHE_BYTES

LINE = 90
"""Longest line of a note about a source [characters]; names and addresses are never broken."""

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
        yield from _lines(source.note)
    yield ""
    if any(data.step_parms for figures in groups for data in figures.data):
        yield "Where BETA is a dash, the figures are stepParms: -o yaml prints them."
    yield START


def _row(data: PerformanceData, source: str) -> tuple[str, ...]:
    parameters = data.step_parms or data.decode_parms or data
    beta = "-" if data.step_parms else f"{getattr(parameters, 'beta', 0.0):g}"
    cells = (f"{parameters.alpha or 0.0:g}", beta, str(data.max_batch_size), str(data.at_tokens))
    return (data.acc, str(data.acc_count), *cells, source)


def hardware_parts(hardware: KnownHardware) -> Iterator[Part]:
    """Yield the cards, and their sources."""
    headings = ("ACCELERATOR", ">GB", ">GB/S", ">TFLOP/S", ">8 BIT", ">LINK GB/S", ">W", "SOURCE")
    yield TextTable(headings, [_card_row(card) for card in hardware.accelerators])
    yield ""
    for key, sheet in hardware.sources.items():
        sources = "; ".join(filter(None, (f"{key}: {sheet.title}", sheet.date, sheet.note)))
        yield from _lines(sources)


def _lines(note: str) -> list[str]:
    return wrap(note, LINE, break_long_words=False, break_on_hyphens=False)


def _card_row(card: Card) -> tuple[str, ...]:
    figures = (card.memory, card.bandwidth, card.flops16, card.flops8, card.link, card.power)
    return (card.name, *("-" if f is None else f"{f:g}" for f in figures), card.source)


def models_parts(models: KnownModels) -> Iterator[Part]:
    """Yield the models with what follows from the shapes of their matrices."""
    headings = ("MODEL", ">LAYERS", ">10^9", ">A TOKEN", ">KIB/TOKEN", ">WINDOW", "REPOSITORY")
    yield TextTable(headings, [_model_row(model) for model in models.models])


def _model_row(known: KnownModel) -> tuple[str, ...]:
    model = read_architecture(known.config, known.name)
    growing = model.layers - model.windowed_layers
    cache = growing * model.cached(1) * CACHE_BYTES["bf16"] / 1024
    return (
        known.name,
        str(model.layers),
        f"{model.parameters / 1e9:.2f}",
        f"{model.active / 1e9:.2f}",
        f"{cache:.4g}",
        str(model.window or "-"),
        f"{known.repository} ({known.note})" if known.note else known.repository,
    )


def estimate_parts(estimates: Sequence[ModelEstimate]) -> Iterator[Part]:
    """Yield what is estimated of each accelerator, and what that is off by."""
    for place, estimate in enumerate(estimates):
        if place:
            yield ""
        yield from _estimate_parts(estimate)
    yield from list_warnings(estimates)


def _estimate_parts(estimate: ModelEstimate) -> Iterator[Part]:
    """Yield the times of steps, and what fits into the memory."""
    wanted, replica = estimate.wanted, estimate.roofline
    context = wanted.input_tokens + wanted.output_tokens / 2.0
    sizes = np.unique(np.rint(np.geomspace(1, estimate.batch, num=4)))
    times = replica.step_ms(sizes, context)
    rows = [(f"{n:.0f}", f"{t:.2f}") for n, t in zip(sizes, times, strict=True)]
    yield f"{wanted.name} ({estimate.weights}) on {wanted.cards} x {estimate.card.name}"
    yield ""
    yield TextTable((">REQUESTS", ">STEP MS"), rows)
    yield ""
    prompt = estimate.parameters.delta * wanted.input_tokens
    yield (
        f"A prompt of {wanted.input_tokens} tokens adds {prompt:.1f} ms. The weights take"
        f" {replica.weights_gb:.1f} GB; {estimate.max_tokens} tokens fit beside them."
    )
