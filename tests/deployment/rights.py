"""Rights that manifests grant, and those that the API server's audit log shows in use."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

Manifest = Mapping[str, Any]

ROLES = ("ClusterRole", "Role")
BINDINGS = ("ClusterRoleBinding", "RoleBinding")


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A verb on a kind; `resource` has its subresource behind a slash."""

    group: str
    resource: str
    verb: str


@dataclass(frozen=True, slots=True)
class Calls:
    """What an account asked the API server for, and what of that it was refused."""

    used: frozenset[Right]
    refused: frozenset[Right]

    @classmethod
    def of(cls, account: str, audit_log: Iterable[str]) -> Self:
        """Read the lines of an audit log; `account` is `namespace:name`."""
        user = f"system:serviceaccount:{account}"
        events = [
            event for event in map(json.loads, audit_log) if event["user"]["username"] == user
        ]
        decided = [(_asked(event), _decision(event)) for event in events if "objectRef" in event]
        return cls(
            frozenset(right for right, decision in decided if decision == "allow"),
            frozenset(right for right, decision in decided if decision == "forbid"),
        )


def granted(manifests: Iterable[Manifest], account: str) -> frozenset[Right]:
    """What the roles that are bound to an account allow."""
    objects = list(manifests)
    bound = {
        (binding["roleRef"]["kind"], binding["roleRef"]["name"])
        for binding in objects
        if binding["kind"] in BINDINGS and account in _subjects(binding)
    }
    return frozenset(
        right
        for role in objects
        if (role["kind"], role["metadata"]["name"]) in bound
        for rule in role["rules"]
        for right in _rights(rule)
    )


def _subjects(binding: Manifest) -> Iterator[str]:
    for subject in binding["subjects"]:
        yield f"{subject['namespace']}:{subject['name']}"


def _rights(rule: Manifest) -> Iterator[Right]:
    for parts in product(rule["apiGroups"], rule["resources"], rule["verbs"]):
        yield Right(*parts)


def _asked(event: Manifest) -> Right:
    about = event["objectRef"]
    resource = "/".join(filter(None, [about["resource"], about.get("subresource")]))
    return Right(about.get("apiGroup", ""), resource, event["verb"])


def _decision(event: Manifest) -> str:
    return str(event.get("annotations", {}).get("authorization.k8s.io/decision"))
