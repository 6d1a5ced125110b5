"""Which Plans the operator made itself: by a digest of all that they say, and by a signature.

Anybody can compute the digest of a Plan, and so check that a Plan says what was approved. Only
who has the operator's key can sign it. The signature is over the digest and over the place of the
Plan, so that a copy of a Plan under another name, or in another namespace, counts for nothing. The
Optimizer is part of the place, by its uid: a later one of the same name has Plans of its own.
"""

import hashlib
import hmac
import json
from dataclasses import dataclass
from weakref import WeakValueDictionary

from inferno_operator.resources import Optimizer, Plan, PlanSpec
from inferno_operator.resources.objects import Key, Manifest

PREFIX = "hmac-sha256:"

MARKS = ("digest", "signature")
"""The fields of a spec that are computed from all others."""


@dataclass(frozen=True, slots=True)
class Seal:
    """Signs Plans, and recognizes those that it signed.

    Parameters
    ----------
    key
        Bytes that only operators of this cluster know.
    """

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
        if plan_digest(spec) != spec.digest:
            return False
        self._right[uid] = spec
        return True


def optimizer_of(plan: Plan) -> str:
    """Return the uid of the Optimizer that a Plan is of; "" if it is not told."""
    owners = plan.metadata.owner_references
    return owners[0].uid if owners else ""


def is_of(plan: Plan, optimizer: Optimizer) -> bool:
    """Whether a Plan is of this Optimizer, and not of an earlier one of the same name."""
    return optimizer_of(plan) == optimizer.metadata.uid


def plan_digest(spec: PlanSpec) -> str:
    """Return the digest of everything that a Plan says."""
    text = spec_manifest(spec)
    return digest_of({key: value for key, value in text.items() if key not in MARKS})


def spec_manifest(spec: PlanSpec) -> Manifest:
    """Return the spec as it is written, without empty fields."""
    return {key: value for key, value in spec.to_json().items() if value not in ("", 0)}


def digest_of(document: object) -> str:
    """Return the digest of a JSON document."""
    text = json.dumps(_plain(document), separators=(",", ":"), sort_keys=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _plain(value: object) -> object:
    """Return a document without negative zeros, which an API server does not keep."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value + 0.0 if isinstance(value, float) else value
