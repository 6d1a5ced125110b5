"""What is known of cards in general: their resources, the labels that name them, their taints."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from importlib.resources import files
from typing import Protocol

import yaml
from pydantic import Field

from inferno_operator.resources.schema import Items, NonEmptyText, Part

Words = frozenset[str]

GIGABYTES = re.compile(r"(?<=\d)GB$")
MEBIBYTES = 1024

SHARED = "SHARED"
"""The word for cards that several pods use at a time."""

INSTANCE_TYPE = "node.kubernetes.io/instance-type"

PCI = re.compile(
    r"feature\.node\.kubernetes\.io/pci-((03|12)\w*|10de|1002|8086|1da3|19e5|cabc)\.present"
)
"""Labels of Node Feature Discovery for displays and accelerators, or for their vendors."""

PCI_OF_CARDS = re.compile(r"feature\.node\.kubernetes\.io/pci-(0302|12)\w*\.present")
"""Those of accelerators alone."""


class CardNode(Protocol):
    """What a node says of its cards."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations."""

    @property
    def cards(self) -> Mapping[str, int]:
        """What is allocatable, by resource."""


class Label(Part):
    """A label whose value names the cards of a node; see `catalogue.yaml`."""

    label: NonEmptyText
    memory: str = ""
    words: dict[str, str] = Field(default_factory=dict)
    is_code: bool = False
    is_by_hand: bool = False

    def names_cards(self, labels: Mapping[str, str]) -> bool:
        """Whether a node has the label with a value that only nodes with cards have."""
        value = labels.get(self.label, "")
        is_code_of_cards = self.is_code and self.read(labels) > words_of(value)
        return bool(value) and not self.is_by_hand and (not self.is_code or is_code_of_cards)

    @cached_property
    def _known(self) -> dict[tuple[str, str], Words]:
        """The words by value and memory: most nodes are like others."""
        return {}

    def read(self, labels: Mapping[str, str]) -> Words:
        """Return the words for the cards of a node; none if it does not have the label."""
        value = labels.get(self.label, "")
        if not value:
            return frozenset()
        key = value, labels.get(self.memory, "")
        if key not in self._known:
            self._known[key] = self._read(*key)
        return self._known[key]

    def _read(self, value: str, memory: str) -> Words:
        matches = ((re.fullmatch(pattern, value), words) for pattern, words in self.words.items())
        named = [match.expand(words) for match, words in matches if match]
        if memory.isdecimal():
            named.append(str(round(int(memory) / MEBIBYTES)))
        return words_of(" ".join((value, *named)))


class PartRule(Part):
    """What says that a resource of a node counts parts of cards; see `catalogue.yaml`."""

    resource: str = "*"
    label: str = ""
    annotation: str = ""
    value: str
    words: str

    def read(self, node: CardNode, resource: str) -> str:
        """Return the words for the parts; "" if the node does not say that they are some."""
        if not fnmatchcase(resource, self.resource):
            return ""
        value = resource
        if self.label:
            value = node.labels.get(self.label_of(resource), "")
        elif self.annotation:
            value = node.annotations.get(self._annotation_of(node, resource), "")
        match = re.fullmatch(self.value, value, re.DOTALL) if value else None
        return match.expand(self.words) if match else ""

    def evidence(self, node: CardNode, resource: str) -> str:
        """Return what the node says, as a message names it."""
        if self.annotation:
            return f"annotation {self._annotation_of(node, resource)}"
        label = self.label_of(resource)
        return f"{label}={node.labels[label]}" if label else resource

    def label_of(self, resource: str) -> str:
        """Return the label that is read for a resource; "" if none is."""
        return self.label.replace("{resource}", resource)

    def _annotation_of(self, node: CardNode, resource: str) -> str:
        """Return the annotation that is read; "" if there is none.

        A pattern with an open end is for annotations that end with the name of their resource.
        """
        end = f"-{resource.partition('/')[2]}" if self.annotation.endswith("*") else ""
        names = (name for name in node.annotations if fnmatchcase(name, self.annotation))
        return min((name for name in names if name.endswith(end)), default="")


class CardNumber(Part):
    """A label with the number of cards of a node; see `catalogue.yaml`."""

    resource: NonEmptyText
    label: NonEmptyText
    separator: str = ""
    values: dict[str, str] = Field(default_factory=dict)

    def evidence(self, node: CardNode, resource: str) -> str:
        """Return that a node has more of a resource than cards; "" if it has not."""
        text, cards = node.labels.get(self.label, ""), node.cards.get(resource, 0)
        if not text or not fnmatchcase(resource, self.resource):
            return ""
        number = self._read(text)
        is_more = number.isdecimal() and 0 < int(number) < cards
        return f"{self.label}={text}, and {cards} are allocatable" if is_more else ""

    def _read(self, text: str) -> str:
        if self.separator:
            return str(len(text.split(self.separator)))
        matches = ((re.fullmatch(pattern, text), number) for pattern, number in self.values.items())
        known = (match.expand(number) for match, number in matches if match)
        return next(known, "") if self.values else text


@dataclass(frozen=True, slots=True)
class CardParts:
    """The words for cards that are parts, which their type must have; and what says so."""

    words: Words = frozenset()
    evidence: str = ""


