"""The variants that WVA scales: workloads that serve a model, each on one accelerator."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from inferno_operator.cli.offline.documents import Document
from inferno_operator.cli.offline.wva.engine_commands import EngineCommand, read_command
from inferno_operator.cli.offline.wva.forms import (
    AnnotatedAutoscaler,
    ScaleTarget,
    VariantAutoscaling,
    VariantProfile,
    read_form,
)
from inferno_operator.controllers.capacity.catalogue import CardCatalogue, built_in

GROUP = "llmd.ai"
AUTOSCALERS = frozenset({"HorizontalPodAutoscaler", "ScaledObject"})
WORKLOADS = frozenset({"Deployment", "LeaderWorkerSet", "StatefulSet"})

MANAGED, MODEL_ID, COST = "llm-d.ai/managed", "llm-d.ai/model-id", "llm-d.ai/variant-cost"
ROLE = "llm-d.ai/role"
ACCELERATOR = "inference.optimization/acceleratorName"

PREFILL = "prefill"
"""The role of workers that are no replicas of a model."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A workload that serves a model, and what its objects tell; None is not told.

    Attributes
    ----------
    title
        The object that describes it, for messages.
    namespace
        Where it is.
    workload
        What is scaled.
    model
        The name by which users request the model.
    accelerator, hint
        What it runs on: as the object says, or a label that pods need not have.
    count
        Accelerators of a replica.
    cost
        Cost of a replica, in whatever unit.
    least, most
        Bounds of the replicas.
    replicas
        Those that run.
    profiles
        How a replica performs; a profile without an accelerator is that of its own.
    selector
        The labels of nodes that its pods ask for; None without its workload.
    command
        What its engine was started with.
    cards
        Cards that the pods of a replica ask for.
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
    def model_field(self) -> str:
        """The field that has the name of the model."""
        return "spec.modelID" if self.title.startswith("VariantAutoscaling") else MODEL_ID

    @property
    def runs_on(self) -> str | None:
        """The accelerator; the hint if nothing else tells it."""
        return self.accelerator or self.hint

    def with_missing_of(self, other: "Variant") -> "Variant":
        """The variant, with what only another description of it tells."""
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
        content = _mapping(document.content)
        kind = content.get("kind")
        if kind == "VariantAutoscaling" and _group(content) == GROUP:
            _add(variants, _of_variant_autoscaling(document, content, notes))
        elif kind in AUTOSCALERS and _is_managed(content):
            variant = _of_autoscaler(document, content, notes)
            if variant:
                _add(variants, variant)
        elif kind in WORKLOADS:
            _add(workloads, _of_workload(content))
    return [
        variant.with_missing_of(workloads.get(key) or workloads.get(("", *key[1:]), variant))
        for key, variant in variants.items()
    ]


def _add(found: dict[tuple[str, str, str], Variant], variant: Variant) -> None:
    before = found.get(variant.key)
    found[variant.key] = before.with_missing_of(variant) if before else variant


def _group(content: Mapping[str, Any]) -> str:
    return str(content.get("apiVersion", "")).partition("/")[0]


def _of_variant_autoscaling(
    document: Document, content: Mapping[str, Any], notes: list[str]
) -> Variant:
    form = read_form(VariantAutoscaling, content, document.origin)
    spec, metadata = form.spec, form.metadata
    title = f"VariantAutoscaling {_named(metadata.namespace, metadata.name)}"
    notes += (f"{title}: spec.{name}: no counterpart" for name in spec.without_counterpart)
    own = () if spec.variant_profile is None else (spec.variant_profile,)
    profiles = (*own, *spec.model_profile.accelerators)
    only = profiles[0].acc if len(profiles) == 1 else None
    return Variant(
        title=title,
        namespace=metadata.namespace,
        workload=spec.scale_target_ref or ScaleTarget(name=metadata.name),
        model=spec.model_id,
        accelerator=spec.accelerator or spec.accelerator_type or only,
        hint=metadata.labels.get(ACCELERATOR),
        count=spec.accelerator_count,
        cost=spec.variant_cost,
        least=spec.min_replicas,
        most=spec.max_replicas,
        replicas=_replicas_in_status(content),
        profiles=profiles,
    )


def _replicas_in_status(content: Mapping[str, Any]) -> int | None:
    status = _mapping(content.get("status"))
    for name in ("currentAlloc", "desiredOptimizedAlloc"):
        count = _mapping(status.get(name)).get("numReplicas")
        if isinstance(count, int):
            return count
    return None


def _is_managed(content: Mapping[str, Any]) -> bool:
    """Whether WVA scales by an autoscaler; KEDA copies the annotations to its HPA."""
    metadata = _mapping(content.get("metadata"))
    owners = metadata.get("ownerReferences") or ()
    of_keda = any(_mapping(owner).get("kind") == "ScaledObject" for owner in owners)
    return _mapping(metadata.get("annotations")).get(MANAGED) == "true" and not of_keda


