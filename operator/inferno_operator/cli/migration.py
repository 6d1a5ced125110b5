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
from typing import Annotated, Any, NamedTuple, TypeVar

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

MANAGED, MODEL_ID, COST = "llm-d.ai/managed", "llm-d.ai/model-id", "llm-d.ai/variant-cost"
ROLE, ACCELERATOR = "llm-d.ai/role", "inference.optimization/acceleratorName"

# What the name of a ConfigMap of WVA has in it; names differ between releases.
OURS = re.compile(
    r"wva|variantautoscaling|service-?class|accelerator-?(unit|cost)|scale-to-zero"
    r"|(saturation|capacity)-scaling|queueing-model"
)
SETTING = re.compile(r"[A-Z][A-Z0-9_]+")
VARIABLE = re.compile(r"\$\((\w+)\)|\$\{(\w+)\}|\$(\w+)")

# Options of vLLM, SGLang and TensorRT-LLM; the numbers of cards are multiplied.
MODEL_OPTIONS = ("served-model-name", "model", "model-path")
BATCH_OPTIONS = ("max-num-seqs", "max-running-requests", "max-batch-size")
CARD_OPTIONS = (
    *("tensor-parallel-size", "tp-size", "tp", "pipeline-parallel-size", "pp-size", "pp"),
    *("data-parallel-size", "dp-size", "dp"),
)
SERVE_COMMANDS = ("serve", "trtllm-serve")  # the word after them is the model

LEAST_IMPORTANT, DEFAULT_CLASS = 100, "Default"
# What WVA takes for the cost of a replica that has none, and for its largest batch, which holds
# for requests of any length.
DEFAULT_COST, DEFAULT_BATCH, ANY_LENGTH = 10.0, 256, 2**20
LABELS_NAMED = 4
NOTHING = (
    "nothing to migrate: no VariantAutoscaling, and no HorizontalPodAutoscaler or ScaledObject with"
    ' the annotation llm-d.ai/managed: "true"'
)


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
    named = {w: acc for w, of_one, acc in (o.rpartition("=") for o in accelerators) if of_one}
    otherwise = next((o for o in reversed(accelerators) if "=" not in o), "")
    known = [variant.workload.name for variant in variants]
    for workload in named.keys() - {*known}:
        near = alternatives(workload, known)
        raise InputError(f"--accelerator: no workload is named {workload!r}{near}")
    if not variants:
        raise InputError(f"{NOTHING}, but {count_others(documents)}")
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
    return manifests, [*notes, *settings.notes]


# What WVA's objects say: fields with a counterpart; others are kept by name, to tell of them.


