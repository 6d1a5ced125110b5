"""From an optimization to a Plan, and back: its decisions, inputs and totals; pure.

A Plan is out of date if its inputs changed: the specs of the objects of the namespace, without
what the operator writes there itself, and the parameters of the Optimizer. A digest of these is
compared. Two inputs change all the time, so they are not part of the digest: the measured load of
each Server that the Plan changes has to stay within a tolerance, and the cards that the Plan takes
have to be there.
"""

import binascii
import gzip
import hashlib
import hmac
import json
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from weakref import WeakValueDictionary

from pydantic import TypeAdapter, ValidationError

from inferno_operator.controllers.planning.conversions import (
    cards_of,
    cards_of_placements,
    count_by_place,
    is_whole,
    list_placements,
    place_current,
    price_current,
)
from inferno_operator.controllers.planning.ports import Optimization
from inferno_operator.controllers.planning.status import convert_certificate
from inferno_operator.controllers.planning.updates import Update, find_spec_change, mark_approved
from inferno_operator.resources import (
    CURRENT_ALLOC,
    DESIRED_ALLOC,
    DIGITS,
    MAX_EMPTIED,
    MAX_STEPS,
    MAX_VIA,
    Allocation,
    Count,
    DecidedVerdict,
    Guard,
    Load,
    Optimizer,
    Placement,
    Plan,
    PlanDecision,
    PlanSpec,
    PlanStep,
    PlanTotals,
    Reduction,
    Resource,
    Server,
    ServerAllocation,
    describe_change,
)
from inferno_operator.resources.conditions import ALLOCATED, UNDECIDED, Verdict
from inferno_operator.resources.objects import Key, Manifest
from inferno_operator.resources.observation import Observation, is_of, only, readable
from inferno_optimizer.errors import InputError
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Reason
from inferno_optimizer.system import Role
from inferno_optimizer.way_down import WayDown
from inferno_optimizer.wire.codec import encode_system

PREFIX = "hmac-sha256:"

MARKS = ("digest", "signature")
"""The fields of a spec that are computed from all others."""


@dataclass(frozen=True, slots=True)
class Seal:
    """Signs Plans with bytes that only operators of this cluster know, and recognizes its own."""

    key: bytes

    def signature(self, place: Key, optimizer: str, digest: str) -> str:
        """Return the signature of a Plan of an Optimizer, with this digest at this place."""
        text = json.dumps([place.namespace, place.name, optimizer, digest])
        return PREFIX + hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()

    def signed(self, plan: Plan) -> bool:
        """Whether the operator signed the digest that a Plan has."""
        place = Key(plan.metadata.namespace, plan.metadata.name)
        expected = self.signature(place, optimizer_of(plan), plan.spec.digest)
        return hmac.compare_digest(expected.encode(), plan.spec.signature.encode())


class DigestCheck:
    """Compares the digests that Plans have with those of what they say.

    That is done once for each spec that was read: it takes milliseconds for a plan of a thousand
    Servers, and a reconcile looks at its Plans several times.
    """

    def __init__(self) -> None:
        self._right: WeakValueDictionary[str, PlanSpec] = WeakValueDictionary()
        """The specs whose digest is right, by uid of the Plan, as long as others keep them."""

    def is_right(self, plan: Plan) -> bool:
        """Whether a Plan has the digest of what it says."""
        uid, spec = plan.metadata.uid, plan.spec
        if self._right.get(uid) is spec:
            return True
        if compute_plan_digest(spec) != spec.digest:
            return False
        self._right[uid] = spec
        return True


def optimizer_of(plan: Plan) -> str:
    """Return the uid of the Optimizer that a Plan is of; "" if it is not told."""
    owners = plan.metadata.owner_references
    return owners[0].uid if owners else ""


def is_plan_of(plan: Plan, optimizer: Optimizer) -> bool:
    """Whether a Plan is of this Optimizer, and not of an earlier one of the same name."""
    return optimizer_of(plan) == optimizer.metadata.uid


def compute_plan_digest(spec: PlanSpec) -> str:
    """Return the digest of everything that a Plan says."""
    text = build_spec_manifest(spec)
    return compute_digest({key: value for key, value in text.items() if key not in MARKS})


