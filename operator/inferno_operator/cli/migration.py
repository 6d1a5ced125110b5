"""Objects of llm-d's WVA -> our objects, and a line for what has no counterpart; pure.

WVA scales variants: workloads that serve a model, each on one accelerator. A VariantAutoscaling
describes one variant (`accelerator`, `variantProfile`), or a model with several accelerators
(`modelProfile`); in its newest form it has neither, and an annotated autoscaler takes its place.
ConfigMaps have costs, classes and settings. The variants of a model in a namespace become one
Server with a workload for each accelerator.
"""

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import pairwise
from operator import itemgetter
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AllowInfNan, BeforeValidator, ConfigDict, Field, ValidationError

from inferno_operator.cli.offline.documents import Document
from inferno_operator.cli.offline.manifests import count_others, object_name
from inferno_operator.controllers.boosters.validation import parse_duration
from inferno_operator.controllers.capacity.catalogue import CardCatalogue, read_built_in_cards
from inferno_operator.resources import API_VERSION, Metadata, parse
from inferno_operator.resources.parsing import bad_manifest
from inferno_operator.resources.schema import (
    Items,
    NonEmptyText,
    NonNegativeInteger,
    Part,
    PositiveInteger,
)
from inferno_operator.runtime.texts import join_names
from inferno_optimizer.errors import InputError
from inferno_optimizer.suggestions import alternatives

Manifest = dict[str, Any]
Form = TypeVar("Form", bound=Part)

MODEL_ID, COST = "llm-d.ai/model-id", "llm-d.ai/variant-cost"
ROLE, ACCELERATOR = "llm-d.ai/role", "inference.optimization/acceleratorName"

# What the name of a ConfigMap of WVA has in it; names differ between releases.
OURS = re.compile(
    r"wva|variantautoscaling|service-?class|accelerator-?(unit|cost)|scale-to-zero"
    r"|(saturation|capacity)-scaling|queueing-model"
)
VARIABLE = re.compile(r"\$[({]?(\w+)[)}]?")

# Options of vLLM, SGLang and TensorRT-LLM; the numbers of cards are multiplied.
MODEL_OPTIONS = ("served-model-name", "model", "model-path")
BATCH_OPTIONS = ("max-num-seqs", "max-running-requests", "max-batch-size")
CARD_OPTIONS = (
    *("tensor-parallel-size", "tp-size", "tp", "pipeline-parallel-size", "pp-size", "pp"),
    *("data-parallel-size", "dp-size", "dp"),
)

# What an entry about a model has at least one of.
MODEL_SETTINGS = {
    *("enable_scale_to_zero", "retention_period", "targetTTFT", "targetITL", "sloMultiplier")
}

PHASES = ("decode", "prefill")
LEAST_IMPORTANT, DEFAULT_CLASS = 100, "Default"
# What WVA takes for the cost of a replica that has none, and for its largest batch, which holds
# for requests of any length.
DEFAULT_COST, DEFAULT_BATCH, ANY_LENGTH = 10.0, 256, 2**20


def migrate(
    documents: Sequence[Document], accelerators: Sequence[str] = ()
) -> tuple[list[Manifest], list[str]]:
    """Return our objects for those of WVA, and a line for each thing that has no counterpart.

    There are no objects if each workload is left out; the lines say why.

    `documents`: objects of WVA, and the workloads; `accelerators`: `WORKLOAD=NAME` for one
    workload, or a name for all that are on no known accelerator. Raises InputError if an object
    of WVA cannot be read, or there is none; or an accelerator is for a workload that does not
    exist.
    """
    notes: list[str] = []
    variants = _read_variants(documents, notes)
    named = dict(option.rsplit("=", 1) for option in accelerators if "=" in option)
    otherwise = next((option for option in reversed(accelerators) if "=" not in option), "")
    known = [variant.workload.name for variant in variants]
    for workload in named.keys() - {*known}:
        near = alternatives(workload, known)
        raise InputError(f"--accelerator: no workload is named {workload!r}{near}")
    if not variants:
        raise InputError(
            "nothing to migrate: no VariantAutoscaling, and no HorizontalPodAutoscaler or"
            ' ScaledObject with the annotation llm-d.ai/managed: "true", but'
            f" {count_others(documents)}"
        )
    settings = _read_settings(documents)
    manifests: list[Manifest] = []
    for namespace in sorted({variant.namespace for variant in variants}):
        migration = _Migration(namespace, settings, notes)
        for variant in (v for v in variants if v.namespace == namespace):
            device = named.get(variant.workload.name) or variant.accelerator or variant.hint
            migration.add(variant, device or otherwise)
        manifests += migration.build_objects()
    for manifest in manifests:
        parse(manifest)
    return manifests, [*dict.fromkeys(notes), *settings.notes]


