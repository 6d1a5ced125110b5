"""What comes with the package: published figures of models, cards and their data sheets.

See `catalogue.yaml`, `hardware.yaml` and `models.yaml`.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, TypeVar

import yaml

from inferno_operator.cli.offline.manifests import object_name
from inferno_operator.resources import Metadata, Model, ModelSpec, PerformanceData, parse
from inferno_operator.resources.schema import Items, Number, Part
from inferno_optimizer.calibration.roofline import CardFigures
from inferno_optimizer.errors import InputError
from inferno_optimizer.suggestions import alternatives


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

        Raises
        ------
        InputError
            There are none; the message has similar names.
        """
        figures_of_model = [figures for figures in self.figures if figures.model == model]
        if not figures_of_model:
            models = sorted({figures.model for figures in self.figures})
            raise InputError(f"the catalogue has no model {model!r}{alternatives(model, models)}")
        return figures_of_model


def read_catalogue() -> PublishedFigures:
    """Return the catalogue of this version."""
    text = files(__package__).joinpath("catalogue.yaml").read_text(encoding="utf-8")
    return PublishedFigures.model_validate(yaml.safe_load(text))


def model_manifest(name: str, figures: Sequence[Figures]) -> dict[str, Any]:
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

        Raises
        ------
        InputError
            It is not known; the message has similar names.
        """
        return _find_named("--accelerator", name, {card.name: card for card in self.accelerators})

    def error(self, *, experts: bool, several: bool) -> KnownError:
        """What estimates of a kind are off by; of another number of cards if nothing is known."""
        by_cards = {error.several: error for error in self.errors if error.experts == experts}
        return by_cards.get(several) or by_cards[not several]


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

        Raises
        ------
        InputError
            It is not known; the message has similar names.
        """
        by_name = {model.name: model for model in self.models}
        others = {other: model for model in self.models for other in model.names}
        # Messages list the short names first.
        return _find_named("--model", name, {**by_name, **others})


Named = TypeVar("Named", Card, KnownModel)


def _find_named(option: str, name: str, by_name: Mapping[str, Named]) -> Named:
    """The item of this name, which an option gives; the error has similar names."""
    if name not in by_name:
        raise InputError(f"{option}: {name!r} is not known{alternatives(name, list(by_name))}")
    return by_name[name]


def read_hardware() -> KnownHardware:
    """Return the cards of this version."""
    return KnownHardware.model_validate(_read_package_file("hardware.yaml"))


def read_models() -> KnownModels:
    """Return the models of this version."""
    return KnownModels.model_validate(_read_package_file("models.yaml"))


def _read_package_file(name: str) -> object:
    return yaml.safe_load(files(__package__).joinpath(name).read_text(encoding="utf-8"))