class Variants(Part):
    """Words that make a card of a series another one; see `catalogue.yaml`."""

    of: NonEmptyText
    words: Items[NonEmptyText]


class CardCatalogue(Part):
    """What is known of cards in general; see `catalogue.yaml`."""

    resources: Items[NonEmptyText]
    others: Items[NonEmptyText]
    again: dict[str, str]
    labels: Items[Label]
    variants: Items[Variants]
    named: Items[NonEmptyText]
    parts: Items[PartRule]
    numbers: Items[CardNumber]
    tolerated: Items[NonEmptyText]

    @cached_property
    def annotations(self) -> frozenset[str]:
        """The annotations of nodes that are read, as patterns."""
        return frozenset(rule.annotation for rule in self.parts if rule.annotation)

    def labels_of(self, resource: str) -> frozenset[str]:
        """Return the labels of nodes that are read for a resource."""
        naming = {name for label in self.labels for name in (label.label, label.memory)}
        parts = {rule.label_of(resource) for rule in self.parts}
        return frozenset(naming | parts | {number.label for number in self.numbers}) - {""}

    @cached_property
    def must_be_named(self) -> Words:
        """Words that make a card another one: its type must have them."""
        return frozenset(self.named)

    def needed(self, words: Words) -> Words:
        """Return the words of a card that its type must have."""
        variants = (each.words for each in self.variants if each.of in words)
        return words & self.must_be_named.union(*variants)

    @cached_property
    def tolerated_keys(self) -> frozenset[str]:
        """The keys of the tolerated taints."""
        return frozenset((*self.tolerated, *self.resources))

    def is_card(self, resource: str) -> bool:
        """Whether a resource is a card."""
        return self._is_of(resource)[0]

    def is_other(self, node: CardNode, resource: str) -> bool:
        """Whether a resource of a node is known to be no card, or counts its cards again."""
        return self._is_of(resource)[1] or self.again.get(resource) in node.cards

    def _is_of(self, resource: str) -> tuple[bool, bool]:
        """Whether a resource is a card, and whether it is known to be none."""
        if resource not in self._kinds:
            is_other = _matches(resource, self.others)
            self._kinds[resource] = not is_other and _matches(resource, self.resources), is_other
        return self._kinds[resource]

    @cached_property
    def _kinds(self) -> dict[str, tuple[bool, bool]]:
        """What resources are, by name: all nodes have the same few."""
        return {}

    def parts_of(self, node: CardNode, resource: str) -> CardParts:
        """Return whether cards of a node are parts of cards, by all that the node says."""
        words: set[str] = set()
        evidence: list[str] = []
        for rule in self.parts:
            if found := rule.read(node, resource):
                words |= words_of(found)
                evidence.append(rule.evidence(node, resource))
        for label in self.labels:
            if found_words := label.read(node.labels) & self.must_be_named:
                words |= found_words
                evidence.append(f"{label.label}={node.labels[label.label]}")
        for number in self.numbers if words <= {SHARED} else ():  # parts are more than cards
            if found := number.evidence(node, resource):
                words.add(SHARED)
                evidence.append(found)
        return CardParts(frozenset(words), "; ".join(evidence[:2]))

    def has_card_label(self, node: CardNode) -> bool:
        """Whether a label of discovery or of a cloud says that a node has cards."""
        named = any(label.names_cards(node.labels) for label in self.labels)
        return named or any(map(PCI_OF_CARDS.fullmatch, node.labels))

    def best_label(self, node: CardNode, resource: str) -> str:
        """Return the label that tells most about the cards of a node, as name=value, or ""."""
        labels = node.labels
        named = next((label.label for label in self.labels if labels.get(label.label)), "")
        known = not resource or resource in self.resources or named != INSTANCE_TYPE
        if named and known:
            return f"{named}={labels[named]}"
        vendor = resource.partition("/")[0]
        own = [name for name in labels if name.partition("/")[0].endswith(vendor)]
        ranked = sorted(own, key=lambda name: (_rank(name), name))
        best = next(filter(None, (*ranked, named, _pci(labels))), "")
        return f"{best}={labels[best]}" if best else ""


def _matches(resource: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(resource, pattern) for pattern in patterns)


def _rank(label: str) -> int:
    """Return how little the name of a label promises about the cards."""
    words = ("product", "model", "name", "class", "family", "type", "chip", "device")
    return next((i for i, word in enumerate(words) if word in label.lower()), len(words))


def _pci(labels: Iterable[str]) -> str:
    """Return the label that names the vendor of a display or accelerator by its PCI class."""
    return min((name for name in labels if PCI.fullmatch(name)), default="")


def words_of(text: str) -> Words:
    """Return the words of a name in capitals; of `80GB` only the number."""
    words = re.findall(r"[A-Z0-9.]+", text.upper())
    return frozenset(GIGABYTES.sub("", word) for word in words)


def read_built_in_cards() -> CardCatalogue:
    """Return the catalogue of the operator."""
    text = files(__package__).joinpath("catalogue.yaml").read_text()
    return CardCatalogue.model_validate(yaml.safe_load(text))