# What WVA's objects say: fields with a counterpart; others are kept by name, to tell of them.


def _read_number(value: object) -> object:
    """Return the number of a text, as WVA often writes them; all else as it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Figure = Annotated[float, AllowInfNan(False), Field(ge=0), BeforeValidator(_read_number)]
Count = NonNegativeInteger | None


class _OpenPart(Part):
    model_config = ConfigDict(extra="allow")

    def list_unknown(self, title: str) -> list[str]:
        return [f"{title}{name}: no counterpart" for name in self.model_extra or ()]


class _ScaleTarget(Part):
    api_version: str = "apps/v1"
    kind: str = "Deployment"
    name: NonEmptyText


class _Profile(Part):
    """How a replica performs on an accelerator; that of a single variant does not name it."""

    acc: NonEmptyText | None = None
    acc_count: PositiveInteger | None = None
    perf_parms: dict[str, dict[str, Figure]] = Field(default_factory=dict)
    max_batch_size: PositiveInteger | None = None


class _ScalerSpec(_OpenPart):
    """The fields of a VariantAutoscaling, a HorizontalPodAutoscaler and a ScaledObject."""

    scale_target_ref: _ScaleTarget | None = None
    min_replicas: Count = None
    max_replicas: Count = None
    min_replica_count: Count = None
    max_replica_count: Count = None
    model_id: Annotated[str, Field(alias="modelID")] = ""
    accelerator: NonEmptyText | None = None
    accelerator_type: NonEmptyText | None = None
    accelerator_count: PositiveInteger | None = None
    variant_profile: _Profile | None = None
    model_profile: dict[str, Items[_Profile]] = Field(default_factory=dict)
    variant_cost: Figure | None = None
    slo_class_ref: dict[str, str] = Field(default_factory=dict)  # WVA takes a class with the model


class _Scaler(Part):
    metadata: Metadata
    spec: _ScalerSpec


class _UnitCost(_OpenPart):
    """The device of an accelerator, and its cost [cents/hour]."""

    device: str = ""
    cost: Figure


class _ModelTarget(_OpenPart):
    """The targets of a model in a class [ms]."""

    model: NonEmptyText
    slo_tpot: Annotated[Figure | None, Field(alias="slo-tpot")] = None
    slo_ttft: Annotated[Figure | None, Field(alias="slo-ttft")] = None


class _ClassOfService(_OpenPart):
    name: NonEmptyText
    priority: NonNegativeInteger = 0
    data: Items[_ModelTarget]


class _ModelSetting(_OpenPart):
    """Whether a model may have no replica, or its targets of the queueing model [ms]."""

    model_id: Annotated[str, Field(alias="model_id")] = ""
    namespace: str = ""
    enable_scale_to_zero: Annotated[bool | None, Field(alias="enable_scale_to_zero")] = None
    target_ttft: Annotated[Figure, Field(alias="targetTTFT")] = 0
    target_itl: Annotated[Figure, Field(alias="targetITL")] = 0


def _read_form(
    form: type[Form], content: Mapping[str, object], origin: str, entry: str = ""
) -> Form:
    """Read an object of a file, or an entry of one; a refusal names file, object and field."""
    try:
        return form.model_validate(content, by_alias=True, by_name=False)
    except ValidationError as invalid:
        problem = str(bad_manifest(content, invalid))
        if entry:
            problem = f"{entry}: {problem.partition('object without a name: ')[2]}"
        raise InputError(f"{origin}: {problem}") from invalid


def _as_mapping(value: object, *path: str) -> Mapping[str, Any]:
    """Return the object at a path of keys; an empty one where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _make_title(content: Mapping[str, Any]) -> str:
    metadata = _as_mapping(content, "metadata")
    name = "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))
    return f"{content.get('kind')} {name}"


