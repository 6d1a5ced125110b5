"""Rights that manifests grant, and those that the API server's audit log shows in use."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
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
        asked = [event for event in events if "objectRef" in event]
        return cls(
            frozenset(right for event in asked if not _refused(event) for right in _used(event)),
            frozenset(_asked(event) for event in asked if _refused(event)),
        )


def granted(manifests: Iterable[Manifest], account: str) -> frozenset[Right]:
    """What the roles that are bound to an account allow."""
    return frozenset().union(*granted_by_rules(manifests, account))


def granted_by_rules(manifests: Iterable[Manifest], account: str) -> list[frozenset[Right]]:
    """What each rule of the roles that are bound to an account allows."""
    objects = list(manifests)
    bound = {
        (binding["roleRef"]["kind"], binding["roleRef"]["name"])
        for binding in objects
        if binding["kind"] in BINDINGS and account in _subjects(binding)
    }
    return [
        frozenset(_rights(rule))
        for role in objects
        if (role["kind"], role["metadata"]["name"]) in bound
        for rule in role["rules"]
    ]


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


def _used(event: Manifest) -> Iterator[Right]:
    """What a call took; to apply an object that is not there takes the right to create it."""
    asked = _asked(event)
    yield asked
    if asked.verb == "patch" and _status(event) == HTTPStatus.CREATED:
        yield replace(asked, verb="create")


def _refused(event: Manifest) -> bool:
    return _status(event) == HTTPStatus.FORBIDDEN


def _status(event: Manifest) -> int:
    return int(event.get("responseStatus", {}).get("code", 0))