def _read_number(value: object) -> object:
    """Return the number of a text, as WVA often writes them; all else as it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Figure = Annotated[float, AllowInfNan(False), Field(ge=0), BeforeValidator(_read_number)]


class _OpenPart(Part):
    model_config = ConfigDict(extra="allow")

    def list_unknown(self, title: str) -> Iterator[str]:
        return (f"{title}{name}: no counterpart" for name in self.model_extra or ())


class _ScaleTarget(Part):
    api_version: str = "apps/v1"
    kind: str = "Deployment"
    name: NonEmptyText


class _Parms(Part):
    """Parameters by their letters: alpha and beta, gamma and delta [ms]."""

    decode_parms: dict[str, Figure] = Field(default_factory=dict)
    prefill_parms: dict[str, Figure] = Field(default_factory=dict)


class _Profile(Part):
    """How a replica performs on an accelerator; that of a single variant does not name it."""

    acc: NonEmptyText | None = None
    acc_count: PositiveInteger | None = None
    perf_parms: _Parms = _Parms()
    max_batch_size: PositiveInteger | None = None


class _ModelProfile(Part):
    accelerators: Items[_Profile] = ()


class _VariantSpec(_OpenPart):
    model_id: Annotated[NonEmptyText, Field(alias="modelID")]
    scale_target_ref: _ScaleTarget | None = None
    accelerator: NonEmptyText | None = None
    accelerator_type: NonEmptyText | None = None
    accelerator_count: PositiveInteger | None = None
    variant_profile: _Profile | None = None
    model_profile: _ModelProfile = _ModelProfile()
    variant_cost: Figure | None = None
    min_replicas: NonNegativeInteger | None = None
    max_replicas: NonNegativeInteger | None = None
    slo_class_ref: dict[str, str] = Field(default_factory=dict)  # WVA takes a class with the model


class _VariantAutoscaling(Part):
    metadata: Metadata
    spec: _VariantSpec


class _AutoscalerSpec(Part):
    """The fields of a HorizontalPodAutoscaler, and those of a ScaledObject."""

    scale_target_ref: _ScaleTarget
    min_replicas: NonNegativeInteger | None = None
    max_replicas: NonNegativeInteger | None = None
    min_replica_count: NonNegativeInteger | None = None
    max_replica_count: NonNegativeInteger | None = None


class _Autoscaler(Part):
    metadata: Metadata
    spec: _AutoscalerSpec


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


def _as_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _make_title(kind: object, namespace: str, name: str) -> str:
    return f"{kind} {'/'.join(filter(None, (namespace, name)))}"


# Variants


class _Command(NamedTuple):
    """What an engine was started with: the name by which users request it, batch and cards."""

    model: str
    batch: int | None
    batch_option: str
    cards: int | None
    card_options: str


@dataclass(frozen=True, slots=True)
class _Variant:
    """A workload that serves a model, and what its objects tell; a default is not told.

    `title` is the object that describes it, for messages. It runs on `accelerator`, or on the
    `hint` of a label that pods need not have; `count` are its accelerators, `cost` is that of a
    replica in whatever unit, and `least` and `most` bound its `replicas`. `selector` are the labels
    of nodes that its pods ask for; `cards` those that the pods of a replica ask for.
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
    command: _Command | None = None
    cards: int = 0

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
        if kind == "VariantAutoscaling" and group == "llmd.ai":
            found = _read_variant_autoscaling(document.origin, content, notes)
        elif kind in {"HorizontalPodAutoscaler", "ScaledObject"}:
            found = _read_autoscaler(document.origin, content, notes)
        elif kind in {"Deployment", "LeaderWorkerSet", "StatefulSet"}:
            found, into = _read_workload(content), workloads
        if found:
            key = found.namespace, found.workload.kind, found.workload.name
            into[key] = into[key].fill_missing(found) if key in into else found
    return [
        variant.fill_missing(workloads.get(key) or workloads.get(("", *key[1:]), variant))
        for key, variant in variants.items()
    ]


def _read_variant_autoscaling(
    origin: str, content: Mapping[str, Any], notes: list[str]
) -> _Variant:
    form = _read_form(_VariantAutoscaling, content, origin)
    spec, metadata = form.spec, form.metadata
    title = _make_title("VariantAutoscaling", metadata.namespace, metadata.name)
    notes += spec.list_unknown(f"{title}: spec.")
    own = () if spec.variant_profile is None else (spec.variant_profile,)
    profiles = (*own, *spec.model_profile.accelerators)
    only = profiles[0].acc if len(profiles) == 1 else None
    status = _as_mapping(content.get("status"))
    running = (
        _as_mapping(status.get(name)).get("numReplicas")
        for name in ("currentAlloc", "desiredOptimizedAlloc")
    )
    return _Variant(
        title=title,
        namespace=metadata.namespace,
        workload=spec.scale_target_ref or _ScaleTarget(name=metadata.name),
        model=spec.model_id,
        accelerator=spec.accelerator or spec.accelerator_type or only or "",
        hint=metadata.labels.get(ACCELERATOR, ""),
        count=spec.accelerator_count or 0,
        cost=spec.variant_cost,
        least=spec.min_replicas,
        most=spec.max_replicas,
        replicas=next((count for count in running if isinstance(count, int)), None),
        profiles=profiles,
    )