# Variants


@dataclass(frozen=True, slots=True)
class _Variant:
    """A workload that serves a model, and what its objects tell; a default is not told.

    `title` is the object that describes it, for messages. It runs on `accelerator`, or on the
    `hint` of a label that pods need not have; `count` are its accelerators, `cost` is that of a
    replica in whatever unit, and `least` and `most` bound its `replicas`. `selector` are the labels
    of nodes that its pods ask for; `cards` those that the pods of a replica ask for. The command of
    its engine says as what it is `served`, with which `batch`, and on how many cards.
    """

    title: str
    namespace: str
    workload: _ScaleTarget
    model: str = ""
    accelerator: str = ""
    hint: str = ""
    count: int = 0
    cost: float | None = None
    least: int | None = None
    most: int | None = None
    replicas: int | None = None
    profiles: tuple[_Profile, ...] = ()
    selector: Mapping[str, str] | None = None
    cards: int = 0
    served: str = ""
    batch: int = 0
    batch_option: str = ""
    command_cards: int = 0
    card_options: str = ""

    @property
    def engine(self) -> str:
        return f"{self.workload.kind} {self.workload.name}"

    def fill_missing(self, other: "_Variant") -> "_Variant":
        missing = (f.name for f in fields(self) if getattr(self, f.name) == f.default)
        return replace(self, **{name: getattr(other, name) for name in missing})


def _read_variants(documents: Sequence[Document], notes: list[str]) -> list[_Variant]:
    variants: dict[tuple[str, str, str], _Variant] = {}
    workloads: dict[tuple[str, str, str], _Variant] = {}
    for document in documents:
        content = _as_mapping(document.content)
        kind, group = content.get("kind"), str(content.get("apiVersion", "")).partition("/")[0]
        found, into = None, variants
        if kind in {"Deployment", "LeaderWorkerSet", "StatefulSet"}:
            found, into = _read_workload(content), workloads
        elif (kind, group) == ("VariantAutoscaling", "llmd.ai") or _is_managed(content):
            found = _read_scaler(document.origin, content, notes)
        if found:
            key = found.namespace, found.workload.kind, found.workload.name
            into[key] = into[key].fill_missing(found) if key in into else found
    return [
        variant.fill_missing(workloads.get(key) or workloads.get(("", *key[1:]), variant))
        for key, variant in variants.items()
    ]


def _is_managed(content: Mapping[str, Any]) -> bool:
    """Whether an object is an autoscaler that follows WVA, and no copy."""
    metadata = _as_mapping(content, "metadata")
    # KEDA copies the annotations of a ScaledObject to its HorizontalPodAutoscaler.
    owners = {_as_mapping(owner).get("kind") for owner in metadata.get("ownerReferences") or ()}
    return (
        content.get("kind") in {"HorizontalPodAutoscaler", "ScaledObject"}
        and _as_mapping(metadata, "annotations").get("llm-d.ai/managed") == "true"
        and "ScaledObject" not in owners
    )


def _read_scaler(origin: str, content: Mapping[str, Any], notes: list[str]) -> _Variant | None:
    """Return the variant that an object describes; None of workers for prefill."""
    form, title = _read_form(_Scaler, content, origin), _make_title(content)
    spec, metadata = form.spec, form.metadata
    labels = {**metadata.labels, **metadata.annotations}
    cost, model = spec.variant_cost, spec.model_id
    if content["kind"] == "VariantAutoscaling":
        notes += spec.list_unknown(f"{title}: spec.")
        if not model:
            raise InputError(f"{origin}: {title}: spec.modelID is missing")
    elif labels.get(ROLE) == "prefill":
        notes.append(f"{title}: {ROLE}: prefill: left out: replicas of a Server do both phases")
        return None
    else:
        model, told = labels.get(MODEL_ID, ""), _read_number(labels.get(COST))
        if isinstance(told, float) and 0 <= told < math.inf:
            cost = told
        elif COST in labels:
            notes.append(f"{title}: {COST}: {labels[COST]!r} is not a number of at least 0")
    own = () if spec.variant_profile is None else (spec.variant_profile,)
    profiles = (*own, *spec.model_profile.get("accelerators", ()))
    only = profiles[0].acc if len(profiles) == 1 else None
    running = (
        _as_mapping(content, "status", name).get("numReplicas")
        for name in ("currentAlloc", "desiredOptimizedAlloc")
    )
    return _Variant(
        title=title,
        namespace=metadata.namespace,
        workload=spec.scale_target_ref or _ScaleTarget(name=metadata.name),
        model=model,
        accelerator=spec.accelerator or spec.accelerator_type or only or "",
        hint=labels.get(ACCELERATOR, ""),
        count=spec.accelerator_count or 0,
        cost=cost,
        least=spec.min_replica_count if spec.min_replicas is None else spec.min_replicas,
        most=spec.max_replica_count if spec.max_replicas is None else spec.max_replicas,
        replicas=next((count for count in running if isinstance(count, int)), None),
        profiles=profiles,
    )


