"""Performance parameters that others have published; see `catalogue.yaml`."""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import yaml

from inferno_operator.cli.offline.manifests import object_name
from inferno_operator.resources import Metadata, Model, ModelSpec, PerformanceData, parse
from inferno_operator.resources.schema import Items, Part
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
