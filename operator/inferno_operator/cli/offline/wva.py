"""What the objects of WVA say: variants, workloads and ConfigMaps; pure.

WVA scales variants: workloads that serve a model, each on one accelerator. A VariantAutoscaling
describes one variant (`accelerator`, `variantProfile`), or a model with several accelerators
(`modelProfile`); in its newest form it has neither, and an annotated autoscaler takes its place.
"""

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AllowInfNan, BeforeValidator, ConfigDict, Field, ValidationError

from inferno_operator.cli.offline.documents import Document
from inferno_operator.controllers.boosters.validation import parse_duration
from inferno_operator.controllers.capacity.catalogue import CardCatalogue, read_built_in_cards
from inferno_operator.resources import Metadata
from inferno_operator.resources.parsing import bad_manifest
from inferno_operator.resources.schema import (
    Items,
    NonEmptyText,
    NonNegativeInteger,
    Part,
    PositiveInteger,
)
from inferno_optimizer.errors import InputError

Form = TypeVar("Form", bound=Part)

GROUP = "llmd.ai"
AUTOSCALERS = frozenset({"HorizontalPodAutoscaler", "ScaledObject"})
WORKLOADS = frozenset({"Deployment", "LeaderWorkerSet", "StatefulSet"})
MANAGED, MODEL_ID, COST = "llm-d.ai/managed", "llm-d.ai/model-id", "llm-d.ai/variant-cost"
ROLE = "llm-d.ai/role"
ACCELERATOR = "inference.optimization/acceleratorName"

OURS = re.compile(
    r"wva|variantautoscaling|service-?class|accelerator-?(unit|cost)|scale-to-zero"
    r"|(saturation|capacity)-scaling|queueing-model"
)
"""What the name of a ConfigMap of WVA has in it; names differ between releases."""

SETTING = re.compile(r"[A-Z][A-Z0-9_]+")
ANY_MODEL = ("", "")

MODEL_OPTIONS = ("served-model-name", "model", "model-path")
BATCH_OPTIONS = ("max-num-seqs", "max-running-requests", "max-batch-size")
CARD_OPTIONS = (
    *("tensor-parallel-size", "tp-size", "tp", "pipeline-parallel-size", "pp-size", "pp"),
    *("data-parallel-size", "dp-size", "dp"),
)
"""Options of vLLM, SGLang and TensorRT-LLM; the numbers of cards are multiplied."""

SERVE_COMMANDS = ("serve", "trtllm-serve")
"""Words after which the model is named without an option."""

VARIABLE = re.compile(r"\$\((\w+)\)|\$\{(\w+)\}|\$(\w+)")


# What WVA's objects say: fields with a counterpart; others are kept by name, to tell of them.


