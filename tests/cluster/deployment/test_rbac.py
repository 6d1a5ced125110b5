"""The operator's rights: what it does is allowed, and nothing that it does not do is."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from tests.deployment.rendering import NAMESPACE
from tests.deployment.rights import Right, granted

if TYPE_CHECKING:
    from tests.cluster.deployment.conftest import Deployed

ACCOUNT = f"{NAMESPACE}:inferno-operator"
MODEL_BOOSTERS = {"workload.serving.volcano.sh", "networking.serving.volcano.sh"}


def test_no_call_is_refused(deployed: "Deployed") -> None:
    assert deployed.calls.used
    assert not deployed.calls.refused


def test_every_right_is_used_so_none_can_be_taken_away(deployed: "Deployed") -> None:
    rights = granted(deployed.manifests, ACCOUNT)

    # No ModelBooster is here whose rights would be used.
    assert without_model_boosters(rights) == without_model_boosters(deployed.calls.used)


def without_model_boosters(rights: Collection[Right]) -> set[Right]:
    return {right for right in rights if right.group not in MODEL_BOOSTERS}