@cache
def _read_cards() -> tuple[CardCatalogue, list[str]]:
    """Return the known cards, and the labels of nodes whose value is the name of one."""
    cards = read_built_in_cards()
    return cards, [label.label for label in cards.labels if not label.is_code]


def _read_workload(content: Mapping[str, Any]) -> _Variant:
    spec, (known_cards, card_labels) = _as_mapping(content, "spec"), _read_cards()
    kind, name = str(content["kind"]), str(_as_mapping(content, "metadata").get("name", ""))
    group = _as_mapping(spec, "leaderWorkerTemplate")
    worker = _as_mapping(group, "workerTemplate") or _as_mapping(spec, "template")
    leader, size = _as_mapping(group, "leaderTemplate") or worker, group.get("size", 1)
    workers = size - 1 if isinstance(size, int) else 0
    pods = [_as_mapping(each, "spec") for each in (leader, *[worker] * workers)]
    containers = [_as_mapping(each) for pod in pods for each in pod.get("containers") or ()]
    cards = 0
    for container in containers:
        requests = _as_mapping(container, "resources", "requests")
        asked = {**requests, **_as_mapping(container, "resources", "limits")}
        counts = [str(count) for each, count in asked.items() if known_cards.is_card(each)]
        cards += sum(int(count) for count in counts if count.isdecimal())
    command = next(filter(None, map(_read_command, containers)), {})
    selectors = [selector for pod in pods if (selector := _read_selector(pod))]
    by_label = (each[label] for each in selectors for label in card_labels if each.get(label))
    replicas = spec.get("replicas", 1)
    version = str(content.get("apiVersion", ""))
    return _Variant(
        title=f"{kind} {name}",
        namespace=str(_as_mapping(content, "metadata").get("namespace", "")),
        workload=_ScaleTarget(api_version=version, kind=kind, name=name or kind),
        accelerator=next(by_label, ""),
        count=cards or command.get("command_cards", 0),
        replicas=replicas if isinstance(replicas, int) else None,
        selector=next(iter(selectors), {}),
        cards=cards,
        **command,
    )