def _read_autoscaler(origin: str, content: Mapping[str, Any], notes: list[str]) -> _Variant | None:
    """Return the variant of an annotated autoscaler; None of those of others."""
    described = _as_mapping(content.get("metadata"))
    owners = described.get("ownerReferences") or ()
    # KEDA copies the annotations of a ScaledObject to its HorizontalPodAutoscaler.
    of_keda = any(_as_mapping(owner).get("kind") == "ScaledObject" for owner in owners)
    if _as_mapping(described.get("annotations")).get(MANAGED) != "true" or of_keda:
        return None
    form = _read_form(_Autoscaler, content, origin)
    spec, metadata = form.spec, form.metadata
    title = _make_title(content["kind"], metadata.namespace, metadata.name)
    labels = {**metadata.labels, **metadata.annotations}
    if labels.get(ROLE) == "prefill":
        notes.append(f"{title}: {ROLE}: prefill: left out: replicas of a Server do both phases")
        return None
    cost = _read_number(labels.get(COST))
    if not isinstance(cost, float) or not math.isfinite(cost) or cost < 0:
        if COST in labels:
            notes.append(f"{title}: {COST}: {labels[COST]!r} is not a number of at least 0")
        cost = None
    return _Variant(
        title=title,
        namespace=metadata.namespace,
        workload=spec.scale_target_ref,
        model=labels.get(MODEL_ID, ""),
        hint=labels.get(ACCELERATOR, ""),
        cost=cost,
        least=spec.min_replicas if spec.min_replicas is not None else spec.min_replica_count,
        most=spec.max_replicas if spec.max_replicas is not None else spec.max_replica_count,
    )


def _read_workload(content: Mapping[str, Any]) -> _Variant:
    metadata, spec = _as_mapping(content.get("metadata")), _as_mapping(content.get("spec"))
    kind, name = str(content["kind"]), str(metadata.get("name", ""))
    group = _as_mapping(spec.get("leaderWorkerTemplate"))
    worker = _as_mapping(group.get("workerTemplate") or spec.get("template"))
    leader, size = _as_mapping(group.get("leaderTemplate")) or worker, group.get("size", 1)
    workers = size - 1 if isinstance(size, int) else 0
    pods = [_as_mapping(each.get("spec")) for each in (leader, *[worker] * workers)]
    containers = [_as_mapping(each) for pod in pods for each in pod.get("containers") or ()]
    replicas, cards = spec.get("replicas", 1), sum(map(_count_cards, containers))
    command = next(filter(None, map(_read_command, containers)), None)
    selectors = [selector for pod in pods if (selector := _read_selector(pod))]
    by_label = (each[label] for each in selectors for label in _card_labels() if each.get(label))
    version = str(content.get("apiVersion", ""))
    return _Variant(
        title=f"{kind} {name}",
        namespace=str(metadata.get("namespace", "")),
        workload=_ScaleTarget(api_version=version, kind=kind, name=name or kind),
        accelerator=next(by_label, ""),
        count=cards or (command.cards if command else None) or 0,
        replicas=replicas if isinstance(replicas, int) else None,
        selector=next(iter(selectors), {}),
        command=command,
        cards=cards,
    )


@cache
def _card_catalogue() -> CardCatalogue:
    return read_built_in_cards()


def _card_labels() -> list[str]:
    """Return the labels of nodes whose value is the name of a card."""
    return [label.label for label in _card_catalogue().labels if not label.is_code]


def _count_cards(container: Mapping[str, Any]) -> int:
    resources = _as_mapping(container.get("resources"))
    asked = {**_as_mapping(resources.get("requests")), **_as_mapping(resources.get("limits"))}
    counts = (str(count) for name, count in asked.items() if _card_catalogue().is_card(name))
    return sum(int(count) for count in counts if count.isdecimal())


