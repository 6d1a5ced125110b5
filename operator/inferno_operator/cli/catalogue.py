"""What comes with the package: published figures of models, data sheets of cards, and estimates.

See `catalogue.yaml`, `hardware.yaml` and `models.yaml`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from textwrap import wrap
from typing import Any, TypeVar

import numpy as np
import yaml

from inferno_operator.cli.offline.manifests import object_name
from inferno_operator.cli.offline.model_config import find_stored_precision, read_architecture
from inferno_operator.cli.tables.table import Part as Printed
from inferno_operator.cli.tables.table import TextTable
from inferno_operator.resources import (
    Metadata,
    Model,
    ModelSpec,
    PerformanceData,
    StepParms,
    parse,
)
from inferno_operator.resources.schema import Items, Number, Part
from inferno_optimizer.calibration.roofline import (
    CACHE_BYTES,
    MAX_REQUESTS,
    PRECISIONS,
    CardFigures,
    Roofline,
)
from inferno_optimizer.errors import InputError
from inferno_optimizer.suggestions import alternatives
from inferno_optimizer.system import StepParameters


class Publisher(Part):
    """Who published figures."""

    title: str
    url: str
    date: str
    """When it was read."""
    note: str
    """How the figures came about, as far as it is known."""


class Figures(Part):
    """Figures of one model from one source."""

    source: str
    model: str
    engine: str
    data: Items[PerformanceData]


class PublishedFigures(Part):
    """Sources by key, and their figures."""

    sources: dict[str, Publisher]
    figures: Items[Figures]

    def of(self, model: str) -> list[Figures]:
        """Return the figures of a model.

        Raises InputError if there are none; the message has similar names.
        """
        figures_of_model = [figures for figures in self.figures if figures.model == model]
        if not figures_of_model:
            models = sorted({figures.model for figures in self.figures})
            raise InputError(f"the catalogue has no model {model!r}{alternatives(model, models)}")
        return figures_of_model

    def list_steps(self, repository: str, weights: str) -> list[Figures]:
        """Return the figures with `stepParms` of a repository.

        `weights` is a precision other than that of the repository; "": there is none. Other figures
        hold for one length of requests, and most are of old engines.
        """
        name = f"{repository}-{weights.upper()}" if weights else repository
        return [f for f in self.figures if f.model == name and all(d.step_parms for d in f.data)]


def read_catalogue() -> PublishedFigures:
    """Return the catalogue of this version."""
    text = (
        files("inferno_operator.cli.offline").joinpath("catalogue.yaml").read_text(encoding="utf-8")
    )
    return PublishedFigures.model_validate(yaml.safe_load(text))


def build_published_model(name: str, figures: Sequence[Figures]) -> dict[str, Any]:
    """Return the manifest of a Model with the figures, of which each accelerator is used once."""
    published = {"origin": "published"}
    data = {
        item.acc: item.model_copy(update=published)
        for group in reversed(figures)
        for item in reversed(group.data)
    }
    spec = ModelSpec.json_of(name=name, data=[item.to_json() for item in reversed(data.values())])
    manifest = Model.json_of(metadata=Metadata.json_of(name=object_name(name)), spec=spec)
    parse(manifest)
    return manifest


class DataSheet(Part):
    """Who publishes figures of a card, and when."""

    title: str
    date: str
    note: str = ""


class Card(Part):
    """A card as its vendor publishes it; units as in `hardware.yaml`."""

    name: str
    source: str
    memory: Number
    bandwidth: Number
    flops16: Number
    flops8: Number | None = None
    link: Number
    power: Number | None = None
    measured: bool = False
    price: Number | None = None
    """Of an hour of one card on demand [USD]."""
    priced: str = ""
    """The source of the price."""

    @property
    def figures(self) -> CardFigures:
        """What the optimizer computes with."""
        return CardFigures(self.memory, self.bandwidth, self.flops16, self.flops8, self.link)


class KnownError(Part):
    """The errors of estimates of models with or without experts, on one or several cards."""

    experts: bool
    several: bool
    entries: int
    median: int
    """Median error of the entries [%]."""
    largest: int
    """Largest error of the entries [%]."""

    @property
    def kind(self) -> str:
        """What it is the error of."""
        place = "several cards" if self.several else "one card"
        return f"models {'with' if self.experts else 'without'} experts on {place}"


class KnownHardware(Part):
    """Cards, their sources, and what estimates are off by."""

    sources: dict[str, DataSheet]
    accelerators: Items[Card]
    errors: Items[KnownError]

    def card(self, name: str) -> Card:
        """Return a card.

        Raises InputError if it is not known; the message has similar names.
        """
        return _find_named(
            "--accelerator",
            name,
            {card.name: card for card in self.accelerators},
            "`inferno size --card` takes any other card",
        )

    def error(self, *, experts: bool, several: bool) -> KnownError:
        """What estimates of a kind are off by."""
        return next(e for e in self.errors if (e.experts, e.several) == (experts, several))


class KnownModel(Part):
    """A model: where it is published, its parameters (all, of a token) and its config.json.

    `also` are other models of the same shape, and `without` says what the estimate leaves out.
    """

    name: str
    also: Items[str] = ()
    repository: str
    without: str = ""
    parameters: Items[Number]
    config: dict[str, Any]

    @property
    def note(self) -> str:
        """What a reader has to know of the name, or nothing."""
        same = f"and {', '.join(self.also)}" if self.also else ""
        return same or (f"without {self.without}" if self.without else "")

    @property
    def names(self) -> Sequence[str]:
        """Its own name first, those of models of its shape, and its address on Hugging Face."""
        return (self.name, *self.also, self.repository)


class KnownModels(Part):
    """The models."""

    models: Items[KnownModel]

    def model(self, name: str) -> KnownModel:
        """Return a model, by its name, that of a model of its shape, or its repository.

        Raises InputError if it is not known; the message has similar names.
        """
        by_name = {model.name: model for model in self.models}
        others = {other: model for model in self.models for other in model.names}
        # Messages list the short names first.
        return _find_named(
            "model", name, {**by_name, **others}, "any other needs --model-config config.json"
        )


Named = TypeVar("Named", Card, KnownModel)


def _find_named(option: str, name: str, by_name: Mapping[str, Named], way_on: str) -> Named:
    """The item of this name, which an option gives, in either case; the error has similar names."""
    in_either_case = {known.casefold(): item for known, item in by_name.items()}
    found = by_name.get(name) or in_either_case.get(name.casefold())
    if found is None:
        near = alternatives(name, list(by_name))
        raise InputError(f"{option}: {name!r} is not known{near}; {way_on}")
    return found


def read_hardware() -> KnownHardware:
    """Return the cards of this version."""
    return KnownHardware.model_validate(_read_package_file("hardware.yaml"))


def read_models() -> KnownModels:
    """Return the models of this version."""
    return KnownModels.model_validate(_read_package_file("models.yaml"))


def _read_package_file(name: str) -> object:
    return yaml.safe_load(
        files("inferno_operator.cli.offline").joinpath(name).read_text(encoding="utf-8")
    )


DIGITS = 4  # significant digits of what is printed; the error is in the second one


class DoesNotFitError(InputError):
    """A model does not fit on its cards; `why` says it without their name."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place}: {why}")
        self.why = why


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """What an estimate is asked for.

    `name`: of the model; `config`, `origin`: its config.json, and where it is from; `cards`:
    Cards of a replica; `weights`, `cache`: precision of weights and cache; none: of the weights
    as the config.json has it; `input_tokens`, `output_tokens`: mean tokens of requests.
    """

    name: str
    config: Mapping[str, Any]
    origin: str
    cards: int
    weights: str
    cache: str
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ModelEstimate:
    """Performance data of a model on a card, which nobody has measured.

    `batch` requests of the wanted lengths fit into a cache of `max_tokens`; `error` is what such
    estimates are off by. `measured` is what others have measured of the same, and replaces it.
    """

    wanted: EstimateRequest
    card: Card
    weights: str
    roofline: Roofline
    parameters: StepParameters
    batch: int
    max_tokens: int
    error: KnownError
    measured: PerformanceData | None = None

    def warnings(self) -> Iterator[str]:
        """What a reader has to know of the figures, a line each."""
        yield "Estimated from data sheets, not measured: calibrate with `inferno calibrate`."
        error = self.error
        yield (
            f"Expected error ({error.entries} published measurements of {error.kind}):"
            f" median {error.median} %, worst {error.largest} %."
        )

    def data(self) -> Mapping[str, object]:
        """The figures, as a Model has them for an accelerator."""
        if self.measured is not None:
            return {**self.measured.to_json(), "origin": "published"}
        rounded = {name: _round(value) for name, value in self._step_parms().items()}
        return PerformanceData.json_of(
            acc=self.card.name,
            acc_count=self.wanted.cards,
            step_parms=StepParms.json_of(**rounded),
            max_batch_size=self.batch,
            at_tokens=self.wanted.output_tokens,
            max_tokens=self.max_tokens,
            max_num_seqs=MAX_REQUESTS,
            origin="estimated",
            error_percent=self.error.median,
        )

    def _step_parms(self) -> Mapping[str, float]:
        steps = self.parameters
        return {
            "alpha": steps.alpha,
            "kappa": steps.kappa,
            "delta": steps.delta,
            "budget": int(steps.budget),
            "overhead": steps.overhead,
            "min_in_tokens": steps.min_input_tokens,
            "max_in_tokens": steps.max_input_tokens,
            "min_out_tokens": steps.min_output_tokens,
            "max_out_tokens": steps.max_output_tokens,
        }


