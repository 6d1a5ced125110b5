"""The ConfigMaps of WVA: service classes, unit costs, zero replicas, targets, settings.

What an entry is for is told by its fields: the names of ConfigMaps differ between releases.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from inferno_operator.cli.offline.documents import Document
from inferno_operator.cli.offline.wva.forms import (
    ClassOfService,
    Form,
    OpenPart,
    QueueingSetting,
    UnitCost,
    ZeroSetting,
    read_form,
)
from inferno_operator.controllers.boosters.validation import seconds
from inferno_optimizer.errors import InputError

OURS = re.compile(
    r"wva|variantautoscaling|service-?class|accelerator-?(unit|cost)|scale-to-zero"
    r"|(saturation|capacity)-scaling|queueing-model"
)
"""What the name of a ConfigMap of WVA has in it; others are not looked at."""

SETTING = re.compile(r"[A-Z][A-Z0-9_]+")
"""Names of the settings of its controller."""

TRUE = frozenset({"true", "1"})

DEFAULT = ("", "")
"""The namespace and model of an entry that is for all."""

ModelKey = tuple[str, str]
"""Namespace and model; without a namespace, those of all."""


@dataclass(slots=True)
class WvaSettings:
    """What the ConfigMaps say.

    Attributes
    ----------
    costs
        The accelerators by name.
    classes
        The service classes.
    targets
        Targets by model, from the configuration of the queueing model.
    zero
        Whether models may have no replica.
    interval_s
        Time between two decisions [s].
    notes
        What has no counterpart.
    """

    costs: dict[str, UnitCost] = field(default_factory=dict)
    classes: list[ClassOfService] = field(default_factory=list)
    targets: dict[ModelKey, QueueingSetting] = field(default_factory=dict)
    zero: dict[ModelKey, bool] = field(default_factory=dict)
    interval_s: int = 60
    notes: list[str] = field(default_factory=list)

    def may_be_zero(self, namespace: str, model: str) -> bool:
        """Whether a model may have no replica."""
        keys = ((namespace, model), ("", model), DEFAULT)
        return next((self.zero[key] for key in keys if key in self.zero), False)

    def accelerator_of(self, device: str) -> str:
        """The accelerator with this device; else the name is that of an accelerator."""
        of_device = (name for name, cost in self.costs.items() if cost.device == device)
        return device if device in self.costs else next(of_device, device)


def read_config_maps(documents: Iterable[Document]) -> WvaSettings:
    """Read the ConfigMaps of WVA among some.

    Raises
    ------
    InputError
        A value cannot be read.
    """
    settings = WvaSettings()
    for document in documents:
        if isinstance(document.content, Mapping):
            _add_config_map(settings, document.origin, document.content)
    return settings


def _add_config_map(settings: WvaSettings, origin: str, content: Mapping[str, Any]) -> None:
    metadata = content.get("metadata") or {}
    name = str(metadata.get("name", ""))
    if not OURS.search(name):
        return
    title = "/".join(filter(None, (str(metadata.get("namespace", "")), name)))
    entries = {
        key: _value(f"{origin}: ConfigMap {title}: {key}", text) for key, text in _data(content)
    }
    plain: dict[str, object] = {}
    for key, value in entries.items():
        if isinstance(value, Mapping) and value and all(map(SETTING.fullmatch, map(str, value))):
            plain |= value
        elif SETTING.fullmatch(key) and not isinstance(value, Mapping):
            plain[key] = value
        else:
            entry = _Entry(origin, f"ConfigMap {title}: {key}", key, value)
            _add_entry(settings, entry)
    _add_plain(settings, f"ConfigMap {title}", plain)


def _data(content: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    return ((str(key), str(text)) for key, text in (content.get("data") or {}).items())


def _value(title: str, text: str) -> object:
    """The YAML or JSON in a value."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise InputError(f"{title}: not YAML: {problem}") from error


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of a ConfigMap, and what it is called in messages."""

    origin: str
    title: str
    key: str
    value: object

    @property
    def fields(self) -> Mapping[str, Any]:
        """Its fields; none of what is no object."""
        return self.value if isinstance(self.value, Mapping) else {}

    def read(self, form: type[Form]) -> Form:
        """The entry in a form."""
        try:
            return read_form(form, self.fields, self.origin)
        except InputError as error:
            problem = str(error).partition("object without a name: ")[2]
            raise InputError(f"{self.origin}: {self.title}: {problem}") from error


def _add_entry(settings: WvaSettings, entry: _Entry) -> None:
    """Add an entry by what its fields are for."""
    given = entry.fields
    if "cost" in given:
        cost = entry.read(UnitCost)
        settings.costs[entry.key] = cost
        _note(settings, entry, cost)
    elif "data" in given:
        service_class = entry.read(ClassOfService)
        settings.classes.append(service_class)
        _note(settings, entry, service_class)
        for target in service_class.data:
            _note(settings, entry, target, f"{target.model}: ")
    elif given.keys() & {"enable_scale_to_zero", "retention_period"}:
        zero = entry.read(ZeroSetting)
        if zero.enable_scale_to_zero is not None:
            settings.zero[zero.namespace, zero.model_id] = zero.enable_scale_to_zero
        _note(settings, entry, zero)
    elif given.keys() & {"targetTTFT", "targetITL", "sloMultiplier"}:
        queueing = entry.read(QueueingSetting)
        settings.targets[queueing.namespace, queueing.model_id] = queueing
        _note(settings, entry, queueing)
    else:
        fields = f": {', '.join(map(str, given))}" if given else ""
        settings.notes.append(f"{entry.title}{fields}: no counterpart")


def _note(settings: WvaSettings, entry: _Entry, part: OpenPart, path: str = "") -> None:
    settings.notes += (
        f"{entry.title}: {path}{name}: no counterpart" for name in part.without_counterpart
    )


def _add_plain(settings: WvaSettings, title: str, plain: Mapping[str, object]) -> None:
    """Add the settings of the controller."""
    rest = dict(plain)
    interval = seconds(str(rest.get("GLOBAL_OPT_INTERVAL", "")))
    if interval is not None and interval >= 1:
        settings.interval_s = round(interval)
        del rest["GLOBAL_OPT_INTERVAL"]
    if "WVA_SCALE_TO_ZERO" in rest:
        enabled = str(rest.pop("WVA_SCALE_TO_ZERO")).lower() in TRUE
        settings.zero.setdefault(DEFAULT, enabled)
    if rest:
        names = ", ".join(sorted(map(str, rest)))
        settings.notes.append(
            f"{title}: {names}: settings of the WVA controller; this operator reads INFERNO_*"
            " variables"
        )