def build_spec_manifest(spec: PlanSpec) -> Manifest:
    """Return the spec as it is written, without empty fields."""
    return {key: value for key, value in spec.to_json().items() if value not in ("", 0)}


def compute_digest(document: object) -> str:
    """Return the digest of a JSON document."""
    text = json.dumps(_drop_negative_zeros(document), separators=(",", ":"), sort_keys=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _drop_negative_zeros(value: object) -> object:
    """Return a document without negative zeros, which an API server does not keep."""
    if isinstance(value, dict):
        return {key: _drop_negative_zeros(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_drop_negative_zeros(item) for item in value]
    return value + 0.0 if isinstance(value, float) else value


MAX_INPUTS = 512 * 1024
"""Largest snapshot of the inputs [characters of base64]."""

MAX_DECISIONS = 640 * 1024
"""Largest decisions [characters of base64]; an object has at most 1.5 MiB."""

MAX_LISTED = 256 * 1024
"""Largest list of changes [characters of JSON]."""

MAX_UNPACKED = 32 * 1024 * 1024
"""Largest decisions before they are compressed [bytes]: a small text can unpack to anything."""

CENT = 10.0**-DIGITS
"""Largest error of a number that is written."""

GZIP = 31
"""`wbits` of zlib for one member of gzip."""

DECISIONS = TypeAdapter(tuple[PlanDecision, ...])


class UnreadablePlanError(InputError):
    """The decisions of a Plan cannot be read: they are left out, or were damaged."""

    reason = "Unreadable"


@dataclass(frozen=True, slots=True)
class StoredDecision:
    """A decision for one Server, as it is written when the Plan is carried out.

    `load` is the load of the Server that it was decided for, as in `currentAlloc`, or None;
    `before` and `cost_before` [cents/hour] are what there was before.
    """

    server: str
    spec: Manifest
    verdicts: tuple[Verdict, ...]
    active: bool
    load: Manifest | None
    before: tuple[Placement, ...] = ()
    cost_before: float = 0.0

    @classmethod
    def of(
        cls, server: Server, update: Update, before: ServerAllocation | None
    ) -> "StoredDecision":
        """Return the decision in the update of a Server, which changes its spec."""
        current = server.spec.current_alloc
        return cls(
            update.reference.key.name,
            update.spec or {},
            update.verdicts,
            update.active,
            current.load.to_json() if current and current.load else None,
            list_placements(before),
            get_cost(before),
        )

    @property
    def allocated(self) -> Verdict:
        """The verdict Allocated."""
        return self.verdicts[-1]

    @property
    def after(self) -> ServerAllocation:
        """What is decided."""
        return ServerAllocation.model_validate(self.spec[DESIRED_ALLOC])

    @property
    def step(self) -> PlanStep:
        """The change as a Plan lists it."""
        verdict, after = self.allocated, self.after
        return PlanStep(
            server=self.server,
            before=self.before,
            after=list_placements(after),
            cost_change=round(get_cost(after) - self.cost_before, DIGITS),
            reason=verdict.reason,
            message="" if verdict.reason == Reason.ALLOCATED else verdict.message,
            origin=after.origin,
            error_percent=after.error_percent,
        )

    def update(self, observation: Observation[Server], approved: str = "") -> Update:
        """Return the update that writes the decision on the Server as it is now.

        `approved` is the name of its Plan if a person approved that.
        """
        server = observation.resource
        spec = find_spec_change(server, self.spec[DESIRED_ALLOC]) if server else None
        update = Update.of(observation, self.verdicts, active=self.active, spec=spec)
        return mark_approved(update, approved, list_placements(self.after)) if approved else update


def get_cost(allocation: Allocation | None) -> float:
    """Return the cost of an allocation [cents/hour]."""
    return (allocation.cost if allocation else None) or 0.0


def sort_steps(steps: Iterable[PlanStep]) -> list[PlanStep]:
    """Return steps as a Plan lists them: those with the largest change of cost first."""
    return sorted(steps, key=lambda step: (-abs(step.cost_change), step.server))


def pack(document: object) -> str:
    """Return a JSON document as gzip and base64; the same document gives the same text."""
    return _compress(_encode(document))


def _encode(document: object) -> bytes:
    text = json.dumps(document, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return text.encode()


def _compress(text: bytes) -> str:
    return b64encode(gzip.compress(text, mtime=0)).decode()


def unpack(packed: str, limit: int = MAX_UNPACKED) -> bytes:
    """Return what `pack` compressed, without ever having more than `limit` bytes of it.

    Raises `UnreadablePlanError` if the text is damaged, or larger.
    """
    decoder = zlib.decompressobj(GZIP)
    try:
        text = decoder.decompress(b64decode(packed, validate=True), limit)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise UnreadablePlanError(f"its contents cannot be read: {error}") from error
    if decoder.unconsumed_tail:
        raise UnreadablePlanError(f"its contents are larger than {limit // 1024} KiB")
    if not decoder.eof or decoder.unused_data:
        raise UnreadablePlanError("its contents cannot be read: they do not end where they should")
    return text


def pack_decisions(decisions: Iterable[StoredDecision]) -> str:
    """Return decisions in compressed form; "" if they are larger than what is ever unpacked."""
    text = _encode([_to_document(decision) for decision in decisions])
    return _compress(text) if len(text) < MAX_UNPACKED else ""


def unpack_decisions(packed: str) -> tuple[StoredDecision, ...]:
    """Return the decisions of `pack_decisions`, each of them checked.

    Raises `UnreadablePlanError` if they are left out, damaged, or none that can be carried out.
    """
    if not packed:
        raise UnreadablePlanError("its decisions are left out, because there are too many")
    try:
        decisions = DECISIONS.validate_json(unpack(packed), by_alias=True, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        message = f"its decisions cannot be read: {where}: {first['msg']}"
        raise UnreadablePlanError(message) from error
    if len({decision.server for decision in decisions}) < len(decisions):
        raise UnreadablePlanError("its decisions cannot be read: a Server has more than one")
    return tuple(map(_from_document, decisions))


def _to_document(decision: StoredDecision) -> Manifest:
    verdicts = [
        DecidedVerdict.json_of(type=v.type, holds=v.holds, reason=v.reason, message=v.message)
        for v in decision.verdicts
    ]
    return PlanDecision.json_of(
        server=decision.server,
        spec=decision.spec,
        verdicts=verdicts,
        active=decision.active,
        load=decision.load,
        before=[placement.to_json() for placement in decision.before],
        cost_before=decision.cost_before,
    )


def _from_document(written: PlanDecision) -> StoredDecision:
    return StoredDecision(
        written.server,
        written.spec.to_json(),
        tuple(Verdict(v.type, v.holds, v.reason, v.message) for v in written.verdicts),
        written.active,
        written.load.to_json() if written.load else None,
        written.before,
        written.cost_before,
    )


def find_contradiction(spec: PlanSpec, decisions: Sequence[StoredDecision]) -> str:
    """Return what a Plan says that its decisions do not; "" if it says what they do."""
    steps = sort_steps(decision.step for decision in decisions)
    listed = steps[: len(spec.steps)]
    for step, decided in zip(spec.steps, listed, strict=False):
        if step.model_copy(update={"via": decided.via}) != decided:
            return f"what it says about Server {step.server} differs from its decisions"
    if (len(spec.steps), spec.steps_omitted) != (len(listed), len(steps) - len(listed)):
        return f"it lists other Servers than the {len(steps)} that its decisions are about"
    totals, change = spec.totals, sum(step.cost_change for step in steps)
    if totals.servers != len(steps):
        return f"its totals count {totals.servers} Servers, its decisions {len(steps)}"
    if abs(totals.cost_after - totals.cost_before - change) > CENT * (1 + len(steps)):
        return f"its totals show another change of cost than its decisions, {change:+.2f}"
    return ""


def compute_inputs_digest(resources: Iterable[Resource], optimizer: Optimizer) -> str:
    """Return the digest of what an optimization decides from, in any order; without Optimizers."""
    objects = sorted(
        (
            [r.kind, r.metadata.name, _read_inputs(r)]
            for r in resources
            if not isinstance(r, Optimizer)
        ),
        key=lambda item: item[:2],
    )
    parameters = optimizer.spec.data.optimizer.model_dump(mode="json")
    return compute_digest([parameters, objects])


def find_moved_load(decisions: Iterable[StoredDecision], resources: Iterable[Resource]) -> str:
    """Return which measured Server has another load than its decision was made for; "" if none.

    Servers that are not measured have their load in the digest.
    """
    servers = {s.metadata.name: s for s in only(Server, resources)}
    for decision in decisions:
        server = servers.get(decision.server)
        if server is None or server.spec.measure is None or decision.load is None:
            continue
        current = server.spec.current_alloc
        if current is None or current.load is None:
            return f"Server {decision.server} is not measured any more"
        if change := describe_change(Load.model_validate(decision.load), current.load):
            return f"Server {decision.server}: {change}"
    return ""


def find_missing_cards(needed: Iterable[Count], capacity: Mapping[str, int]) -> str:
    """Return which type has fewer cards than all Servers take by a Plan; "" if none."""
    for cards in needed:
        available = capacity.get(cards.type, 0)
        if cards.count > available:
            return f"there are {available} cards of type {cards.type}, and it takes {cards.count}"
    return ""


def _read_inputs(resource: Resource) -> Manifest:
    """Return the spec of an object without what the operator writes there."""
    spec = resource.spec.to_json()
    if not isinstance(resource, Server):
        return spec
    current = resource.spec.current_alloc
    kept = {k: v for k, v in spec.items() if k not in (DESIRED_ALLOC, CURRENT_ALLOC)}
    entered: dict[str, object] = {}  # by hand, where nothing is measured or seen
    if resource.spec.measure is None:
        entered["load"] = current.load.to_json() if current and current.load else None
    if not resource.names_workloads:
        parts = current.parts if current else ()
        entered["runs"] = [[part.accelerator, part.num_replicas] for part in parts]
    return {**kept, "typed": entered}


def compute_totals(
    decisions: Sequence[StoredDecision],
    resources: Iterable[Resource],
    catalogue: Catalogue,
    cards: Iterable[Count],
) -> PlanTotals:
    """Return what decisions come to; `cards` are those that all Servers take then.

    `resources` are all objects of the namespace as they are now, `catalogue` their system.
    """
    servers = [*only(Server, resources)]
    costs = {s.metadata.name: get_cost(find_standing(s, catalogue)) for s in servers}
    before = sum(costs.values())
    change = sum(get_cost(d.after) - costs.get(d.server, d.cost_before) for d in decisions)
    return PlanTotals(
        servers=len(decisions),
        cost_before=round(before, DIGITS),
        cost_after=round(before + change, DIGITS),
        cards=tuple(cards),
        reduction=_compute_reduction(decisions, servers, catalogue),
    )


def count_cards_after(
    decisions: Sequence[StoredDecision], servers: Iterable[Server], catalogue: Catalogue
) -> Sequence[Count]:
    """Return the cards that all Servers take with decisions, of the types that these need more of.

    Other Servers may have got cards after the Plan was made, such as one that woke.
    """
    by_name = {decision.server: decision for decision in decisions}
    taken: Counter[str] = Counter()
    growing: set[str] = set()
    for server in servers:
        before = cards_of(_find_held(server, catalogue), server, catalogue)
        decision = by_name.get(server.metadata.name)
        after = cards_of(decision.after, server, catalogue) if decision else before
        taken.update(after)
        growing |= {card for card, count in after.items() if count > before.get(card, 0)}
    return [Count(type=card, count=taken[card]) for card in sorted(growing)]


def find_standing(server: Server, catalogue: Catalogue) -> ServerAllocation | None:
    """Return what was decided before, or what runs if nothing was.

    A decision that was cleared because none was possible left what runs as it is.
    """
    desired, allocated = server.spec.desired_alloc, server.status.condition(ALLOCATED)
    is_cleared = (
        not list_placements(desired) and allocated is not None and allocated.reason in UNDECIDED
    )
    if desired is None or is_cleared:
        return price_current(server, catalogue)
    return desired


def _find_held(server: Server, catalogue: Catalogue) -> ServerAllocation | None:
    """Return what an optimization leaves to a Server: what runs, if none can be decided."""
    allocated = server.status.condition(ALLOCATED)
    if allocated is None or allocated.reason not in UNDECIDED:
        return find_standing(server, catalogue)
    return server.spec.current_alloc if catalogue.system.options.hold_undecided else None


def _compute_reduction(
    decisions: Sequence[StoredDecision], servers: Sequence[Server], catalogue: Catalogue
) -> Reduction | None:
    """Return what decisions take away; None if no Server is in service."""
    by_name = {server.metadata.name: server for server in servers}
    running = {s.metadata.name: _list_running(s, catalogue) for s in servers if s.is_actuated}
    if not running:
        return None
    gained = _find_gains(decisions, by_name, catalogue)
    taken, load_lost, emptied = 0, 0.0, list[str]()
    for decision in decisions:
        if not (before := running.get(decision.server)):
            continue
        server, after = by_name[decision.server], list_placements(decision.after)
        leaving = _count_leaving(before, after)
        taken += leaving
        # A role alone serves nothing: the last replica of prefill is as needed as that of decode.
        is_served, unserved_load = is_whole(after), _read_load(server)
        if is_served and decision.allocated.reason == Reason.ALLOCATED:
            unserved_load = 0.0
        elif is_served:
            unserved_load = unserved_load * leaving / _sum_replicas(before)
        # A more important Server may get cards of a type that it runs on.
        priority = catalogue.priority(server.spec.service_class)
        cards = cards_of_placements(before, server, catalogue)
        is_displaced = any(gained.get(card, priority) < priority for card in cards)
        if unserved_load > 0 and not is_displaced:
            load_lost += unserved_load
            if not is_served:
                emptied.append(decision.server)
    return Reduction(
        replicas=sum(map(_sum_replicas, running.values())),
        replicas_taken=taken,
        load=round(sum(_read_load(by_name[n]) for n, placed in running.items() if placed), DIGITS),
        load_lost=round(load_lost, DIGITS),
        emptied=tuple(sorted(emptied)[:MAX_EMPTIED]),
    )


def _list_running(server: Server, catalogue: Catalogue) -> Sequence[Placement]:
    """Return what runs, also what starts or is unready for a moment; else what was decided."""
    is_seen = server.names_workloads
    return list_placements((place_current if is_seen else find_standing)(server, catalogue))


def _count_leaving(before: Sequence[Placement], after: Sequence[Placement]) -> int:
    """Return how many replicas go; none where others come, as those that serve stay until then."""
    at_present = count_by_place(before)
    if any(n > at_present.get(place, 0) for place, n in count_by_place(after).items()):
        return 0
    return max(_sum_replicas(before) - _sum_replicas(after), 0)


def _read_load(server: Server) -> float:
    current = server.spec.current_alloc
    return max(current.load.arrival_rate, 0.0) if current and current.load else 0.0


def _sum_replicas(placed: Iterable[Placement]) -> int:
    return sum(placement.replicas for placement in placed)


def _find_gains(
    decisions: Iterable[StoredDecision], servers: Mapping[str, Server], catalogue: Catalogue
) -> Mapping[str, int]:
    """Return the most important priority that gets more cards, by type of card."""
    gained: dict[str, int] = {}
    for decision in decisions:
        server = servers.get(decision.server)
        if server is None:
            continue
        before, after = (
            cards_of_placements(placed, server, catalogue)
            for placed in (decision.before, list_placements(decision.after))
        )
        for card in after:
            if after[card] > before.get(card, 0):
                priority = catalogue.priority(server.spec.service_class)
                gained[card] = min(gained.get(card, priority), priority)
    return gained


UNSEALED = "-"
"""The digest of a Plan until all that it says is known."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The changes that an optimization decided.

    `steps` has all of them by name of the Server object, also those that the spec does not list.
    """

    spec: PlanSpec
    steps: Mapping[str, PlanStep]
    decisions: Sequence[StoredDecision]


def build_proposal(optimization: Optimization) -> Proposal | None:
    """Return the changes that an optimization decided; None if no Server changes.

    A Server changes if it gets another accelerator or number of replicas, which is what actuation
    carries out. Other numbers of a decision are no change: batch sizes and latencies follow
    measured loads, which move all the time. Neither is that no decision was possible: what runs
    then stays as it is.
    """
    optimizer, catalogue = optimization.optimizer, Catalogue(optimization.snapshot.system)
    way_down = (optimizer.spec.guard or Guard()).way_down
    decisions: list[StoredDecision] = []
    steps: dict[str, PlanStep] = {}
    pairs = zip(optimization.observations, optimization.updates, strict=True)
    for server, update in ((o.resource, u) for o, u in pairs if is_of(o, Server)):
        if server is None or update.spec is None or is_undecided(update):
            continue
        decision = StoredDecision.of(server, update, find_standing(server, catalogue))
        before, after = decision.before, list_placements(decision.after)
        if count_by_place(before) == count_by_place(after):
            continue
        step = decision.step
        decisions.append(decision)
        steps[decision.server] = (
            _add_numbers_between(step, way_down) if server.is_actuated else step
        )
    if not decisions:
        return None
    return Proposal(_build_spec(optimization, steps, decisions, catalogue), steps, decisions)


def is_undecided(update: Update) -> bool:
    """Whether no decision was possible for a Server."""
    return update.main.reason in UNDECIDED


def _add_numbers_between(step: PlanStep, way_down: WayDown) -> PlanStep:
    """Return a step with the replicas in between, where a Server only loses replicas."""
    before, after = count_by_place(step.before), count_by_place(step.after)
    if any(n > before.get(place, 0) for place, n in after.items()):
        return step
    pairs = (
        (
            sum(placement.replicas for placement in step.before if placement.role == role),
            sum(placement.replicas for placement in step.after if placement.role == role),
        )
        for role in Role
    )
    via = way_down.list_numbers_between([pair for pair in pairs if pair[0]])
    return step.model_copy(update={"via": tuple(via[:MAX_VIA])}) if via else step


def _build_spec(
    optimization: Optimization,
    steps: Mapping[str, PlanStep],
    decisions: Sequence[StoredDecision],
    catalogue: Catalogue,
) -> PlanSpec:
    resources, optimizer = readable(optimization.observations), optimization.optimizer
    inputs, stored = pack(encode_system(catalogue.system)), pack_decisions(decisions)
    # A Server that misses targets has what runs as its minimum, which nobody wrote.
    digest = compute_inputs_digest(optimization.snapshot.inputs.stored or resources, optimizer)
    uses = () if optimizer.spec.data.optimizer.unlimited else optimization.solution.capacity
    cards = [Count(type=use.type, count=use.used) for use in uses if use.used]
    # An object has at most 1.5 MiB: what is too large is left out, and said so.
    ordered = sort_steps(steps.values())
    sizes = accumulate(len(json.dumps(step.to_json())) for step in ordered[:MAX_STEPS])
    listed = ordered[: sum(size <= MAX_LISTED for size in sizes)]
    lengths = (("inputs", len(inputs), MAX_INPUTS), ("decisions", len(stored), MAX_DECISIONS))
    omitted = [
        f"{name}: {size // 1024} KiB are more than {limit // 1024} KiB"
        for name, size, limit in lengths
        if size > limit
    ]
    if not omitted and not stored:
        omitted = [f"decisions: they are more than {MAX_UNPACKED // 1024} KiB"]
    spec = PlanSpec(
        optimizer=optimizer.metadata.name,
        digest=UNSEALED,
        inputs_digest=digest,
        totals=compute_totals(decisions, resources, catalogue, cards),
        steps=tuple(listed),
        steps_omitted=len(ordered) - len(listed),
        decisions=stored if len(stored) <= MAX_DECISIONS else "",
        inputs=inputs if len(inputs) <= MAX_INPUTS else "",
        omitted="; ".join(omitted),
        certificate=convert_certificate(optimization.solution.certificate),
    )
    return spec.model_copy(update={"digest": compute_plan_digest(spec)})