def read_number(value: object) -> object:
    """Return the number of a text, as WVA often writes them; all else as it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Figure = Annotated[float, AllowInfNan(False), Field(ge=0), BeforeValidator(read_number)]


class OpenPart(Part):
    """An object with fields that have no counterpart."""

    model_config = ConfigDict(extra="allow")

    def list_unknown(self, title: str) -> Iterator[str]:
        """Yield a line for each such field."""
        return (f"{title}{name}: no counterpart" for name in self.model_extra or ())


class ScaleTarget(Part):
    """The object that an autoscaler scales."""

    api_version: str = "apps/v1"
    kind: str = "Deployment"
    name: NonEmptyText


class VariantParms(Part):
    """Parameters by their letters: alpha and beta, gamma and delta [ms]."""

    decode_parms: dict[str, Figure] = Field(default_factory=dict)
    prefill_parms: dict[str, Figure] = Field(default_factory=dict)


class VariantProfile(Part):
    """How a replica performs on an accelerator; that of a single variant does not name it."""

    acc: NonEmptyText | None = None
    acc_count: PositiveInteger | None = None
    perf_parms: VariantParms = VariantParms()
    max_batch_size: PositiveInteger | None = None


class ProfilesOfModel(Part):
    """The profiles of a model, one for each accelerator."""

    accelerators: Items[VariantProfile] = ()


class VariantAutoscalingSpec(OpenPart):
    """What is scaled, and what is known of it; WVA takes the class that has the model."""

    model_id: Annotated[NonEmptyText, Field(alias="modelID")]
    scale_target_ref: ScaleTarget | None = None
    accelerator: NonEmptyText | None = None
    accelerator_type: NonEmptyText | None = None
    accelerator_count: PositiveInteger | None = None
    variant_profile: VariantProfile | None = None
    model_profile: ProfilesOfModel = ProfilesOfModel()
    variant_cost: Figure | None = None
    min_replicas: NonNegativeInteger | None = None
    max_replicas: NonNegativeInteger | None = None
    slo_class_ref: dict[str, str] = Field(default_factory=dict)


class VariantAutoscaling(Part):
    """A VariantAutoscaling."""

    metadata: Metadata
    spec: VariantAutoscalingSpec


class AutoscalerSpec(Part):
    """The fields of a HorizontalPodAutoscaler, and those of a ScaledObject."""

    scale_target_ref: ScaleTarget
    min_replicas: NonNegativeInteger | None = None
    max_replicas: NonNegativeInteger | None = None
    min_replica_count: NonNegativeInteger | None = None
    max_replica_count: NonNegativeInteger | None = None


class AnnotatedAutoscaler(Part):
    """A HorizontalPodAutoscaler or a ScaledObject with the annotations of WVA."""

    metadata: Metadata
    spec: AutoscalerSpec


class UnitCost(OpenPart):
    """An entry of the ConfigMap with unit costs: the device, and its cost [cents/hour]."""

    device: str = ""
    cost: Figure


class ModelTarget(OpenPart):
    """The targets of a model in a class [ms]."""

    model: NonEmptyText
    slo_tpot: Annotated[Figure | None, Field(alias="slo-tpot")] = None
    slo_ttft: Annotated[Figure | None, Field(alias="slo-ttft")] = None


class ClassOfService(OpenPart):
    """An entry of the ConfigMap with service classes."""

    name: NonEmptyText
    priority: NonNegativeInteger = 0
    data: Items[ModelTarget]


class ZeroSetting(OpenPart):
    """An entry of the ConfigMap about zero replicas; without a model it is the default."""

    model_id: Annotated[str, Field(alias="model_id")] = ""
    namespace: str = ""
    enable_scale_to_zero: Annotated[bool | None, Field(alias="enable_scale_to_zero")] = None


class QueueingSetting(OpenPart):
    """An entry of the ConfigMap of the queueing model: targets of a model [ms]."""

    model_id: Annotated[str, Field(alias="model_id")] = ""
    namespace: str = ""
    target_ttft: Annotated[Figure, Field(alias="targetTTFT")] = 0
    target_itl: Annotated[Figure, Field(alias="targetITL")] = 0


def read_form(
    form: type[Form], content: Mapping[str, object], origin: str, entry: str = ""
) -> Form:
    """Read an object of a file, or an entry of one.

    Raises
    ------
    InputError
        A field is missing or has a bad value; the text names file, object and field.
    """
    try:
        return form.model_validate(content, by_alias=True, by_name=False)
    except ValidationError as invalid:
        problem = str(bad_manifest(content, invalid))
        if entry:
            problem = f"{entry}: {problem.partition('object without a name: ')[2]}"
        raise InputError(f"{origin}: {problem}") from invalid


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return a mapping as it is, and an empty one for all else."""
    return value if isinstance(value, Mapping) else {}


# Variants: workloads that serve a model, each on one accelerator.


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """What an engine was started with; None is not told.

    `model` is the name by which users request it, as metrics have it; the options are those that
    tell the batch and the cards.
    """

    model: str
    batch: int | None
    batch_option: str
    cards: int | None
    cards_options: str


