"""Translates the configuration of WVA into our objects; pure.

The variants of a model in a namespace become one Server with a workload for each accelerator. What
has no counterpart is told in a line.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inferno_operator.cli.offline.documents import Document
from inferno_operator.cli.offline.manifests import count_others, object_name
from inferno_operator.cli.offline.wva import (
    ClassOfService,
    ModelTarget,
    Variant,
    VariantProfile,
    WvaSettings,
    card_labels,
    read_settings,
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
from inferno_operator.runtime.texts import join_names
from inferno_optimizer.errors import InputError
from inferno_optimizer.suggestions import alternatives

Manifest = dict[str, Any]

LEAST_IMPORTANT = 100
DEFAULT_CLASS = "Default"
LABELS_NAMED = 4
DEFAULT_COST, DEFAULT_BATCH = 10.0, 256
"""What WVA takes for the cost of a replica that has none, and for its largest batch."""

ANY_LENGTH = 2**20
"""Tokens of a request up to which the largest batch is as large: that of WVA has no length."""


NOTHING = (
    "nothing to migrate: no VariantAutoscaling, and no HorizontalPodAutoscaler or ScaledObject with"
    ' the annotation llm-d.ai/managed: "true"'
)


def migrate(
    documents: Sequence[Document], accelerators: Sequence[str] = ()
) -> tuple[list[Manifest], list[str]]:
    """Return our objects for those of WVA, and a line for each thing that has no counterpart.

    There are no objects if each workload is left out; the lines say why.

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
    variants = read_variants(documents, notes)
    named = {w: acc for w, of_one, acc in (o.rpartition("=") for o in accelerators) if of_one}
    otherwise = next((o for o in reversed(accelerators) if "=" not in o), None)
    known = [variant.workload.name for variant in variants]
    for workload in named.keys() - {*known}:
        near = alternatives(workload, known)
        raise InputError(f"--accelerator: no workload is named {workload!r}{near}")
    if not variants:
        raise InputError(f"{NOTHING}, but {count_others(documents)}")
    variants = [
        replace(v, accelerator=named.get(v.workload.name) or v.runs_on or otherwise)
        for v in variants
    ]
    settings = read_settings(documents)
    manifests: list[Manifest] = []
    for namespace in sorted({variant.namespace for variant in variants}):
        own = [variant for variant in variants if variant.namespace == namespace]
        manifests += NamespaceMigration(namespace, settings, notes).build_objects(own)
    for manifest in manifests:
        parse(manifest)
    return manifests, [*notes, *settings.notes]


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
class NamespaceMigration:
    """Makes the objects of a namespace; `costs` are those of accelerators by name [cents/hour]."""

    namespace: str
    settings: WvaSettings
    notes: list[str]
    costs: dict[str, float] = field(default_factory=dict)

    def build_objects(self, variants: Iterable[Variant]) -> Iterator[Manifest]:
        """Yield the objects for some variants."""
        models: dict[str, list[_Placed]] = {}
        for variant in variants:
            if placed := self._place(variant):
                models.setdefault(placed.model, []).append(placed)
        if not models:
            return
        profiles = {model: self._collect_performance(own) for model, own in models.items()}
        names = _name_objects(self.costs)
        for name, cost in self.costs.items():
            spec = AcceleratorSpec.json_of(name=name, type=name, cost=_simplify(cost))
            yield self._build(Accelerator, names[name], spec)
        names = _name_objects(models)
        for model, performance in profiles.items():
            data = [self._build_data(model, acc, each) for acc, each in performance.items()]
            calibrate = None if all(each.is_known for each in performance.values()) else "Use"
            spec = ModelSpec.json_of(name=model, calibrate=calibrate, data=data)
            yield self._build(Model, names[model], spec)
        chosen = {model: self._choose_class(model) for model in models}
        yield from self._build_classes(chosen.values())
        for model, own in models.items():
            yield self._build(
                Server, names[model], self._build_server(names[model], own, chosen[model].name)
            )
        yield self._build(Capacity, "cards", CapacitySpec.json_of(from_nodes=True))
        several = any(len({each.accelerator for each in own}) > 1 for own in models.values())
        options = OptimizerParameters.json_of(
            unlimited=False, heterogeneous=several, milp_solver=True, use_cplex=False
        )
        spec = OptimizerSpec.json_of(
            optimize=False,
            interval=self.settings.interval_s,
            mode="Recommend",
            data=OptimizerData.json_of(optimizer=options),
        )
        yield self._build(Optimizer, "inferno", spec)

    def _build(self, kind: type[Resource], name: str, spec: Manifest) -> Manifest:
        metadata = Metadata.json_of(name=name, namespace=self.namespace or None)
        return kind.json_of(metadata=metadata, spec=spec)

    def _tell(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _place(self, variant: Variant) -> _Placed | None:
        """Find the accelerator, the model, the cards and the cost of a variant."""
        if variant.runs_on is None:
            self._tell(f"{variant.title}: left out: {_explain_missing_accelerator(variant)}")
            return None
        model = variant.model
        if model is None:
            model = variant.workload.name
            self._tell(
                f"{variant.title}: no llm-d.ai/model-id: the model is called {model!r}; write the"
                " label model_name of its metrics"
            )
        accelerator = self.settings.find_accelerator(variant.runs_on)
        counts = [profile.acc_count for profile in variant.own_profiles]
        count = variant.count or next(filter(None, counts), None)
        if count is None:
            self._tell(f"{variant.title}: 1 {accelerator} for each replica: nothing tells how many")
        placed = _Placed(variant, model, accelerator, count or 1)
        self._compare_with_command(placed)
        self._price(placed)
        return placed

    def _compare_with_command(self, placed: _Placed) -> None:
        """Tell where the engine was started with something else than its variant says."""
        variant, model, command = placed.variant, placed.model, placed.variant.command
        if command is None:
            return
        engine, cards = variant.engine, f"{placed.count} {placed.accelerator} for each replica"
        if command.model not in (None, model):
            self._tell(
                f"{variant.title}: {variant.model_field} is {model!r}, and {engine} serves"
                f" {command.model!r}: spec.measure takes that as model_name"
            )
        if command.cards not in (None, placed.count):
            self._tell(
                f"{variant.title}: {cards}, and {engine} runs on {command.cards}"
                f" ({command.cards_options}): correct accCount of Model {model}"
            )
        elif variant.cards not in (None, placed.count):
            self._tell(
                f"{variant.title}: {cards}, and the pods of {engine} ask for {variant.cards}:"
                f" correct accCount of Model {model}"
            )
        batches = [p.max_batch_size for p in variant.own_profiles if p.max_batch_size]
        if batches and command.batch not in (None, batches[0]):
            self._tell(
                f"{variant.title}: a batch of {batches[0]} (maxBatchSize), and {engine} takes"
                f" {command.batch} ({command.batch_option}): correct maxBatchSize of Model {model}"
            )

    def _price(self, placed: _Placed) -> None:
        """Find the cost of the accelerator: WVA has it of a replica, without a unit."""
        variant, name = placed.variant, placed.accelerator
        own = None if variant.cost is None else variant.cost / placed.count
        listed_cost = self.settings.costs.get(name)
        if listed_cost is not None:
            price = listed_cost.cost
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

    def _collect_performance(self, variants: Sequence[_Placed]) -> dict[str, _Performance]:
        """Return how replicas of a model perform, by accelerator."""
        performance: dict[str, _Performance] = {}
        for placed in variants:
            for profile in placed.variant.profiles or (VariantProfile(),):
                name = self.settings.find_accelerator(profile.acc or placed.accelerator)
                is_own = name == placed.accelerator
                if name not in self.costs:
                    if name not in self.settings.costs:
                        self._tell(f"{placed.variant.title}: {name}: left out: it has no cost")
                        continue
                    self.costs[name] = self.settings.costs[name].cost
                before = performance.get(name)
                if not (before and before.is_known):
                    count = placed.count if is_own else profile.acc_count or 1
                    performance[name] = _Performance(
                        count, profile, placed.variant if is_own else None
                    )
            unknown = _Performance(placed.count, VariantProfile(), placed.variant)
            performance.setdefault(placed.accelerator, unknown)
        running = {placed.accelerator for placed in variants}
        for name in filter(lambda name: name not in running, performance):
            self._tell(
                f"Model {variants[0].model}: {name}: nothing of it runs there: plans leave it out"
                " until spec.workloads of the Server names an object"
            )
        return performance

    def _build_data(self, model: str, accelerator: str, found: _Performance) -> Manifest:
        """Return how a replica performs on an accelerator; parameters of 0 are to be calibrated."""
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
                source = f"{command.batch_option} of {found.variant.engine}"
            self._tell(f"Model {model}: {accelerator}: a batch of {batch}: {source}")
        decode, prefill = profile.perf_parms.decode_parms, profile.perf_parms.prefill_parms
        return PerformanceData.json_of(
            acc=accelerator,
            acc_count=found.count,
            decode_parms={each: _simplify(decode.get(each, 0)) for each in ("alpha", "beta")},
            prefill_parms={each: _simplify(prefill.get(each, 0)) for each in ("gamma", "delta")},
            max_batch_size=batch,
            at_tokens=ANY_LENGTH,
            max_num_seqs=batch,
        )

    def _choose_class(self, model: str) -> ClassOfService:
        """Return the most important class that has a model, or one with its own targets or none."""
        having = [c for c in self.settings.classes if any(t.model == model for t in c.data)]
        if having:
            chosen, *others = sorted(having, key=lambda c: c.priority or LEAST_IMPORTANT)
            if others:
                names = ", ".join(c.name for c in others)
                self._tell(f"Model {model}: class {chosen.name}: also in {names}; WVA takes any")
            return chosen
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

    def _build_classes(self, chosen: Iterable[ClassOfService]) -> Iterator[Manifest]:
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
                limits = {"slo_itl": target.slo_tpot, "slo_ttft": target.slo_ttft}
                given = {name: _simplify(limit) for name, limit in limits.items() if limit}
                targets.append(Target.json_of(model=target.model, **given))
            spec = ServiceClassSpec.json_of(name=each.name, priority=each.priority, data=targets)
            yield self._build(ServiceClass, names[each.name], spec)

    def _build_server(self, name: str, variants: Sequence[_Placed], service_class: str) -> Manifest:
        kept: dict[str, Variant] = {}
        for placed in variants:
            first = kept.setdefault(placed.accelerator, placed.variant)
            if first is not placed.variant:
                self._tell(
                    f"{placed.variant.title}: left out: {first.workload.name} is on"
                    f" {placed.accelerator} too, and a Server has one workload for each accelerator"
                )
        labels = {"namespace": self.namespace} if self.namespace else {}
        model = variants[0].model
        served = {v.command.model for v in kept.values() if v.command}
        served_name = served.pop() if len(served) == 1 else None
        return ServerSpec.json_of(
            name=name,
            service_class=service_class,
            model=model,
            min_num_replicas=self._sum_least_replicas(name, model, list(kept.values())),
            current_alloc=_build_current({acc: v.replicas for acc, v in kept.items()}),
            workloads=[
                Workload.json_of(accelerator=acc) | v.workload.to_json() for acc, v in kept.items()
            ],
            actuation="Publish",
            measure=Measure.json_of(
                source="vLLM", labels={**labels, "model_name": served_name or model}
            ),
        )

    def _sum_least_replicas(self, server: str, model: str, variants: Sequence[Variant]) -> int:
        """Return the fewest replicas of all variants together."""
        for variant in variants:
            if variant.most is not None:
                self._tell(
                    f"{variant.title}: at most {variant.most} replicas:"
                    " no counterpart: the cards of the Capacity are the limit"
                )
        bounds = [variant.least or 0 for variant in variants]
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


def _explain_missing_accelerator(variant: Variant) -> str:
    """Say why the accelerator of a variant is not known, and what to do."""
    workload = variant.workload
    option = f"--accelerator {workload.name}=NAME"
    if variant.selector is None:
        return f"on which accelerator is {workload.name}? Give its {workload.kind} too, or {option}"
    wanted = ", ".join(f"{label}: {value}" for label, value in variant.selector.items())
    seen = (
        f"the nodeSelector of {variant.engine} ({wanted}) names no known card"
        if wanted
        else f"{variant.engine} has no nodeSelector"
    )
    labels = join_names(card_labels(), LABELS_NAMED)
    return f"{seen}: give {option}, or a nodeSelector with one of {labels}"


def _simplify(number: float) -> float:
    """Return a number as people write it: without a fraction of zero."""
    return int(number) if float(number).is_integer() else number


def _build_current(replicas: Mapping[str, int | None]) -> Manifest | None:
    """Return what runs; None where it is not told."""
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


def _name_objects(names: Iterable[str]) -> dict[str, str]:
    """Return names of objects by names of ours, each once."""
    object_names: dict[str, str] = {}
    for name in names:
        plain = object_name(name)
        same = sum(other.startswith(plain) for other in object_names.values())
        object_names[name] = f"{plain[:60]}-{same + 1}" if plain in object_names.values() else plain
    return object_names
