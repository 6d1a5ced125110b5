"""What a Plan keeps in compressed form: decisions to write later, and the optimized system."""

import binascii
import gzip
import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from inferno_operator.controllers.optimization.plan import Update, spec_change
from inferno_operator.resources import Server
from inferno_operator.resources.conditions import Verdict
from inferno_operator.resources.objects import Manifest
from inferno_operator.resources.observation import Observation
from inferno_optimizer.errors import InputError

MAX_INPUTS = 512 * 1024
"""Largest snapshot of the inputs [characters of base64]."""

MAX_DECISIONS = 640 * 1024
"""Largest decisions [characters of base64]; an object has at most 1.5 MiB."""

MAX_LISTED = 256 * 1024
"""Largest list of changes [characters of JSON]."""


class UnreadablePlanError(InputError):
    """The decisions of a Plan cannot be read: they are left out, or were damaged."""

    reason = "Unreadable"


@dataclass(frozen=True, slots=True)
class StoredDecision:
    """A decision for one Server, as it is written when the Plan is carried out.

    `load` is the load of the Server that it was decided for, as in `currentAlloc`, or None.
    """

    server: str
    spec: Manifest
    verdicts: tuple[Verdict, ...]
    active: bool
    load: Manifest | None

    @classmethod
    def of(cls, observation: Observation, update: Update) -> "StoredDecision":
        """Return the decision in the update of a Server, which changes its spec."""
        server = observation.resource
        current = server.spec.current_alloc if isinstance(server, Server) else None
        return cls(
            update.reference.key.name,
            update.spec or {},
            update.verdicts,
            update.active,
            current.load.to_json() if current and current.load else None,
        )

    def update(self, observation: Observation) -> Update:
        """Return the update that writes the decision on the Server as it is now."""
        server = observation.resource
        spec = spec_change(server, self.spec["desiredAlloc"]) if server else None
        return Update.of(observation, self.verdicts, active=self.active, spec=spec)


def pack(document: object) -> str:
    """Return a JSON document as gzip and base64; the same document gives the same text."""
    text = json.dumps(document, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def unpack(packed: str) -> Any:  # noqa: ANN401 - JSON of any shape
    """Return the document of `pack`.

    Raises
    ------
    UnreadablePlanError
        The text is damaged.
    """
    try:
        return json.loads(gzip.decompress(b64decode(packed, validate=True)))
    except (binascii.Error, OSError, EOFError, zlib.error, ValueError) as error:
        raise UnreadablePlanError(f"its contents cannot be read: {error}") from error


def pack_decisions(decisions: Iterable[StoredDecision]) -> str:
    """Return decisions in compressed form."""
    return pack([_document(decision) for decision in decisions])


def unpack_decisions(packed: str) -> tuple[StoredDecision, ...]:
    """Return the decisions of `pack_decisions`.

    Raises
    ------
    UnreadablePlanError
        They are left out, or damaged.
    """
    if not packed:
        raise UnreadablePlanError("its decisions are left out, because there are too many")
    try:
        return tuple(_decision(document) for document in unpack(packed))
    except (KeyError, TypeError) as error:
        raise UnreadablePlanError(f"its decisions cannot be read: {error!r}") from error


def _document(decision: StoredDecision) -> Manifest:
    verdicts = [
        {"type": v.type, "holds": v.holds, "reason": v.reason, "message": v.message}
        for v in decision.verdicts
    ]
    return {
        "server": decision.server,
        "spec": decision.spec,
        "verdicts": verdicts,
        "active": decision.active,
        "load": decision.load,
    }


def _decision(document: Mapping[str, Any]) -> StoredDecision:
    return StoredDecision(
        document["server"],
        {"desiredAlloc": document["spec"]["desiredAlloc"]},
        tuple(Verdict(**verdict) for verdict in document["verdicts"]),
        document["active"],
        document["load"],
    )