@dataclass(frozen=True, slots=True)
class Variant:
    """A workload that serves a model, and what its objects tell; None is not told.

    `title` is the object that describes it, for messages. It runs on `accelerator`, or on the
    `hint` of a label that pods need not have; `count` are its accelerators, `cost` is that of a
    replica in whatever unit, and `least` and `most` bound its `replicas`. A profile without an
    accelerator is that of its own. `selector` are the labels of nodes that its pods ask for, None
    without its workload; `cards` those that the pods of a replica ask for.
    """

    title: str
    namespace: str
    workload: ScaleTarget
    model: str | None = None
    accelerator: str | None = None
    hint: str | None = None
    count: int | None = None
    cost: float | None = None
    least: int | None = None
    most: int | None = None
    replicas: int | None = None
    profiles: tuple[VariantProfile, ...] = ()
    selector: Mapping[str, str] | None = None
    command: EngineCommand | None = None
    cards: int | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What the variants of one workload have in common."""
        return self.namespace, self.workload.kind, self.workload.name

    @property
    def engine(self) -> str:
        """The workload in messages."""
        return f"{self.workload.kind} {self.workload.name}"

    @property
    def model_field(self) -> str:
        """The field that has the name of the model."""
        return "spec.modelID" if self.title.startswith("VariantAutoscaling") else MODEL_ID

    @property
    def runs_on(self) -> str | None:
        """The accelerator; the hint if nothing else tells it."""
        return self.accelerator or self.hint

    @property
    def own_profiles(self) -> list[VariantProfile]:
        """The profiles of its accelerator."""
        return [p for p in self.profiles if p.acc in (None, self.runs_on)]

    def fill_missing(self, other: "Variant") -> "Variant":
        """Return the variant, with what only another description of it tells."""
        missing = (f.name for f in fields(self) if getattr(self, f.name) in (None, ()))
        return replace(self, **{name: getattr(other, name) for name in missing})


def read_variants(documents: Sequence[Document], notes: list[str]) -> list[Variant]:
    """Return the variants that some objects describe, each once; notes get what is left out.

    Raises
    ------
    InputError
        An object cannot be read.
    """
    variants: dict[tuple[str, str, str], Variant] = {}
    workloads: dict[tuple[str, str, str], Variant] = {}
    for document in documents:
        content = as_mapping(document.content)
        kind, group = content.get("kind"), str(content.get("apiVersion", "")).partition("/")[0]
        found, into = None, variants
        if kind == "VariantAutoscaling" and group == GROUP:
            found = read_variant_autoscaling(document.origin, content, notes)
        elif kind in AUTOSCALERS:
            found = read_autoscaler(document.origin, content, notes)
        elif kind in WORKLOADS:
            found, into = read_workload(content), workloads
        if found:
            before = into.get(found.key)
            into[found.key] = before.fill_missing(found) if before else found
    return [
        variant.fill_missing(workloads.get(key) or workloads.get(("", *key[1:]), variant))
        for key, variant in variants.items()
    ]


def read_variant_autoscaling(origin: str, content: Mapping[str, Any], notes: list[str]) -> Variant:
    """Return the variant of a VariantAutoscaling."""
    form = read_form(VariantAutoscaling, content, origin)
    spec, metadata = form.spec, form.metadata
    title = f"VariantAutoscaling {'/'.join(filter(None, (metadata.namespace, metadata.name)))}"
    notes += spec.list_unknown(f"{title}: spec.")
    own = () if spec.variant_profile is None else (spec.variant_profile,)
    profiles = (*own, *spec.model_profile.accelerators)
    status = as_mapping(content.get("status"))
    running = (
        as_mapping(status.get(name)).get("numReplicas")
        for name in ("currentAlloc", "desiredOptimizedAlloc")
    )
    return Variant(
        title=title,
        namespace=metadata.namespace,
        workload=spec.scale_target_ref or ScaleTarget(name=metadata.name),
        model=spec.model_id,
        accelerator=spec.accelerator
        or spec.accelerator_type
        or (profiles[0].acc if len(profiles) == 1 else None),
        hint=metadata.labels.get(ACCELERATOR),
        count=spec.accelerator_count,
        cost=spec.variant_cost,
        least=spec.min_replicas,
        most=spec.max_replicas,
        replicas=next((count for count in running if isinstance(count, int)), None),
        profiles=profiles,
    )


def read_autoscaler(origin: str, content: Mapping[str, Any], notes: list[str]) -> Variant | None:
    """Return the variant of an annotated autoscaler; None of those of others."""
    described = as_mapping(content.get("metadata"))
    owners = described.get("ownerReferences") or ()
    # KEDA copies the annotations of a ScaledObject to its HorizontalPodAutoscaler.
    of_keda = any(as_mapping(owner).get("kind") == "ScaledObject" for owner in owners)
    if as_mapping(described.get("annotations")).get(MANAGED) != "true" or of_keda:
        return None
    form = read_form(AnnotatedAutoscaler, content, origin)
    spec, metadata = form.spec, form.metadata
    title = f"{content['kind']} {'/'.join(filter(None, (metadata.namespace, metadata.name)))}"
    labels = {**metadata.labels, **metadata.annotations}
    if labels.get(ROLE) == "prefill":
        notes.append(f"{title}: {ROLE}: prefill: left out: replicas of a Server do both phases")
        return None
    cost = None
    if COST in labels:
        number = read_number(labels[COST])
        if isinstance(number, float) and math.isfinite(number) and number >= 0:
            cost = number
        else:
            notes.append(f"{title}: {COST}: {labels[COST]!r} is not a number of at least 0")
    return Variant(
        title=title,
        namespace=metadata.namespace,
        workload=spec.scale_target_ref,
        model=labels.get(MODEL_ID) or None,
        hint=labels.get(ACCELERATOR),
        cost=cost,
        least=spec.min_replicas if spec.min_replicas is not None else spec.min_replica_count,
        most=spec.max_replicas if spec.max_replicas is not None else spec.max_replica_count,
    )


def read_workload(content: Mapping[str, Any]) -> Variant:
    """Return what a workload tells of the variant that it is."""
    metadata, spec = as_mapping(content.get("metadata")), as_mapping(content.get("spec"))
    kind, name = str(content["kind"]), str(metadata.get("name", ""))
    group = as_mapping(spec.get("leaderWorkerTemplate"))
    worker = as_mapping(group.get("workerTemplate") or spec.get("template"))
    leader, size = as_mapping(group.get("leaderTemplate")) or worker, group.get("size", 1)
    workers = size - 1 if isinstance(size, int) else 0
    pods = [as_mapping(each.get("spec")) for each in (leader, *[worker] * workers)]
    containers = [as_mapping(each) for pod in pods for each in pod.get("containers") or ()]
    replicas, cards = spec.get("replicas", 1), sum(map(count_wva_cards, containers)) or None
    command = next(filter(None, map(read_command, containers)), None)
    selectors = [selector for pod in pods if (selector := read_selector(pod))]
    by_label = (each[label] for each in selectors for label in card_labels() if each.get(label))
    return Variant(
        title=f"{kind} {name}",
        namespace=str(metadata.get("namespace", "")),
        workload=ScaleTarget(
            api_version=str(content.get("apiVersion", "")), kind=kind, name=name or kind
        ),
        accelerator=next(by_label, None),
        count=cards or (command.cards if command else None),
        replicas=replicas if isinstance(replicas, int) else None,
        selector=next(iter(selectors), {}),
        command=command,
        cards=cards,
    )


@cache
def card_catalogue() -> CardCatalogue:
    """Return the resources and labels of nodes that stand for cards."""
    return read_built_in_cards()


def card_labels() -> list[str]:
    """Return the labels of nodes whose value is the name of a card."""
    return [label.label for label in card_catalogue().labels if not label.is_code]


def count_wva_cards(container: Mapping[str, Any]) -> int:
    """Return the cards that a container asks for."""
    resources = as_mapping(container.get("resources"))
    asked = {**as_mapping(resources.get("requests")), **as_mapping(resources.get("limits"))}
    counts = (str(count) for name, count in asked.items() if card_catalogue().is_card(name))
    return sum(int(count) for count in counts if count.isdecimal())


def read_selector(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels that the node of a pod must have, also by a required node affinity."""
    node = as_mapping(as_mapping(pod.get("affinity")).get("nodeAffinity"))
    required = as_mapping(node.get("requiredDuringSchedulingIgnoredDuringExecution"))
    wanted: dict[str, str] = {}
    for term in required.get("nodeSelectorTerms") or ():
        for expression in map(as_mapping, as_mapping(term).get("matchExpressions") or ()):
            values: Sequence[Any] = expression.get("values") or ()
            if expression.get("operator") == "In" and len(values) == 1:
                wanted[str(expression.get("key"))] = str(values[0])
    own = as_mapping(pod.get("nodeSelector"))
    return wanted | {str(label): str(value) for label, value in own.items()}


