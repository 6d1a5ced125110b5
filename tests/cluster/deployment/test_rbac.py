"""The operator's rights: what it does is allowed, and nothing that it does not do is."""

from typing import TYPE_CHECKING

from tests.deployment.rendering import NAMESPACE
from tests.deployment.rights import granted, granted_by_rules

if TYPE_CHECKING:
    from tests.cluster.deployment.conftest import Deployed

ACCOUNT = f"{NAMESPACE}:inferno-operator"


def test_no_call_is_refused(deployed: "Deployed") -> None:
    assert deployed.calls.used
    assert not deployed.calls.refused


def test_every_right_is_used_so_none_can_be_taken_away(deployed: "Deployed") -> None:
    assert granted(deployed.manifests, ACCOUNT) == deployed.calls.used


def test_no_rule_repeats_another_so_none_can_be_taken_away(deployed: "Deployed") -> None:
    rules = granted_by_rules(deployed.manifests, ACCOUNT)

    assert sum(map(len, rules)) == len(granted(deployed.manifests, ACCOUNT))
