"""What a Plan keeps in compressed form: decisions to write later, and the optimized system."""

import binascii
import gzip
import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from inferno_operator.controllers.optimization.changes import Update, approve, spec_change
from inferno_operator.controllers.optimization.placements import placements
from inferno_operator.resources import (
    DESIRED_ALLOC,
    DIGITS,
    Allocation,
    DecidedVerdict,
    Placement,
    PlanDecision,
    PlanSpec,
    PlanStep,
    Server,
    ServerAllocation,
)
from inferno_operator.resources.conditions import Verdict
from inferno_operator.resources.objects import Manifest
from inferno_operator.resources.observation import Observation
from inferno_optimizer.errors import InputError
from inferno_optimizer.solution import Reason

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
        cls, observation: Observation, update: Update, before: ServerAllocation | None
    ) -> "StoredDecision":
        """Return the decision in the update of a Server, which changes its spec."""
        server = observation.resource
        current = server.spec.current_alloc if isinstance(server, Server) else None
        return cls(
            update.reference.key.name,
            update.spec or {},
            update.verdicts,
            update.active,
            current.load.to_json() if current and current.load else None,
            placements(before),
            cost_of(before),
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
            after=placements(after),
            cost_change=round(cost_of(after) - self.cost_before, DIGITS),
            reason=verdict.reason,
            message="" if verdict.reason == Reason.ALLOCATED else verdict.message,
            origin=after.origin,
            error_percent=after.error_percent,
        )

    def update(self, observation: Observation, approved: str = "") -> Update:
        """Return the update that writes the decision on the Server as it is now.

        `approved` is the name of its Plan if a person approved that.
        """
        server = observation.resource
        spec = spec_change(server, self.spec[DESIRED_ALLOC]) if server else None
        update = Update.of(observation, self.verdicts, active=self.active, spec=spec)
        return approve(update, approved, placements(self.after)) if approved else update


def cost_of(allocation: Allocation | None) -> float:
    """Return the cost of an allocation [cents/hour]."""
    return (allocation.cost if allocation else None) or 0.0


def in_order(steps: Iterable[PlanStep]) -> list[PlanStep]:
    """Return steps as a Plan lists them: those with the largest change of cost first."""
    return sorted(steps, key=lambda step: (-abs(step.cost_change), step.server))


def pack(document: object) -> str:
    """Return a JSON document as gzip and base64; the same document gives the same text."""
    return _compressed(_text(document))


def _text(document: object) -> bytes:
    """Return a JSON document as a Plan has it; the same document gives the same bytes."""
    text = json.dumps(document, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return text.encode()


def _compressed(text: bytes) -> str:
    return b64encode(gzip.compress(text, mtime=0)).decode()


def inflate(packed: str, limit: int = MAX_UNPACKED) -> bytes:
    """Return what `pack` compressed, without ever having more than `limit` bytes of it.

    Raises
    ------
    UnreadablePlanError
        The text is damaged, or larger.
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
    text = _text([_document(decision) for decision in decisions])
    return _compressed(text) if len(text) < MAX_UNPACKED else ""


def unpack_decisions(packed: str) -> tuple[StoredDecision, ...]:
    """Return the decisions of `pack_decisions`, each of them checked.

    Raises
    ------
    UnreadablePlanError
        They are left out, damaged, or none that can be carried out.
    """
    if not packed:
        raise UnreadablePlanError("its decisions are left out, because there are too many")
    try:
        decisions = DECISIONS.validate_json(inflate(packed), by_alias=True, by_name=False)
    except ValidationError as error:
        raise UnreadablePlanError(_told(error)) from error
    if len({decision.server for decision in decisions}) < len(decisions):
        raise UnreadablePlanError("its decisions cannot be read: a Server has more than one")
    return tuple(map(_decision, decisions))


def _told(error: ValidationError) -> str:
    """Return the first thing that is wrong with decisions, in one line."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"its decisions cannot be read: {where}: {first['msg']}"


def _document(decision: StoredDecision) -> Manifest:
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


def _decision(written: PlanDecision) -> StoredDecision:
    return StoredDecision(
        written.server,
        written.spec.to_json(),
        tuple(Verdict(v.type, v.holds, v.reason, v.message) for v in written.verdicts),
        written.active,
        written.load.to_json() if written.load else None,
        written.before,
        written.cost_before,
    )


def contradiction(spec: PlanSpec, decisions: Sequence[StoredDecision]) -> str:
    """Return what a Plan says that its decisions do not; "" if it says what they do."""
    steps = in_order(decision.step for decision in decisions)
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