def _of_autoscaler(
    document: Document, content: Mapping[str, Any], notes: list[str]
) -> Variant | None:
    form = read_form(AnnotatedAutoscaler, content, document.origin)
    spec, metadata = form.spec, form.metadata
    title = f"{content['kind']} {_named(metadata.namespace, metadata.name)}"
    labels = {**metadata.labels, **metadata.annotations}
    if labels.get(ROLE) == PREFILL:
        notes.append(f"{title}: {ROLE}: {PREFILL}: left out: replicas of a Server do both phases")
        return None
    least = spec.min_replicas if spec.min_replicas is not None else spec.min_replica_count
    most = spec.max_replicas if spec.max_replicas is not None else spec.max_replica_count
    return Variant(
        title=title,
        namespace=metadata.namespace,
        workload=spec.scale_target_ref,
        model=labels.get(MODEL_ID) or None,
        hint=labels.get(ACCELERATOR),
        cost=_cost(labels.get(COST), title, notes),
        least=least,
        most=most,
    )


def _cost(text: str | None, title: str, notes: list[str]) -> float | None:
    if text is None:
        return None
    try:
        cost = float(text)
    except ValueError:
        cost = math.nan
    if math.isfinite(cost) and cost >= 0:
        return cost
    notes.append(f"{title}: {COST}: {text!r} is not a number of at least 0")
    return None


def _of_workload(content: Mapping[str, Any]) -> Variant:
    """What a workload tells of the variant that it is."""
    metadata, spec = _mapping(content.get("metadata")), _mapping(content.get("spec"))
    kind, name = str(content["kind"]), str(metadata.get("name", ""))
    pods = list(_pods(spec))
    replicas, cards = spec.get("replicas", 1), sum(map(_cards, pods)) or None
    commands = (read_command(_mapping(c)) for pod in pods for c in pod.get("containers") or ())
    command = next(filter(None, commands), None)
    return Variant(
        title=f"{kind} {name}",
        namespace=str(metadata.get("namespace", "")),
        workload=ScaleTarget(
            api_version=str(content.get("apiVersion", "")), kind=kind, name=name or kind
        ),
        accelerator=next((card for pod in pods if (card := _card(pod))), None),
        count=cards or (command.cards if command else None),
        replicas=replicas if isinstance(replicas, int) else None,
        selector=next((wanted for pod in pods if (wanted := _selector(pod))), {}),
        command=command,
        cards=cards,
    )


def _pods(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The specs of the pods of one replica."""
    group = _mapping(spec.get("leaderWorkerTemplate"))
    worker = _mapping(group.get("workerTemplate") or spec.get("template"))
    yield _mapping((_mapping(group.get("leaderTemplate")) or worker).get("spec"))
    size = group.get("size", 1)
    for _ in range(size - 1 if isinstance(size, int) else 0):
        yield _mapping(worker.get("spec"))


@cache
def _catalogue() -> CardCatalogue:
    return built_in()


def _cards(pod: Mapping[str, Any]) -> int:
    """The cards that the containers of a pod ask for."""
    catalogue, total = _catalogue(), 0
    for container in pod.get("containers") or ():
        resources = _mapping(_mapping(container).get("resources"))
        asked = {**_mapping(resources.get("requests")), **_mapping(resources.get("limits"))}
        counts = (str(count) for name, count in asked.items() if catalogue.is_card(name))
        total += sum(int(count) for count in counts if count.isdecimal())
    return total


def card_labels() -> list[str]:
    """Return the labels of nodes whose value is the name of a card."""
    return [label.label for label in _catalogue().labels if not label.is_code]


def _card(pod: Mapping[str, Any]) -> str | None:
    """The card that the node of a pod must have, by a label that names it."""
    wanted = _selector(pod)
    return next((wanted[label] for label in card_labels() if label in wanted), None)


def _selector(pod: Mapping[str, Any]) -> dict[str, str]:
    """The labels that the node of a pod must have."""
    wanted = {**dict(_affinity(pod)), **_mapping(pod.get("nodeSelector"))}
    return {str(label): str(value) for label, value in wanted.items()}


def _affinity(pod: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Labels with the one value that a required node affinity allows."""
    node = _mapping(_mapping(pod.get("affinity")).get("nodeAffinity"))
    required = _mapping(node.get("requiredDuringSchedulingIgnoredDuringExecution"))
    for term in required.get("nodeSelectorTerms") or ():
        for expression in map(_mapping, _mapping(term).get("matchExpressions") or ()):
            values: Sequence[Any] = expression.get("values") or ()
            if expression.get("operator") == "In" and len(values) == 1:
                yield str(expression.get("key")), str(values[0])


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _named(namespace: str, name: str) -> str:
    return "/".join(filter(None, (namespace, name)))


def documents_of_kind(documents: Iterable[Document], kind: str) -> list[Document]:
    """The objects of a kind."""
    return [d for d in documents if _mapping(d.content).get("kind") == kind]
