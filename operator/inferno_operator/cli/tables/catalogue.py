"""Published figures, and estimates, as text."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

import numpy as np

from inferno_operator.cli.estimate import ModelEstimate, list_warnings
from inferno_operator.cli.offline.catalogue import (
    Figures,
    KnownHardware,
    KnownModels,
    PublishedFigures,
)
from inferno_operator.cli.offline.model_config import read_architecture
from inferno_operator.cli.tables.table import Part, TextTable
from inferno_optimizer.calibration.roofline import CACHE_BYTES

LINE = 90
"""Longest line of a note about a source [characters]; names and addresses are never broken."""

START = "These figures are a start: calibrate your own with `inferno calibrate`."


def describe_catalogue(catalogue: PublishedFigures) -> Iterator[Part]:
    """Yield the models, and for each its accelerators and its source."""
    rows = [
        (figures.model, figures.engine, ", ".join(d.acc for d in figures.data), figures.source)
        for figures in catalogue.figures
    ]
    yield TextTable(("MODEL", "ENGINE", "ACCELERATORS", "SOURCE"), rows)
    yield ""
    yield START


def describe_figures(catalogue: PublishedFigures, groups: Sequence[Figures]) -> Iterator[Part]:
    """Yield the figures of a model, and what is known of their sources."""
    rows = []
    for figures in groups:
        for data in figures.data:
            parameters = data.step_parms or data.decode_parms or data
            beta = "-" if data.step_parms else f"{getattr(parameters, 'beta', 0.0):g}"
            size = (str(data.max_batch_size), str(data.at_tokens))
            cells = (str(data.acc_count), f"{parameters.alpha or 0.0:g}", beta, *size)
            rows.append((data.acc, *cells, figures.source))
    headings = ("ACCELERATOR", ">CARDS", ">ALPHA", ">BETA", ">BATCH", ">AT TOKENS", "SOURCE")
    yield TextTable(headings, rows)
    for key in dict.fromkeys(figures.source for figures in groups):
        source = catalogue.sources[key]
        yield ""
        yield f"{key}: {source.title}; {source.url}; read {source.date}"
        yield from _wrap(source.note)
    yield ""
    if any(data.step_parms for figures in groups for data in figures.data):
        yield "Where BETA is a dash, the figures are stepParms: -o yaml prints them."
    yield START


def describe_hardware(hardware: KnownHardware) -> Iterator[Part]:
    """Yield the cards, and their sources."""
    rows = []
    for card in hardware.accelerators:
        figures = (card.memory, card.bandwidth, card.flops16, card.flops8, card.link, card.power)
        cells = ("-" if figure is None else f"{figure:g}" for figure in figures)
        rows.append((card.name, *cells, card.source))
    headings = ("ACCELERATOR", ">GB", ">GB/S", ">TFLOP/S", ">8 BIT", ">LINK GB/S", ">W", "SOURCE")
    yield TextTable(headings, rows)
    yield ""
    for key, sheet in hardware.sources.items():
        yield from _wrap("; ".join(filter(None, (f"{key}: {sheet.title}", sheet.date, sheet.note))))


def _wrap(note: str) -> list[str]:
    return wrap(note, LINE, break_long_words=False, break_on_hyphens=False)


def describe_models(models: KnownModels) -> Iterator[Part]:
    """Yield the models with what follows from the shapes of their matrices."""
    rows = []
    for known in models.models:
        model = read_architecture(known.config, known.name)
        growing = model.layers - model.windowed_layers
        cache = growing * model.cached(1) * CACHE_BYTES["bf16"] / 1024
        rows.append(
            (
                known.name,
                str(model.layers),
                f"{model.parameters / 1e9:.2f}",
                f"{model.active / 1e9:.2f}",
                f"{cache:.4g}",
                str(model.window or "-"),
                f"{known.repository} ({known.note})" if known.note else known.repository,
            )
        )
    headings = ("MODEL", ">LAYERS", ">10^9", ">A TOKEN", ">KIB/TOKEN", ">WINDOW", "REPOSITORY")
    yield TextTable(headings, rows)


def describe_estimates(estimates: Sequence[ModelEstimate]) -> Iterator[Part]:
    """Yield what is estimated of each accelerator: steps, memory, and what that is off by."""
    for number, estimate in enumerate(estimates):
        wanted, replica = estimate.wanted, estimate.roofline
        sizes = np.unique(np.rint(np.geomspace(1, estimate.batch, num=4)))
        times = replica.step_ms(sizes, wanted.input_tokens + wanted.output_tokens / 2.0)
        rows = [(f"{n:.0f}", f"{t:.2f}") for n, t in zip(sizes, times, strict=True)]
        prompt = estimate.parameters.delta * wanted.input_tokens
        if number:
            yield ""
        yield f"{wanted.name} ({estimate.weights}) on {wanted.cards} x {estimate.card.name}"
        yield ""
        yield TextTable((">REQUESTS", ">STEP MS"), rows)
        yield ""
        yield (
            f"A prompt of {wanted.input_tokens} tokens adds {prompt:.1f} ms. The weights take"
            f" {replica.weights_gb:.1f} GB; {estimate.max_tokens} tokens fit beside them."
        )
    yield from list_warnings(estimates)