def _read_selector(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels that the node of a pod must have, also by a required node affinity."""
    path = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    wanted: dict[str, str] = {}
    for term in _as_mapping(pod, *path).get("nodeSelectorTerms") or ():
        for expression in map(_as_mapping, _as_mapping(term).get("matchExpressions") or ()):
            values: Sequence[Any] = expression.get("values") or ()
            if expression.get("operator") == "In" and len(values) == 1:
                wanted[str(expression.get("key"))] = str(values[0])
    own = _as_mapping(pod, "nodeSelector")
    return wanted | {str(label): str(value) for label, value in own.items()}


def _read_command(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the command of a container says of a variant; nothing if it names no model."""
    words = list(_split_command(container))
    options: dict[str, str] = {}
    for word, following in pairwise([*words, "-"]):
        if word.startswith("-"):
            name, has_value, value = word.lstrip("-").partition("=")
            if has_value or not following.startswith("-"):
                options[name.replace("_", "-")] = value if has_value else following
    served = [options[name] for name in MODEL_OPTIONS if name in options]
    served += [
        word
        for before, word in pairwise(words)
        if before.rpartition("/")[2] in {"serve", "trtllm-serve"} and not word.startswith("-")
    ]
    if not served or "$" in served[0]:
        return {}
    batch = next((name for name in BATCH_OPTIONS if options.get(name, "").isdecimal()), "")
    sizes = [name for name in CARD_OPTIONS if options.get(name, "").isdecimal()]
    return {
        "served": served[0],
        "batch": int(options[batch]) if batch else 0,
        "batch_option": f"--{batch}",
        "command_cards": math.prod(int(options[name]) for name in sizes) if sizes else 0,
        "card_options": " ".join(f"--{name} {options[name]}" for name in sizes),
    }


def _split_command(container: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of a command, also of a script for a shell, with its variables filled in."""
    settings = map(_as_mapping, container.get("env") or ())
    variables = {str(each.get("name")): str(each["value"]) for each in settings if "value" in each}
    for word in (*(container.get("command") or ()), *(container.get("args") or ())):
        text = VARIABLE.sub(lambda match: variables.get(match[1], match[0]), str(word))
        try:
            yield from shlex.split(text) if re.search(r"\s", text) else [text]
        except ValueError:  # a quotation mark that is not closed
            yield text


# ConfigMaps


@dataclass(slots=True)
class _Settings:
    """What the ConfigMaps say, and what of it has no counterpart (`notes`).

    Targets of the queueing model, and whether there may be no replica, are by namespace and model;
    without a namespace, of all. `classes` are as a ServiceClass has them.
    """

    costs: dict[str, _UnitCost] = field(default_factory=dict)
    classes: list[Manifest] = field(default_factory=list)
    targets: dict[tuple[str, str], _ModelSetting] = field(default_factory=dict)
    zero: dict[tuple[str, str], bool] = field(default_factory=dict)
    interval_s: int = 60
    notes: list[str] = field(default_factory=list)

    def find_accelerator(self, device: str) -> str:
        """Return the accelerator with this device; else the name is that of an accelerator."""
        of_device = (name for name, cost in self.costs.items() if cost.device == device)
        return device if device in self.costs else next(of_device, device)

    def add(self, origin: str, title: str, key: str, value: object) -> None:
        """Add an entry; what it is for is told by its fields."""
        given = _as_mapping(value)
        if "cost" in given:
            cost = self.costs[key] = _read_form(_UnitCost, given, origin, title)
            self.notes += cost.list_unknown(f"{title}: ")
        elif "data" in given:
            read = _read_form(_ClassOfService, given, origin, title)
            self.notes += read.list_unknown(f"{title}: ")
            for target in read.data:
                self.notes += target.list_unknown(f"{title}: {target.model}: ")
            targets = [
                _build_target(each.model, each.slo_tpot, each.slo_ttft) for each in read.data
            ]
            self.classes.append({"name": read.name, "priority": read.priority, "data": targets})
        elif given.keys() & MODEL_SETTINGS:
            setting = _read_form(_ModelSetting, given, origin, title)
            self.notes += setting.list_unknown(f"{title}: ")
            if setting.enable_scale_to_zero is not None:
                self.zero[setting.namespace, setting.model_id] = setting.enable_scale_to_zero
            if setting.target_itl or setting.target_ttft:
                self.targets[setting.namespace, setting.model_id] = setting
        else:
            names = f": {', '.join(map(str, given))}" if given else ""
            self.notes.append(f"{title}{names}: no counterpart")


def _build_target(model: str, itl_ms: float | None, ttft_ms: float | None) -> Manifest:
    limits = {"slo-itl": itl_ms, "slo-ttft": ttft_ms}
    return {"model": model} | {name: _simplify(limit) for name, limit in limits.items() if limit}


def _read_settings(documents: Iterable[Document]) -> _Settings:
    settings = _Settings()
    for document in documents:
        content = _as_mapping(document.content)
        name = str(_as_mapping(content, "metadata").get("name", ""))
        if content.get("kind") != "ConfigMap" or not OURS.search(name):
            continue
        title = _make_title(content)
        variables: dict[str, object] = {}
        for key, text in _as_mapping(content, "data").items():
            try:
                value = yaml.safe_load(str(text))
            except yaml.YAMLError as error:
                problem = f"{title}: {key}: not YAML: {' '.join(str(error).split())}"
                raise InputError(f"{document.origin}: {problem}") from error
            entries = value if isinstance(value, Mapping) else {key: value}
            if entries and all(re.fullmatch(r"[A-Z][A-Z0-9_]+", str(each)) for each in entries):
                variables |= entries
            else:
                settings.add(document.origin, f"{title}: {key}", str(key), value)
        interval = parse_duration(str(variables.get("GLOBAL_OPT_INTERVAL", "")))
        if interval is not None and interval >= 1:
            settings.interval_s = round(interval)
            del variables["GLOBAL_OPT_INTERVAL"]
        if "WVA_SCALE_TO_ZERO" in variables:
            enabled = str(variables.pop("WVA_SCALE_TO_ZERO")).lower() in {"true", "1"}
            settings.zero.setdefault(("", ""), enabled)
        if variables:
            settings.notes.append(
                f"{title}: {', '.join(sorted(map(str, variables)))}: settings of the WVA"
                " controller; this operator reads INFERNO_* variables"
            )
    return settings


# Our objects


@dataclass(slots=True)
class _Migration:
    """Makes the objects of a namespace.

    The variants of `models` have their accelerator, its count and their model for certain; `costs`
    are those of accelerators by name [cents/hour].
    """

    namespace: str
    settings: _Settings
    notes: list[str]
    models: dict[str, list[_Variant]] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)

    def add(self, variant: _Variant, device: str) -> None:
        """Add a variant on a device, and tell what is not known of it."""
        title, model = variant.title, variant.model or variant.workload.name
        if not device:
            self.notes.append(f"{title}: left out: {_explain_missing_accelerator(variant)}")
            return
        if not variant.model:
            self.notes.append(
                f"{title}: no llm-d.ai/model-id: the model is called {model!r}; write the label"
                " model_name of its metrics"
            )
        name = self.settings.find_accelerator(device)
        own = [profile for profile in variant.profiles if profile.acc in (None, device)]
        count = variant.count or next((p.acc_count for p in own if p.acc_count), 0)
        if not count:
            self.notes.append(f"{title}: 1 {name} for each replica: nothing tells how many")
        placed = replace(variant, model=model, accelerator=name, count=count or 1)
        batch = next((p.max_batch_size for p in own if p.max_batch_size), None)
        self.notes += _compare_with_engine(placed, batch) if placed.served else ()
        self._price(placed)
        self.models.setdefault(model, []).append(placed)

    def _price(self, variant: _Variant) -> None:
        """Find the cost of the accelerator: WVA has it of a replica, without a unit."""
        name, cost = variant.accelerator, variant.cost
        own = None if cost is None else cost / variant.count
        if name in self.settings.costs:
            self.costs[name] = self.settings.costs[name].cost
        elif name not in self.costs:
            self.costs[name] = DEFAULT_COST / variant.count if own is None else own
            source = "no cost is given" if own is None else "the cost of its variant has no unit"
            self.notes.append(f"Accelerator {name}: {self.costs[name]:g} cents/hour: {source}")
        if own not in (None, self.costs[name]):
            self.notes.append(
                f"{variant.title}: cost {cost:g} of a replica: not used: {name} costs"
                f" {self.costs[name]:g} cents/hour"
            )

    def build_objects(self) -> Iterator[Manifest]:
        """Yield the objects for the variants that were added."""
        if not self.models:
            return
        data = {model: self._list_performance(model) for model in self.models}
        names = _name_objects(self.costs)
        for name, cost in self.costs.items():
            spec = {"name": name, "type": name, "cost": _simplify(cost)}
            yield self._build("Accelerator", names[name], spec)
        names = _name_objects(self.models)
        for model, rows in data.items():
            known = all(any(row["decodeParms"].values()) for row in rows)
            calibrate = {} if known else {"calibrate": "Use"}
            yield self._build("Model", names[model], {"name": model, **calibrate, "data": rows})
        default: Manifest = {"name": DEFAULT_CLASS, "priority": LEAST_IMPORTANT, "data": []}
        chosen = {model: self._choose_class(model, default) for model in self.models}
        classes = [*self.settings.classes, *([default] if default["data"] else [])]
        class_names = _name_objects(each["name"] for each in classes)
        for each in classes:
            yield self._build("ServiceClass", class_names[each["name"]], each)
        for model in self.models:
            spec = self._build_server(names[model], model, chosen[model])
            yield self._build("Server", names[model], spec)
        yield self._build("Capacity", "cards", {"fromNodes": True})
        several = any(len({v.accelerator for v in own}) > 1 for own in self.models.values())
        solver = {"unlimited": False, "heterogeneous": several, "milpSolver": True}
        optimizer = {
            "optimize": False,
            "interval": self.settings.interval_s,
            "mode": "Recommend",
            "data": {"optimizer": {**solver, "useCplex": False}},
        }
        yield self._build("Optimizer", "inferno", optimizer)

    def _build(self, kind: str, name: str, spec: Manifest) -> Manifest:
        metadata = {"name": name} | ({"namespace": self.namespace} if self.namespace else {})
        return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}

    def _list_performance(self, model: str) -> list[Manifest]:
        """Return how a replica performs on each accelerator; parameters of 0 are not known."""
        found: dict[str, tuple[int, _Profile, _Variant | None]] = {}
        for variant in self.models[model]:
            for profile in variant.profiles:
                name = self.settings.find_accelerator(profile.acc or variant.accelerator)
                if name not in self.costs and name not in self.settings.costs:
                    self.notes.append(f"{variant.title}: {name}: left out: it has no cost")
                    continue
                if name not in self.costs:
                    self.costs[name] = self.settings.costs[name].cost
                if name not in found or not found[name][1].perf_parms.get("decodeParms"):
                    is_own = name == variant.accelerator
                    cards = variant.count if is_own else profile.acc_count or 1
                    found[name] = cards, profile, variant if is_own else None
            found.setdefault(variant.accelerator, (variant.count, _Profile(), variant))
        self.notes += [
            f"Model {model}: {name}: nothing of it runs there: plans leave it out until"
            " spec.workloads of the Server names an object"
            for name in found.keys() - {variant.accelerator for variant in self.models[model]}
        ]
        rows = []
        for name, (cards, profile, running) in found.items():
            decode, prefill = (profile.perf_parms.get(f"{each}Parms", {}) for each in PHASES)
            if not decode:
                self.notes.append(
                    f"Model {model}: {name}: no performance parameters: no plan before the operator"
                    " has measured replicas there (calibrate: Use), or you have (inferno calibrate)"
                )
            batch, source = profile.max_batch_size, "no maxBatchSize is given"
            if batch is None:
                if running and running.batch:
                    batch, source = running.batch, f"{running.batch_option} of {running.engine}"
                batch = batch or DEFAULT_BATCH
                self.notes.append(f"Model {model}: {name}: a batch of {batch}: {source}")
            row = {
                "acc": name,
                "accCount": cards,
                "decodeParms": {each: _simplify(decode.get(each, 0)) for each in ("alpha", "beta")},
                "prefillParms": {
                    each: _simplify(prefill.get(each, 0)) for each in ("gamma", "delta")
                },
                "maxBatchSize": batch,
                "atTokens": ANY_LENGTH,
                "maxNumSeqs": batch,
            }
            rows.append(row)
        return rows

    def _choose_class(self, model: str, default: Manifest) -> str:
        """Return the most important class that has a model; else the default gets the model."""
        having = [
            each
            for each in self.settings.classes
            if model in (target["model"] for target in each["data"])
        ]
        if having:
            chosen, *others = sorted(having, key=lambda c: c["priority"] or LEAST_IMPORTANT)
            if others:
                names = ", ".join(each["name"] for each in others)
                self.notes.append(
                    f"Model {model}: class {chosen['name']}: also in {names}; WVA takes any"
                )
            return str(chosen["name"])
        targets = self.settings.targets
        own = targets.get((self.namespace, model)) or targets.get(("", model))
        if own is None:
            self.notes.append(
                f"Model {model}: no targets: write slo-itl and slo-ttft [ms] into ServiceClass"
                f" {DEFAULT_CLASS}; without them replicas are as full as they can be"
            )
        limits = (own.target_itl, own.target_ttft) if own else (None, None)
        default["data"].append(_build_target(model, *limits))
        return DEFAULT_CLASS

    def _build_server(self, name: str, model: str, service_class: str) -> Manifest:
        variants: dict[str, _Variant] = {}
        for variant in self.models[model]:
            first = variants.setdefault(variant.accelerator, variant)
            if first is not variant:
                self.notes.append(
                    f"{variant.title}: left out: {first.workload.name} is on {first.accelerator}"
                    " too, and a Server has one workload for each accelerator"
                )
        self.notes += [
            f"{variant.title}: at most {variant.most} replicas: no counterpart: the cards of the"
            " Capacity are the limit"
            for variant in variants.values()
            if variant.most is not None
        ]
        bounds = [variant.least or 0 for variant in variants.values()]
        if len(bounds) > 1 and any(bounds):
            self.notes.append(
                f"Server {name}: minNumReplicas {sum(bounds)} is the sum of its variants: a"
                " Server has one minimum for all its accelerators"
            )
        zero = self.settings.zero
        keys = ((self.namespace, model), ("", model), ("", ""))
        may_be_zero = next((zero[key] for key in keys if key in zero), False)
        if may_be_zero and not any(bounds):
            self.notes.append(
                f"Server {name}: minNumReplicas 0: the Server keeps one replica all the same,"
                " because its engines measure the load"
            )
        counts = {acc: v.replicas for acc, v in variants.items() if v.replicas is not None}
        running = [{"accelerator": acc, "numReplicas": n} for acc, n in counts.items() if n]
        most = max(running, key=itemgetter("numReplicas"), default={"accelerator": ""})
        current: Manifest = most | {"numReplicas": sum(counts.values())}
        if len(running) > 1:
            current["mix"] = running
        served = {v.served for v in variants.values() if v.served}
        labels = {"namespace": self.namespace} if self.namespace else {}
        labels["model_name"] = served.pop() if len(served) == 1 else model
        return {
            "name": name,
            "class": service_class,
            "model": model,
            "minNumReplicas": sum(bounds) if may_be_zero else max(sum(bounds), 1),
            **({"currentAlloc": current} if counts else {}),
            "workloads": [
                {"accelerator": acc} | v.workload.to_json() for acc, v in variants.items()
            ],
            "actuation": "Publish",
            "measure": {"source": "vLLM", "labels": labels},
        }


def _compare_with_engine(variant: _Variant, batch: int | None) -> Iterator[str]:
    """Tell where the engine was started with something else than its variant says."""
    title, model, engine = variant.title, variant.model, variant.engine
    if variant.served != model:
        source = "spec.modelID" if title.startswith("VariantAutoscaling") else MODEL_ID
        yield (
            f"{title}: {source} is {model!r}, and {engine} serves {variant.served!r}: spec.measure"
            " takes that as model_name"
        )
    seen = ""
    if variant.command_cards not in (0, variant.count):
        seen = f"{engine} runs on {variant.command_cards} ({variant.card_options})"
    elif variant.cards not in (0, variant.count):
        seen = f"the pods of {engine} ask for {variant.cards}"
    if seen:
        yield (
            f"{title}: {variant.count} {variant.accelerator} for each replica, and {seen}: correct"
            f" accCount of Model {model}"
        )
    if batch and variant.batch not in (0, batch):
        yield (
            f"{title}: a batch of {batch} (maxBatchSize), and {engine} takes {variant.batch}"
            f" ({variant.batch_option}): correct maxBatchSize of Model {model}"
        )


def _explain_missing_accelerator(variant: _Variant) -> str:
    workload, option = variant.workload, f"--accelerator {variant.workload.name}=NAME"
    if variant.selector is None:
        return f"on which accelerator is {workload.name}? Give its {workload.kind} too, or {option}"
    wanted = ", ".join(f"{label}: {value}" for label, value in variant.selector.items())
    seen = f"{variant.engine} has no nodeSelector"
    if wanted:
        seen = f"the nodeSelector of {variant.engine} ({wanted}) names no known card"
    labels = join_names(_read_cards()[1], 4)
    return f"{seen}: give {option}, or a nodeSelector with one of {labels}"


def _simplify(number: float) -> float:
    """Return a number as people write it: without a fraction of zero."""
    return int(number) if float(number).is_integer() else number


def _name_objects(names: Iterable[str]) -> dict[str, str]:
    """Return names of objects by names of ours, each once."""
    object_names: dict[str, str] = {}
    for name in names:
        plain = object_name(name)
        same = sum(other.startswith(plain) for other in object_names.values())
        object_names[name] = f"{plain[:60]}-{same + 1}" if plain in object_names.values() else plain
    return object_names
