"""What is known of cards in general: their resources, the labels that name them, their taints."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from importlib.resources import files

import yaml
from pydantic import Field

from inferno_operator.resources.schema import Items, NonEmptyText, Part

Words = frozenset[str]

GIGABYTES = re.compile(r"(?<=\d)GB$")
MEBIBYTES = 1024


class Label(Part):
    """A label whose value names the cards of a node; see `catalogue.yaml`."""

    label: NonEmptyText
    memory: str = ""
    words: dict[str, str] = Field(default_factory=dict)

    def read(self, labels: Mapping[str, str]) -> Words:
        """Return the words for the cards of a node; none if it does not have the label."""
        value = labels.get(self.label, "")
        if not value:
            return frozenset()
        named = [words for pattern, words in self.words.items() if re.fullmatch(pattern, value)]
        memory = labels.get(self.memory, "")
        if memory.isdecimal():
            named.append(str(round(int(memory) / MEBIBYTES)))
        return words_of(" ".join((value, *named)))


class CardCatalogue(Part):
    """What is known of cards in general; see `catalogue.yaml`."""

    resources: Items[NonEmptyText]
    labels: Items[Label]
    tolerated: Items[NonEmptyText]

    @cached_property
    def tolerated_keys(self) -> frozenset[str]:
        """The keys of the tolerated taints."""
        return frozenset((*self.tolerated, *self.resources))

    def is_card(self, resource: str) -> bool:
        """Whether a resource is a card."""
        return any(fnmatchcase(resource, pattern) for pattern in self.resources)


def words_of(text: str) -> Words:
    """Return the words of a name in capitals; of `80GB` only the number."""
    words = re.findall(r"[A-Z0-9.]+", text.upper())
    return frozenset(GIGABYTES.sub("", word) for word in words)


def built_in() -> CardCatalogue:
    """Return the catalogue of the operator."""
    text = files(__package__).joinpath("catalogue.yaml").read_text()
    return CardCatalogue.model_validate(yaml.safe_load(text))