def _read_selector(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels that the node of a pod must have, also by a required node affinity."""
    node = _as_mapping(_as_mapping(pod.get("affinity")).get("nodeAffinity"))
    required = _as_mapping(node.get("requiredDuringSchedulingIgnoredDuringExecution"))
    wanted: dict[str, str] = {}
    for term in required.get("nodeSelectorTerms") or ():
        for expression in map(_as_mapping, _as_mapping(term).get("matchExpressions") or ()):
            values: Sequence[Any] = expression.get("values") or ()
            if expression.get("operator") == "In" and len(values) == 1:
                wanted[str(expression.get("key"))] = str(values[0])
    own = _as_mapping(pod.get("nodeSelector"))
    return wanted | {str(label): str(value) for label, value in own.items()}


def _read_command(container: Mapping[str, Any]) -> _Command | None:
    """Return what the command of a container says; None if it names no model."""
    words = list(_split_command(container))
    options: dict[str, str] = {}
    for word, following in pairwise([*words, "-"]):
        if word.startswith("-"):
            name, has_value, value = word.lstrip("-").partition("=")
            if has_value or not following.startswith("-"):
                options[name.replace("_", "-")] = value if has_value else following
    after = (word for one, word in pairwise(words) if one.rpartition("/")[2] in SERVE_COMMANDS)
    served = [options[name] for name in MODEL_OPTIONS if name in options]
    model = next(iter(served or (word for word in after if not word.startswith("-"))), None)
    if model is None or "$" in model:
        return None
    batch = next((name for name in BATCH_OPTIONS if options.get(name, "").isdecimal()), "")
    sizes = [name for name in CARD_OPTIONS if options.get(name, "").isdecimal()]
    return _Command(
        model,
        int(options[batch]) if batch else None,
        f"--{batch}" if batch else "",
        math.prod(int(options[name]) for name in sizes) if sizes else None,
        " ".join(f"--{name} {options[name]}" for name in sizes),
    )


def _split_command(container: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of a command, also of a script for a shell, with its variables filled in."""
    settings = filter(lambda each: "value" in each, map(_as_mapping, container.get("env") or ()))
    variables = {str(each.get("name")): str(each["value"]) for each in settings}
    for word in (*(container.get("command") or ()), *(container.get("args") or ())):
        text = VARIABLE.sub(
            lambda match: variables.get(next(filter(None, match.groups())), match[0]), str(word)
        )
        try:
            yield from shlex.split(text) if re.search(r"\s", text) else [text]
        except ValueError:  # a quotation mark that is not closed
            yield text


# ConfigMaps: what an entry is for is told by its fields.


@dataclass(slots=True)
class _Settings:
    """What the ConfigMaps say, and what of it has no counterpart (`notes`).

    Targets of the queueing model, and whether there may be no replica, are by namespace and model;
    without a namespace, of all.
    """

    costs: dict[str, _UnitCost] = field(default_factory=dict)
    classes: list[_ClassOfService] = field(default_factory=list)
    targets: dict[tuple[str, str], _ModelSetting] = field(default_factory=dict)
    zero: dict[tuple[str, str], bool] = field(default_factory=dict)
    interval_s: int = 60
    notes: list[str] = field(default_factory=list)

    def find_accelerator(self, device: str) -> str:
        """Return the accelerator with this device; else the name is that of an accelerator."""
        of_device = (name for name, cost in self.costs.items() if cost.device == device)
        return device if device in self.costs else next(of_device, device)

    def add(self, origin: str, title: str, key: str, value: object) -> None:
        given = _as_mapping(value)
        part: _OpenPart
        if "cost" in given:
            part = self.costs[key] = _read_form(_UnitCost, given, origin, title)
        elif "data" in given:
            part = _read_form(_ClassOfService, given, origin, title)
            self.classes.append(part)
        elif given.keys() & {"enable_scale_to_zero", "retention_period"}:
            part = setting = _read_form(_ModelSetting, given, origin, title)
            if setting.enable_scale_to_zero is not None:
                self.zero[setting.namespace, setting.model_id] = setting.enable_scale_to_zero
        elif given.keys() & {"targetTTFT", "targetITL", "sloMultiplier"}:
            part = setting = _read_form(_ModelSetting, given, origin, title)
            self.targets[setting.namespace, setting.model_id] = setting
        else:
            names = f": {', '.join(map(str, given))}" if given else ""
            self.notes.append(f"{title}{names}: no counterpart")
            return
        self.notes += part.list_unknown(f"{title}: ")
        for target in part.data if isinstance(part, _ClassOfService) else ():
            self.notes += target.list_unknown(f"{title}: {target.model}: ")

    def add_controller_settings(self, title: str, given: Mapping[str, object]) -> None:
        rest = dict(given)
        interval = parse_duration(str(rest.get("GLOBAL_OPT_INTERVAL", "")))
        if interval is not None and interval >= 1:
            self.interval_s = round(interval)
            del rest["GLOBAL_OPT_INTERVAL"]
        if "WVA_SCALE_TO_ZERO" in rest:
            enabled = str(rest.pop("WVA_SCALE_TO_ZERO")).lower() in {"true", "1"}
            self.zero.setdefault(("", ""), enabled)
        if rest:
            self.notes.append(
                f"{title}: {', '.join(sorted(map(str, rest)))}: settings of the WVA controller;"
                " this operator reads INFERNO_* variables"
            )


def _read_settings(documents: Iterable[Document]) -> _Settings:
    settings = _Settings()
    for document in documents:
        content = _as_mapping(document.content)
        metadata = _as_mapping(content.get("metadata"))
        name = str(metadata.get("name", ""))
        if content.get("kind") != "ConfigMap" or not OURS.search(name):
            continue
        title = _make_title("ConfigMap", str(metadata.get("namespace", "")), name)
        plain: dict[str, object] = {}
        for key, text in _as_mapping(content.get("data")).items():
            try:
                value = yaml.safe_load(str(text))
            except yaml.YAMLError as error:
                problem = f"{title}: {key}: not YAML: {' '.join(str(error).split())}"
                raise InputError(f"{document.origin}: {problem}") from error
            entries = value if isinstance(value, Mapping) else {key: value}
            if entries and all(SETTING.fullmatch(str(name)) for name in entries):
                plain |= entries
            else:
                settings.add(document.origin, f"{title}: {key}", str(key), value)
        settings.add_controller_settings(title, plain)
    return settings


# Our objects


class _Performance(NamedTuple):
    """How a replica performs on an accelerator, how many cards it has, and what runs there."""

    cards: int
    profile: _Profile
    variant: _Variant | None

    @property
    def is_known(self) -> bool:
        return bool(self.profile.perf_parms.decode_parms)


@dataclass(frozen=True, slots=True)
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

    def _tell(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def add(self, variant: _Variant, device: str) -> None:
        """Add a variant on a device, and tell what is not known of it."""
        title, model = variant.title, variant.model or variant.workload.name
        if not device:
            self._tell(f"{title}: left out: {_explain_missing_accelerator(variant)}")
            return
        if not variant.model:
            self._tell(
                f"{title}: no llm-d.ai/model-id: the model is called {model!r}; write the label"
                " model_name of its metrics"
            )
        name = self.settings.find_accelerator(device)
        own = [profile for profile in variant.profiles if profile.acc in (None, device)]
        count = variant.count or next(filter(None, (p.acc_count for p in own)), 0)
        if not count:
            self._tell(f"{title}: 1 {name} for each replica: nothing tells how many")
        placed = replace(variant, model=model, accelerator=name, count=count or 1)
        self._compare_with_engine(
            placed, next((p.max_batch_size for p in own if p.max_batch_size), None)
        )
        self._price(placed)
        self.models.setdefault(model, []).append(placed)

    def _compare_with_engine(self, variant: _Variant, batch: int | None) -> None:
        """Tell where the engine was started with something else than its variant says."""
        title, model, command = variant.title, variant.model, variant.command
        if command is None:
            return
        engine, cards = variant.engine, f"{variant.count} {variant.accelerator} for each replica"
        if command.model != model:
            source = "spec.modelID" if title.startswith("VariantAutoscaling") else MODEL_ID
            self._tell(
                f"{title}: {source} is {model!r}, and {engine} serves {command.model!r}:"
                " spec.measure takes that as model_name"
            )
        seen = ""
        if command.cards not in (None, variant.count):
            seen = f"{engine} runs on {command.cards} ({command.card_options})"
        elif variant.cards not in (0, variant.count):
            seen = f"the pods of {engine} ask for {variant.cards}"
        if seen:
            self._tell(f"{title}: {cards}, and {seen}: correct accCount of Model {model}")
        if batch and command.batch not in (None, batch):
            self._tell(
                f"{title}: a batch of {batch} (maxBatchSize), and {engine} takes {command.batch}"
                f" ({command.batch_option}): correct maxBatchSize of Model {model}"
            )

    def _price(self, variant: _Variant) -> None:
        """Find the cost of the accelerator: WVA has it of a replica, without a unit."""
        name, cost = variant.accelerator, variant.cost
        own = None if cost is None else cost / variant.count
        if name in self.settings.costs:
            self.costs[name] = self.settings.costs[name].cost
        elif name not in self.costs:
            self.costs[name] = DEFAULT_COST / variant.count if own is None else own
            source = "no cost is given" if own is None else "the cost of its variant has no unit"
            self._tell(f"Accelerator {name}: {self.costs[name]:g} cents/hour: {source}")
        if own not in (None, self.costs[name]):
            self._tell(
                f"{variant.title}: cost {cost:g} of a replica: not used: {name} costs"
                f" {self.costs[name]:g} cents/hour"
            )

    def build_objects(self) -> Iterator[Manifest]:
        """Yield the objects for the variants that were added."""
        if not self.models:
            return
        performance = {model: self._collect_performance(model) for model in self.models}
        names = _name_objects(self.costs)
        for name, cost in self.costs.items():
            yield self._build(
                "Accelerator", names[name], name=name, type=name, cost=_simplify(cost)
            )
        names = _name_objects(self.models)
        for model, rows in performance.items():
            data = [self._build_data(model, acc, each) for acc, each in rows.items()]
            known = all(each.is_known for each in rows.values())
            calibrate = {} if known else {"calibrate": "Use"}
            yield self._build("Model", names[model], name=model, **calibrate, data=data)
        chosen = {model: self._choose_class(model) for model in self.models}
        yield from self._build_classes(chosen.values())
        for model in self.models:
            server = self._build_server(names[model], model, chosen[model].name)
            yield self._build("Server", names[model], **server)
        yield self._build("Capacity", "cards", fromNodes=True)
        several = any(len({v.accelerator for v in own}) > 1 for own in self.models.values())
        parameters = {
            "unlimited": False,
            "heterogeneous": several,
            "milpSolver": True,
            "useCplex": False,
        }
        yield self._build(
            "Optimizer",
            "inferno",
            optimize=False,
            interval=self.settings.interval_s,
            mode="Recommend",
            data={"optimizer": parameters},
        )

    def _build(self, kind: str, name: str, /, **spec: object) -> Manifest:
        namespace = {"namespace": self.namespace} if self.namespace else {}
        metadata = {"name": name} | namespace
        return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}

    def _collect_performance(self, model: str) -> dict[str, _Performance]:
        performance: dict[str, _Performance] = {}
        variants = self.models[model]
        for variant in variants:
            for profile in variant.profiles:
                name = self.settings.find_accelerator(profile.acc or variant.accelerator)
                if name not in self.costs and name not in self.settings.costs:
                    self._tell(f"{variant.title}: {name}: left out: it has no cost")
                    continue
                if name not in self.costs:
                    self.costs[name] = self.settings.costs[name].cost
                if name not in performance or not performance[name].is_known:
                    is_own = name == variant.accelerator
                    count = variant.count if is_own else profile.acc_count or 1
                    performance[name] = _Performance(count, profile, variant if is_own else None)
            performance.setdefault(
                variant.accelerator, _Performance(variant.count, _Profile(), variant)
            )
        for name in performance.keys() - {variant.accelerator for variant in variants}:
            self._tell(
                f"Model {model}: {name}: nothing of it runs there: plans leave it out until"
                " spec.workloads of the Server names an object"
            )
        return performance

    def _build_data(self, model: str, accelerator: str, found: _Performance) -> Manifest:
        """Return how a replica performs on an accelerator; parameters of 0 are to be calibrated."""
        profile, title = found.profile, f"Model {model}: {accelerator}"
        if not found.is_known:
            self._tell(
                f"{title}: no performance parameters: no plan before the operator has measured"
                " replicas there (calibrate: Use), or you have (inferno calibrate)"
            )
        batch, source = profile.max_batch_size, "no maxBatchSize is given"
        if batch is None:
            if found.variant and (command := found.variant.command) and command.batch:
                batch, source = command.batch, f"{command.batch_option} of {found.variant.engine}"
            batch = batch or DEFAULT_BATCH
            self._tell(f"{title}: a batch of {batch}: {source}")
        decode, prefill = profile.perf_parms.decode_parms, profile.perf_parms.prefill_parms
        return {
            "acc": accelerator,
            "accCount": found.cards,
            "decodeParms": {each: _simplify(decode.get(each, 0)) for each in ("alpha", "beta")},
            "prefillParms": {each: _simplify(prefill.get(each, 0)) for each in ("gamma", "delta")},
            "maxBatchSize": batch,
            "atTokens": ANY_LENGTH,
            "maxNumSeqs": batch,
        }

    def _choose_class(self, model: str) -> _ClassOfService:
        """Return the most important class that has a model, or one with its own targets or none."""
        having = [c for c in self.settings.classes if any(t.model == model for t in c.data)]
        if having:
            chosen, *others = sorted(having, key=lambda c: c.priority or LEAST_IMPORTANT)
            if others:
                names = ", ".join(c.name for c in others)
                self._tell(f"Model {model}: class {chosen.name}: also in {names}; WVA takes any")
            return chosen
        targets = self.settings.targets
        own = targets.get((self.namespace, model)) or targets.get(("", model)) or _ModelSetting()
        if not (own.target_ttft or own.target_itl):
            self._tell(
                f"Model {model}: no targets: write slo-itl and slo-ttft [ms] into ServiceClass"
                f" {DEFAULT_CLASS}; without them replicas are as full as they can be"
            )
        target = _ModelTarget(model=model, slo_tpot=own.target_itl, slo_ttft=own.target_ttft)
        return _ClassOfService(name=DEFAULT_CLASS, priority=LEAST_IMPORTANT, data=(target,))

    def _build_classes(self, chosen: Iterable[_ClassOfService]) -> Iterator[Manifest]:
        """Yield the classes of the ConfigMaps, and the one of all models that are in none."""
        classes = [*self.settings.classes]
        own = [each for each in chosen if each not in classes]
        if own:
            data = tuple(target for each in own for target in each.data)
            classes.append(own[0].model_copy(update={"data": data}))
        names = _name_objects(each.name for each in classes)
        for each in classes:
            targets = []
            for target in each.data:
                limits = {"slo-itl": target.slo_tpot, "slo-ttft": target.slo_ttft}
                given = {name: _simplify(limit) for name, limit in limits.items() if limit}
                targets.append({"model": target.model} | given)
            spec = {"name": each.name, "priority": each.priority, "data": targets}
            yield self._build("ServiceClass", names[each.name], **spec)

    def _build_server(self, name: str, model: str, service_class: str) -> Manifest:
        variants: dict[str, _Variant] = {}
        for variant in self.models[model]:
            first = variants.setdefault(variant.accelerator, variant)
            if first is not variant:
                self._tell(
                    f"{variant.title}: left out: {first.workload.name} is on {first.accelerator}"
                    " too, and a Server has one workload for each accelerator"
                )
        for variant in variants.values():
            if variant.most is not None:
                self._tell(
                    f"{variant.title}: at most {variant.most} replicas: no counterpart: the cards"
                    " of the Capacity are the limit"
                )
        bounds = [variant.least or 0 for variant in variants.values()]
        if len(bounds) > 1 and any(bounds):
            self._tell(
                f"Server {name}: minNumReplicas {sum(bounds)} is the sum of its variants: a"
                " Server has one minimum for all its accelerators"
            )
        zero = self.settings.zero
        keys = ((self.namespace, model), ("", model), ("", ""))
        may_be_zero = next((zero[key] for key in keys if key in zero), False)
        if may_be_zero and not any(bounds):
            self._tell(
                f"Server {name}: minNumReplicas 0: the Server keeps one replica all the same,"
                " because its engines measure the load"
            )
        labels = {"namespace": self.namespace} if self.namespace else {}
        served = {v.command.model for v in variants.values() if v.command}
        labels["model_name"] = served.pop() if len(served) == 1 else model
        counts = {acc: v.replicas for acc, v in variants.items() if v.replicas is not None}
        return {
            "name": name,
            "class": service_class,
            "model": model,
            "minNumReplicas": sum(bounds) if may_be_zero else max(sum(bounds), 1),
            **({"currentAlloc": _build_current(counts)} if counts else {}),
            "workloads": [
                {"accelerator": acc} | v.workload.to_json() for acc, v in variants.items()
            ],
            "actuation": "Publish",
            "measure": {"source": "vLLM", "labels": labels},
        }


def _build_current(counts: Mapping[str, int]) -> Manifest:
    parts = [{"accelerator": name, "numReplicas": n} for name, n in counts.items() if n]
    if len(parts) == 1:
        return parts[0]
    most = max(counts, key=lambda name: counts[name]) if parts else ""
    mix = {"mix": parts} if parts else {}
    return {"accelerator": most, "numReplicas": sum(counts.values())} | mix


def _explain_missing_accelerator(variant: _Variant) -> str:
    workload = variant.workload
    option = f"--accelerator {workload.name}=NAME"
    if variant.selector is None:
        return f"on which accelerator is {workload.name}? Give its {workload.kind} too, or {option}"
    wanted = ", ".join(f"{label}: {value}" for label, value in variant.selector.items())
    seen = f"{variant.engine} has no nodeSelector"
    if wanted:
        seen = f"the nodeSelector of {variant.engine} ({wanted}) names no known card"
    labels = join_names(_card_labels(), LABELS_NAMED)
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
