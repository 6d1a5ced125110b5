"""The roles prefill and decode of a backend whose numbers stand in its booster; pure."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from inferno_operator.controllers.actuation.holders import WORKERS, Holder
from inferno_operator.resources.dialects import DISAGGREGATED
from inferno_operator.resources.objects import Key

POLICY = "autoscalingPolicy"
"""The field of a booster, and of its backends before v0.2, with an autoscaling policy."""


class RoleProblem(NamedTuple):
    """Why the number of a role cannot be set: the reason of the condition, and a sentence."""

    reason: str
    message: str


def role_holder(backend: Holder, role: str) -> Holder | None:
    """Return what has the number of a role; None if it cannot be set, see `role_problem`."""
    if role_problem(backend, role) is not None:
        return None
    return replace(backend, worker=_worker(backend, role))


def role_problem(backend: Holder, role: str) -> RoleProblem | None:
    """Return why the number of a role of a backend cannot be set, if it cannot."""
    booster = f"{backend.kind.kind} {Key.of(backend.manifest).name!r}"
    problem = next(_problems(backend, role), None)
    return problem and problem._replace(message=f"{booster}: {problem.message}")


def _problems(backend: Holder, role: str) -> Iterator[RoleProblem]:
    part, path = backend.part, _path(backend)
    if part.get("type") != DISAGGREGATED:
        wrong = f"{path}.type is {part.get('type')}: a backend with roles is {DISAGGREGATED}"
        yield RoleProblem("NoBackend", wrong)
    elif _worker(backend, role) is None:
        yield RoleProblem("NoBackend", f"{path}.workers: none is of the type {role!r}: add one")
    for place, fields in ((path, part), ("spec", backend.manifest["spec"])):
        if POLICY in fields:
            text = f"{place}.{POLICY} scales whole groups, not roles: remove it"
            yield RoleProblem("Conflict", text)
    if backend.groups > 1:
        name = backend.number
        text = f"{path}.{name} is {backend.groups}: set it to 1, as roles are scaled in one group"
        yield RoleProblem("SeveralGroups", text)


def _worker(backend: Holder, role: str) -> int | None:
    """Return the place of the last worker of a role, which is the one that counts."""
    types = [worker.get("type") for worker in backend.part.get(WORKERS, ())]
    return max((i for i, each in enumerate(types) if each == role), default=None)


def _path(backend: Holder) -> str:
    item = "" if backend.item is None else f"[{backend.item}]"
    return ".".join(("spec", *backend.path)) + item
