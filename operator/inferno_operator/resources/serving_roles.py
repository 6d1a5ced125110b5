"""The roles of one serving of Kthena or MatrixInfer, each with a number of replicas; pure.

A workload with the role Prefill or Decode that is a serving means its role `prefill` or `decode`.
Their numbers stand in the list `spec.template.roles`, not in the scale subresource, which has the
number of groups that each have all roles.
"""

from collections.abc import Sequence
from typing import Any

from inferno_operator.resources.dialects import DIALECTS, Dialect
from inferno_operator.resources.objects import Kind, Manifest
from inferno_operator.resources.workload import Workload

ROLES = "/spec/template/roles"
"""Where the roles stand, as a JSON pointer."""

SERVINGS = frozenset(dialect.serving for dialect in DIALECTS.values())
"""The kinds of servings."""


def serving_role(workload: Workload) -> str:
    """Return the role of a serving that a workload is; "" for whole objects."""
    is_role = workload.role != "Both" and kind_of_serving(workload) is not None
    return workload.role.lower() if is_role else ""


def kind_of_serving(workload: Workload) -> Kind | None:
    """Return the kind of a workload that is a serving; None for all others."""
    named = workload.api_version, workload.kind
    return next((kind for kind in SERVINGS if (kind.api_version, kind.kind) == named), None)


def build_serving_selector(kind: Kind, name: str) -> str:
    """Return the selector of the pods of a whole serving.

    In each replica, a group, every role has a first pod: `serving_group` tells one from another.
    """
    return f"{_dialect(kind).pod_label('name')}={name}"


def serving_group(kind: Kind) -> str:
    """Return the label of the pods of a serving with their replica, a group."""
    return _dialect(kind).pod_label("group-name")


def role_selector(kind: Kind, name: str, role: str) -> str:
    """Return the selector of the first pod of each replica of a role of a serving."""
    dialect = _dialect(kind)
    terms = {"name": name, "role": role, "entry": "true"}
    return ",".join(f"{dialect.pod_label(key)}={value}" for key, value in terms.items())


def groups_of(manifest: Manifest) -> int:
    """Return how many groups a serving asks for; each has all replicas of all roles."""
    groups: int = manifest.get("spec", {}).get("replicas", 1)
    return groups


def find_role(manifest: Manifest, role: str) -> tuple[int, int] | None:
    """Return the place of a role in the list, and its replicas; None if there is no such role."""
    roles = manifest.get("spec", {}).get("template", {}).get("roles", ())
    matching = (
        (i, part.get("replicas", 1)) for i, part in enumerate(roles) if part["name"] == role
    )
    return next(matching, None)


def role_patch(uid: str, role: str, index: int, before: int, after: int) -> Sequence[Any]:
    """Return the JSON patch of the replicas of a role, which fails if they are not those before.

    It does not ask for a version of the object, so that both roles can be written at once.
    """
    path = f"{ROLES}/{index}"
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": f"{path}/name", "value": role},
        {"op": "test", "path": f"{path}/replicas", "value": before},
        {"op": "replace", "path": f"{path}/replicas", "value": after},
    ]


def _dialect(kind: Kind) -> Dialect:
    return next(dialect for dialect in DIALECTS.values() if dialect.serving == kind)