def read_command(container: Mapping[str, Any]) -> EngineCommand | None:
    """Return what the command of a container says; None if it names no model."""
    words = list(split_command(container))
    options: dict[str, str] = {}
    for word, following in pairwise([*words, "-"]):
        if word.startswith("-"):
            name, has_value, value = word.lstrip("-").partition("=")
            if has_value or not following.startswith("-"):
                options[name.replace("_", "-")] = value if has_value else following
    model = next((options[name] for name in MODEL_OPTIONS if name in options), None)
    if model is None:
        after = (word for one, word in pairwise(words) if one.rpartition("/")[2] in SERVE_COMMANDS)
        model = next((word for word in after if not word.startswith("-")), None)
    if model is None or "$" in model:
        return None
    batch = next((name for name in BATCH_OPTIONS if options.get(name, "").isdecimal()), "")
    sizes = [name for name in CARD_OPTIONS if options.get(name, "").isdecimal()]
    return EngineCommand(
        model,
        int(options[batch]) if batch else None,
        f"--{batch}" if batch else "",
        math.prod(int(options[name]) for name in sizes) if sizes else None,
        " ".join(f"--{name} {options[name]}" for name in sizes),
    )


def split_command(container: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of a command, also of a script for a shell, with its variables filled in."""
    variables = {
        str(each.get("name")): str(each["value"])
        for each in map(as_mapping, container.get("env") or ())
        if "value" in each
    }

    def value_of(match: re.Match[str]) -> str:
        return variables.get(next(filter(None, match.groups())), match[0])

    for word in (*(container.get("command") or ()), *(container.get("args") or ())):
        text = VARIABLE.sub(value_of, str(word))
        try:
            yield from shlex.split(text) if re.search(r"\s", text) else [text]
        except ValueError:  # a quotation mark that is not closed
            yield text


# ConfigMaps: what an entry is for is told by its fields.


@dataclass(slots=True)
class WvaSettings:
    """What the ConfigMaps say, and what of it has no counterpart (`notes`).

    Targets of the queueing model, and whether there may be no replica, are by namespace and model;
    without a namespace, of all.
    """

    costs: dict[str, UnitCost] = field(default_factory=dict)
    classes: list[ClassOfService] = field(default_factory=list)
    targets: dict[tuple[str, str], QueueingSetting] = field(default_factory=dict)
    zero: dict[tuple[str, str], bool] = field(default_factory=dict)
    interval_s: int = 60
    notes: list[str] = field(default_factory=list)

    def may_be_zero(self, namespace: str, model: str) -> bool:
        """Whether a model may have no replica."""
        keys = ((namespace, model), ("", model), ANY_MODEL)
        return next((self.zero[key] for key in keys if key in self.zero), False)

    def find_accelerator(self, device: str) -> str:
        """Return the accelerator with this device; else the name is that of an accelerator."""
        of_device = (name for name, cost in self.costs.items() if cost.device == device)
        return device if device in self.costs else next(of_device, device)

    def add(self, origin: str, title: str, key: str, value: object) -> None:
        """Add an entry by what its fields are for."""
        given = as_mapping(value)
        part: OpenPart
        if "cost" in given:
            part = self.costs[key] = read_form(UnitCost, given, origin, title)
        elif "data" in given:
            part = read_form(ClassOfService, given, origin, title)
            self.classes.append(part)
        elif given.keys() & {"enable_scale_to_zero", "retention_period"}:
            part = zero = read_form(ZeroSetting, given, origin, title)
            if zero.enable_scale_to_zero is not None:
                self.zero[zero.namespace, zero.model_id] = zero.enable_scale_to_zero
        elif given.keys() & {"targetTTFT", "targetITL", "sloMultiplier"}:
            part = queueing = read_form(QueueingSetting, given, origin, title)
            self.targets[queueing.namespace, queueing.model_id] = queueing
        else:
            names = f": {', '.join(map(str, given))}" if given else ""
            self.notes.append(f"{title}{names}: no counterpart")
            return
        self.notes += part.list_unknown(f"{title}: ")
        for target in part.data if isinstance(part, ClassOfService) else ():
            self.notes += target.list_unknown(f"{title}: {target.model}: ")

    def add_controller_settings(self, title: str, given: Mapping[str, object]) -> None:
        """Add the settings of WVA's controller."""
        rest = dict(given)
        interval = parse_duration(str(rest.get("GLOBAL_OPT_INTERVAL", "")))
        if interval is not None and interval >= 1:
            self.interval_s = round(interval)
            del rest["GLOBAL_OPT_INTERVAL"]
        if "WVA_SCALE_TO_ZERO" in rest:
            enabled = str(rest.pop("WVA_SCALE_TO_ZERO")).lower() in {"true", "1"}
            self.zero.setdefault(ANY_MODEL, enabled)
        if rest:
            names = ", ".join(sorted(map(str, rest)))
            self.notes.append(
                f"{title}: {names}: settings of the WVA controller; this operator reads INFERNO_*"
                " variables"
            )


def read_settings(documents: Iterable[Document]) -> WvaSettings:
    """Read the ConfigMaps of WVA among some objects.

    Raises
    ------
    InputError
        A value cannot be read.
    """
    settings = WvaSettings()
    for document in documents:
        content = as_mapping(document.content)
        metadata = as_mapping(content.get("metadata"))
        name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
        if content.get("kind") != "ConfigMap" or not OURS.search(name):
            continue
        title = f"ConfigMap {'/'.join(filter(None, (namespace, name)))}"
        plain: dict[str, object] = {}
        for key, text in as_mapping(content.get("data")).items():
            try:
                value = yaml.safe_load(str(text))
            except yaml.YAMLError as error:
                problem = " ".join(str(error).split())
                raise InputError(
                    f"{document.origin}: {title}: {key}: not YAML: {problem}"
                ) from error
            if (
                isinstance(value, Mapping)
                and value
                and all(SETTING.fullmatch(str(k)) for k in value)
            ):
                plain |= value
            elif SETTING.fullmatch(str(key)) and not isinstance(value, Mapping):
                plain[str(key)] = value
            else:
                settings.add(document.origin, f"{title}: {key}", str(key), value)
        settings.add_controller_settings(title, plain)
    return settings
