"""Translates the configuration of WVA into our objects; pure.

WVA scales variants: workloads that serve a model, each on one accelerator. The variants of a model
in a namespace become one Server with a workload for each accelerator. Everything without a
counterpart is told in a line.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from inferno_operator.cli.offline.documents import Document
from inferno_operator.cli.offline.manifests import count_others, object_name
from inferno_operator.cli.offline.wva.config_maps import WvaSettings, read_config_maps
from inferno_operator.cli.offline.wva.forms import ClassOfService, ModelTarget, VariantProfile
from inferno_operator.cli.offline.wva.variants import (
    Variant,
    card_labels,
    documents_of_kind,
    read_variants,
)
from inferno_operator.resources import (
    Accelerator,
    AcceleratorSpec,
    Allocation,
    Capacity,
    CapacitySpec,
    Measure,
    Metadata,
    Model,
    ModelSpec,
    Optimizer,
    OptimizerData,
    OptimizerParameters,
    OptimizerSpec,
    PerformanceData,
    Resource,
    Server,
    ServerAllocation,
    ServerSpec,
    ServiceClass,
    ServiceClassSpec,
    Target,
    Workload,
    parse,
)
from inferno_operator.runtime.texts import listed
from inferno_optimizer.errors import InputError
from inferno_optimizer.suggestions import alternatives

Manifest = dict[str, Any]

DEFAULT_COST = 10.0
"""What WVA takes for the cost of a replica that has none."""

DEFAULT_BATCH = 256
"""What WVA takes for the largest batch of a replica."""

ANY_LENGTH = 2**20
"""Tokens of a request up to which the largest batch is as large: that of WVA has no length."""

LABELS_NAMED = 4
"""How many labels of cards a message names."""

LEAST_IMPORTANT = 100
DEFAULT_CLASS = "Default"

NOTHING = (
    "nothing to migrate: no VariantAutoscaling, and no HorizontalPodAutoscaler or ScaledObject with"
    ' the annotation llm-d.ai/managed: "true"'
)


@dataclass(frozen=True, slots=True)
class Migration:
    """Our objects, and a line for each thing that has no counterpart."""

    manifests: Sequence[Manifest]
    notes: Sequence[str]

    @property
    def text(self) -> str:
        """The objects as YAML."""
        documents: str = yaml.safe_dump_all(self.manifests, sort_keys=False, allow_unicode=True)
        return documents


def migrated(documents: Sequence[Document], accelerators: Sequence[str] = ()) -> Migration:
    """Return our objects for those of WVA; none if each workload is left out, and a note says why.

    Parameters
    ----------
    documents
        Objects of WVA, and the workloads.
    accelerators
        `WORKLOAD=NAME` for one workload, or a name for all that are on no known accelerator.

    Raises
    ------
    InputError
        An object of WVA cannot be read, or there is none; or an accelerator is for a workload
        that does not exist.
    """
    notes: list[str] = []
    variants = _with_accelerators(read_variants(documents, notes), accelerators)
    if not variants:
        raise InputError(f"{NOTHING}, but {count_others(documents)}")
    settings = read_config_maps(documents_of_kind(documents, "ConfigMap"))
    manifests: list[Manifest] = []
    for namespace in sorted({variant.namespace for variant in variants}):
        own = [variant for variant in variants if variant.namespace == namespace]
        manifests += _NamespaceObjects(namespace, settings, notes).of(own)
    for manifest in manifests:
        parse(manifest)
    return Migration(manifests, [*notes, *settings.notes])


def _with_accelerators(variants: Iterable[Variant], options: Iterable[str]) -> list[Variant]:
    """The variants with the accelerators of some options."""
    named: dict[str, str] = {}
    otherwise = None
    for option in options:
        workload, is_of_one, accelerator = option.rpartition("=")
        if is_of_one:
            named[workload] = accelerator
        else:
            otherwise = accelerator
    placed = [
        replace(v, accelerator=named.get(v.workload.name) or v.runs_on or otherwise)
        for v in variants
    ]
    known = [v.workload.name for v in placed]
    for workload in named.keys() - {*known}:
        near = alternatives(workload, known)
        raise InputError(f"--accelerator: no workload is named {workload!r}{near}")
    return placed


@dataclass(frozen=True, slots=True)
class _Placed:
    """A variant with the accelerator and the model that it certainly has."""

    variant: Variant
    model: str
    accelerator: str
    count: int


@dataclass(frozen=True, slots=True)
class _Performance:
    """How a replica performs on an accelerator, and how many of them it has."""

    count: int
    profile: VariantProfile
    variant: Variant | None = None

    @property
    def is_known(self) -> bool:
        """Whether there are parameters."""
        return bool(self.profile.perf_parms.decode_parms)


@dataclass(frozen=True, slots=True)
class _NamespaceObjects:
    """Makes the objects of a namespace."""

    namespace: str
    settings: WvaSettings
    notes: list[str]
    costs: dict[str, float] = field(default_factory=dict)
    """Costs of accelerators by name [cents/hour]."""

    def of(self, variants: Iterable[Variant]) -> Iterator[Manifest]:
        """Yield the objects for some variants."""
        placed = [one for variant in variants if (one := self._placed(variant))]
        models: dict[str, list[_Placed]] = {}
        for each in placed:
            models.setdefault(each.model, []).append(each)
        if not models:
            return
        profiles = {model: self._profiles(own) for model, own in models.items()}
        named = _object_names(self.costs)
        for name, cost in self.costs.items():
            spec = AcceleratorSpec.json_of(name=name, type=name, cost=_plain(cost))
            yield self._manifest(Accelerator, named[name], spec)
        names = _object_names(models)
        for model, own in profiles.items():
            yield self._manifest(Model, names[model], self._model(model, own))
        classes = {model: self._class_of(model) for model in models}
        yield from self._classes(classes.values())
        for model, placings in models.items():
            server = self._server(names[model], placings, classes[model].name)
            yield self._manifest(Server, names[model], server)
        yield self._manifest(Capacity, "cards", CapacitySpec.json_of(from_nodes=True))
        several = any(len({each.accelerator for each in own}) > 1 for own in models.values())
        yield self._manifest(Optimizer, "inferno", self._optimizer(heterogeneous=several))

    def _manifest(self, kind: type[Resource], name: str, spec: Manifest) -> Manifest:
        metadata = Metadata.json_of(name=name, namespace=self.namespace or None)
        return kind.json_of(metadata=metadata, spec=spec)

    def _placed(self, variant: Variant) -> _Placed | None:
        if variant.runs_on is None:
            self._tell(f"{variant.title}: left out: {_why_nowhere(variant)}")
            return None
        model = variant.model
        if model is None:
            model = variant.workload.name
            self._tell(
                f"{variant.title}: no llm-d.ai/model-id: the model is called {model!r}; write the"
                " label model_name of its metrics"
            )
        accelerator = self.settings.accelerator_of(variant.runs_on)
        counts = [p.acc_count for p in variant.profiles if p.acc in (None, variant.runs_on)]
        count = variant.count or next(filter(None, counts), None)
        if count is None:
            self._tell(f"{variant.title}: 1 {accelerator} for each replica: nothing tells how many")
        placed = _Placed(variant, model, accelerator, count or 1)
        self._compare(placed)
        self._price(placed)
        return placed

    def _compare(self, placed: _Placed) -> None:
        """Tell where the engine was started with something else than its variant says."""
        variant, model = placed.variant, placed.model
        command, workload = variant.command, variant.workload
        if command is None:
            return
        engine = f"{workload.kind} {workload.name}"
        if command.model not in (None, model):
            self._tell(
                f"{variant.title}: {variant.model_field} is {model!r}, and {engine} serves"
                f" {command.model!r}: spec.measure takes that as model_name"
            )
        if command.cards not in (None, placed.count):
            self._tell(
                f"{variant.title}: {placed.count} {placed.accelerator} for each replica, and"
                f" {engine} runs on {command.cards} ({command.cards_options}): correct accCount of"
                f" Model {model}"
            )
        elif variant.cards not in (None, placed.count):
            self._tell(
                f"{variant.title}: {placed.count} {placed.accelerator} for each replica, and the"
                f" pods of {engine} ask for {variant.cards}: correct accCount of Model {model}"
            )
        batches = [
            profile.max_batch_size
            for profile in variant.profiles
            if profile.acc in (None, variant.runs_on) and profile.max_batch_size
        ]
        if batches and command.batch not in (None, batches[0]):
            self._tell(
                f"{variant.title}: a batch of {batches[0]} (maxBatchSize), and {engine} takes"
                f" {command.batch} ({command.batch_option}): correct maxBatchSize of Model {model}"
            )

    def _price(self, placed: _Placed) -> None:
        """Find the cost of the accelerator: WVA has it of a replica, without a unit."""
        variant, name = placed.variant, placed.accelerator
        own = None if variant.cost is None else variant.cost / placed.count
        listed = self.settings.costs.get(name)
        if listed is not None:
            price = listed.cost
        elif name in self.costs:
            price = self.costs[name]
        else:
            price = DEFAULT_COST / placed.count if own is None else own
            source = "no cost is given" if own is None else "the cost of its variant has no unit"
            self._tell(f"Accelerator {name}: {price:g} cents/hour: {source}")
        self.costs[name] = price
        if own is not None and own != price:
            self._tell(
                f"{variant.title}: cost {variant.cost:g} of a replica: not used:"
                f" {name} costs {price:g} cents/hour"
            )

    def _profiles(self, variants: Sequence[_Placed]) -> dict[str, _Performance]:
        """How replicas of a model perform, by accelerator."""
        performance: dict[str, _Performance] = {}
        for placed in variants:
            for profile in placed.variant.profiles or (VariantProfile(),):
                name = self.settings.accelerator_of(profile.acc or placed.accelerator)
                count = placed.count if name == placed.accelerator else profile.acc_count or 1
                before = performance.get(name)
                if self._is_priced(name, placed) and not (before and before.is_known):
                    own = placed.variant if name == placed.accelerator else None
                    performance[name] = _Performance(count, profile, own)
            unknown = _Performance(placed.count, VariantProfile(), placed.variant)
            performance.setdefault(placed.accelerator, unknown)
        running = {placed.accelerator for placed in variants}
        for name in filter(lambda name: name not in running, performance):
            self._tell(
                f"Model {variants[0].model}: {name}: nothing of it runs there: plans leave it out"
                " until spec.workloads of the Server names an object"
            )
        return performance

    def _is_priced(self, accelerator: str, placed: _Placed) -> bool:
        """Whether an accelerator has a cost; else tell that it is left out."""
        if accelerator in self.costs:
            return True
        listed = self.settings.costs.get(accelerator)
        if listed is None:
            self._tell(f"{placed.variant.title}: {accelerator}: left out: it has no cost")
            return False
        self.costs[accelerator] = listed.cost
        return True

    def _model(self, name: str, performance: Mapping[str, _Performance]) -> Manifest:
        data = [self._data(name, acc, each) for acc, each in performance.items()]
        unknown = not all(each.is_known for each in performance.values())
        return ModelSpec.json_of(name=name, calibrate="Use" if unknown else None, data=data)

    def _data(self, model: str, accelerator: str, found: _Performance) -> Manifest:
        """How a replica performs on an accelerator; parameters of 0 are to be calibrated."""
        profile = found.profile
        if not found.is_known:
            self._tell(
                f"Model {model}: {accelerator}: no performance parameters: no plan before the"
                " operator has measured replicas there (calibrate: Use), or you have"
                " (inferno calibrate)"
            )
        command = found.variant.command if found.variant else None
        started_with = command.batch if command else None
        batch = profile.max_batch_size or started_with or DEFAULT_BATCH
        if profile.max_batch_size is None:
            source = "no maxBatchSize is given"
            if found.variant and command and started_with:
                workload = found.variant.workload
                source = f"{command.batch_option} of {workload.kind} {workload.name}"
            self._tell(f"Model {model}: {accelerator}: a batch of {batch}: {source}")
        decode, prefill = profile.perf_parms.decode_parms, profile.perf_parms.prefill_parms
        return PerformanceData.json_of(
            acc=accelerator,
            acc_count=found.count,
            decode_parms={letter: _plain(decode.get(letter, 0)) for letter in ("alpha", "beta")},
            prefill_parms={letter: _plain(prefill.get(letter, 0)) for letter in ("gamma", "delta")},
            max_batch_size=batch,
            at_tokens=ANY_LENGTH,
            max_num_seqs=batch,
        )

    def _class_of(self, model: str) -> ClassOfService:
        """The class of a model: the most important one that has it, or one of its own."""
        having = [c for c in self.settings.classes if any(t.model == model for t in c.data)]
        if having:
            chosen, *others = sorted(having, key=lambda c: c.priority or LEAST_IMPORTANT)
            if others:
                names = ", ".join(c.name for c in others)
                self._tell(f"Model {model}: class {chosen.name}: also in {names}; WVA takes any")
            return chosen
        return self._own_class(model)

    def _own_class(self, model: str) -> ClassOfService:
        """The class of a model that is in no class: its own targets, or none."""
        targets = self.settings.targets
        own = targets.get((self.namespace, model)) or targets.get(("", model))
        if own is None or not (own.target_ttft or own.target_itl):
            self._tell(
                f"Model {model}: no targets: write slo-itl and slo-ttft [ms] into ServiceClass"
                f" {DEFAULT_CLASS}; without them replicas are as full as they can be"
            )
        target = ModelTarget(
            model=model,
            slo_tpot=own.target_itl if own else None,
            slo_ttft=own.target_ttft if own else None,
        )
        return ClassOfService(name=DEFAULT_CLASS, priority=LEAST_IMPORTANT, data=(target,))

    def _classes(self, used: Iterable[ClassOfService]) -> Iterator[Manifest]:
        """The classes of the ConfigMaps, and the one of all models that are in none."""
        own = [each for each in used if each not in self.settings.classes]
        together = [_with_targets(own[0], own)] if own else []
        classes = [*self.settings.classes, *together]
        names = _object_names(each.name for each in classes)
        for each in classes:
            data = [_target(target) for target in each.data]
            spec = ServiceClassSpec.json_of(name=each.name, priority=each.priority, data=data)
            yield self._manifest(ServiceClass, names[each.name], spec)

    def _server(self, name: str, variants: Sequence[_Placed], service_class: str) -> Manifest:
        kept: dict[str, _Placed] = {}
        for placed in variants:
            first = kept.setdefault(placed.accelerator, placed)
            if first is not placed:
                self._tell(
                    f"{placed.variant.title}: left out: {first.variant.workload.name} is on"
                    f" {placed.accelerator} too, and a Server has one workload for each accelerator"
                )
        labels = {"namespace": self.namespace} if self.namespace else {}
        model = variants[0].model
        served = {p.variant.command.model for p in kept.values() if p.variant.command}
        served_name = served.pop() if len(served) == 1 else None
        return ServerSpec.json_of(
            name=name,
            service_class=service_class,
            model=model,
            min_num_replicas=self._least(name, model, list(kept.values())),
            current_alloc=_current({acc: placed.variant.replicas for acc, placed in kept.items()}),
            workloads=[_workload(acc, placed.variant) for acc, placed in kept.items()],
            actuation="Publish",
            measure=Measure.json_of(
                source="vLLM", labels={**labels, "model_name": served_name or model}
            ),
        )

    def _least(self, server: str, model: str, variants: Sequence[_Placed]) -> int:
        """The fewest replicas of all variants together."""
        for placed in variants:
            if placed.variant.most is not None:
                self._tell(
                    f"{placed.variant.title}: at most {placed.variant.most} replicas:"
                    " no counterpart: the cards of the Capacity are the limit"
                )
        bounds = [placed.variant.least or 0 for placed in variants]
        if len(bounds) > 1 and any(bounds):
            self._tell(
                f"Server {server}: minNumReplicas {sum(bounds)} is the sum of its variants: a"
                " Server has one minimum for all its accelerators"
            )
        if not self.settings.may_be_zero(self.namespace, model):
            return max(sum(bounds), 1)
        if not any(bounds):
            self._tell(
                f"Server {server}: minNumReplicas 0: the Server keeps one replica all the same,"
                " because its engines measure the load"
            )
        return sum(bounds)

    def _optimizer(self, *, heterogeneous: bool) -> Manifest:
        options = OptimizerParameters.json_of(
            unlimited=False, heterogeneous=heterogeneous, milp_solver=True, use_cplex=False
        )
        return OptimizerSpec.json_of(
            optimize=False,
            interval=self.settings.interval_s,
            mode="Recommend",
            data=OptimizerData.json_of(optimizer=options),
        )

    def _tell(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def _why_nowhere(variant: Variant) -> str:
    """Why the accelerator of a variant is not known, and what to do."""
    workload = variant.workload
    option = f"--accelerator {workload.name}=NAME"
    if variant.selector is None:
        return f"on which accelerator is {workload.name}? Give its {workload.kind} too, or {option}"
    where = f"{workload.kind} {workload.name}"
    wanted = ", ".join(f"{label}: {value}" for label, value in variant.selector.items())
    seen = (
        f"the nodeSelector of {where} ({wanted}) names no known card"
        if wanted
        else f"{where} has no nodeSelector"
    )
    labels = listed(card_labels(), LABELS_NAMED)
    return f"{seen}: give {option}, or a nodeSelector with one of {labels}"


def _with_targets(first: ClassOfService, classes: Iterable[ClassOfService]) -> ClassOfService:
    """A class with the targets of several."""
    data = tuple(target for each in classes for target in each.data)
    return first.model_copy(update={"data": data})


def _target(target: ModelTarget) -> Manifest:
    limits = {"slo_itl": target.slo_tpot, "slo_ttft": target.slo_ttft}
    given = {name: _plain(limit) for name, limit in limits.items() if limit}
    return Target.json_of(model=target.model, **given)


def _plain(number: float) -> float:
    """A number as people write it: without a fraction of zero."""
    return int(number) if float(number).is_integer() else number


def _workload(accelerator: str, variant: Variant) -> Manifest:
    return Workload.json_of(accelerator=accelerator) | variant.workload.to_json()


def _current(replicas: Mapping[str, int | None]) -> Manifest | None:
    """What runs; None where it is not told."""
    counts = {name: count for name, count in replicas.items() if count is not None}
    if not counts:
        return None
    parts = [
        Allocation.json_of(accelerator=name, num_replicas=count)
        for name, count in counts.items()
        if count
    ]
    if len(parts) == 1:
        return parts[0]
    most = max(counts, key=lambda name: counts[name]) if parts else ""
    total = sum(counts.values())
    return ServerAllocation.json_of(accelerator=most, num_replicas=total, mix=parts or None)


def _object_names(names: Iterable[str]) -> dict[str, str]:
    """Names of objects by names of ours, each once."""
    object_names: dict[str, str] = {}
    for name in names:
        plain = object_name(name)
        same = sum(other.startswith(plain) for other in object_names.values())
        object_names[name] = f"{plain[:60]}-{same + 1}" if plain in object_names.values() else plain
    return object_names