def estimate(wanted: EstimateRequest, card: Card, hardware: KnownHardware) -> ModelEstimate:
    """Estimate the performance of a model on a card.

    Raises InputError if a precision is not known, or the config.json has a mistake, and
    DoesNotFitError if the weights, or one request beside them, do not fit.
    """
    model = read_architecture(wanted.config, wanted.origin)
    weights = wanted.weights or find_stored_precision(wanted.config)
    precision = replace(
        _require_known(PRECISIONS, weights, "--dtype"),
        cache=_require_known(CACHE_BYTES, wanted.cache, "--kv-dtype"),
    )
    roofline = Roofline(model, precision, card.figures, wanted.cards)
    prompt, output = wanted.input_tokens, wanted.output_tokens
    place = f"{wanted.name} on {wanted.cards} x {card.name}"
    try:
        room = roofline.max_tokens(prompt + output)
    except InputError as problem:
        raise DoesNotFitError(place, str(problem)) from problem
    batch = min(room // (prompt + output), MAX_REQUESTS)
    if batch < 1:
        raise DoesNotFitError(
            place,
            f"no request of {prompt + output} tokens fits into the cache, which has room for"
            f" {room}",
        )
    parameters = roofline.parameters(prompt, output, batch)
    error = hardware.error(experts=model.experts > 0, several=wanted.cards > 1)
    return ModelEstimate(wanted, card, weights, roofline, parameters, batch, room, error)


def spread_counts(cards: Sequence[str], counts: Sequence[int]) -> Sequence[int]:
    """How many cards a replica has on each accelerator: one count for all, or one for each.

    Raises InputError if there is another number of counts, or an accelerator is named twice.
    """
    if twice := next((card for card in cards if cards.count(card) > 1), None):
        raise InputError(f"--accelerator: {twice} is named twice; a Model has its figures once")
    if len(counts) not in (1, len(cards)):
        raise InputError(
            f"--accelerator-count: {len(counts)} counts for {len(cards)} accelerators;"
            " give one for all, or one for each"
        )
    return counts if len(counts) == len(cards) else tuple(counts) * len(cards)


def build_estimated_model(estimates: Sequence[ModelEstimate]) -> dict[str, Any]:
    """The manifest of a Model with its figures on each accelerator; there is one at least."""
    name = estimates[0].wanted.name
    manifest = Model.json_of(
        metadata=Metadata.json_of(name=object_name(name)),
        spec=ModelSpec.json_of(name=name, data=[estimate.data() for estimate in estimates]),
    )
    parse(manifest)
    return manifest


def list_warnings(estimates: Sequence[ModelEstimate]) -> Sequence[str]:
    """What a reader has to know of the figures, a line each and none twice."""
    lines = dict.fromkeys(line for estimate in estimates for line in estimate.warnings())
    cards = list(dict.fromkeys(e.card.name for e in estimates if not e.card.measured))
    unmeasured = f"None of the published measurements is of {', '.join(cards)}."
    return (*lines, unmeasured) if cards else tuple(lines)


def _require_known(known: Mapping[str, Any], name: str, option: str) -> Any:  # noqa: ANN401 - of either table
    if name not in known:
        raise InputError(f"{option}: {name!r} is not known{alternatives(name, list(known))}")
    return known[name]


def _round(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")


# Longest line of a note about a source [characters]; names and addresses are never broken.
LINE = 90

START = "These figures are a start: calibrate your own with `inferno calibrate`."


def describe_catalogue(catalogue: PublishedFigures) -> Iterator[Printed]:
    """Yield the models, and for each its accelerators and its source."""
    rows = [
        (figures.model, figures.engine, ", ".join(d.acc for d in figures.data), figures.source)
        for figures in catalogue.figures
    ]
    yield TextTable(("MODEL", "ENGINE", "ACCELERATORS", "SOURCE"), rows)
    yield ""
    yield START


def describe_figures(catalogue: PublishedFigures, groups: Sequence[Figures]) -> Iterator[Printed]:
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


def describe_hardware(hardware: KnownHardware) -> Iterator[Printed]:
    """Yield the cards, and their sources."""
    rows = []
    for card in hardware.accelerators:
        figures = (card.memory, card.bandwidth, card.flops16, card.flops8, card.link, card.power)
        cells = ["-" if figure is None else f"{figure:g}" for figure in (*figures, card.price)]
        rows.append((card.name, *cells, ", ".join(filter(None, (card.source, card.priced)))))
    figures_of = (">GB", ">GB/S", ">TFLOP/S", ">8 BIT", ">LINK", ">W", ">USD/H")
    yield TextTable(("ACCELERATOR", *figures_of, "SOURCE"), rows)
    yield ""
    for key, sheet in hardware.sources.items():
        yield from _wrap("; ".join(filter(None, (f"{key}: {sheet.title}", sheet.date, sheet.note))))


def _wrap(note: str) -> list[str]:
    return wrap(note, LINE, break_long_words=False, break_on_hyphens=False)


def describe_models(models: KnownModels) -> Iterator[Printed]:
    """Yield the models with what follows from the shapes of their matrices."""
    rows = []
    for known in models.models:
        model = read_architecture(known.config, known.name)
        growing = model.attention_layers - model.windowed_layers
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


def describe_estimates(estimates: Sequence[ModelEstimate]) -> Iterator[Printed]:
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
