"""The operator's rights: what it does is allowed, and nothing that it does not do is."""

from collections.abc import Iterable

import pytest

from inferno_operator.resources.dialects import KTHENA, MATRIXINFER, Dialect
from inferno_operator.resources.objects import Kind
from tests.deployment.lives import ACCOUNT, LIVES, RUNS, Deployed
from tests.deployment.rendering import Manifest
from tests.deployment.rights import Right, granted, granted_by_rules
from tests.tiers import extended

MIRRORED = {Right("inferno.platform.ai", "accelerators", "watch")}
"""What only the stateful mirror uses; the role is the same without it, as a setting changes it."""


def test_no_call_is_refused(deployed: Deployed) -> None:
    assert deployed.calls.used
    assert not deployed.calls.refused


@pytest.mark.parametrize("deployed", extended(*LIVES), indirect=True)
def test_every_right_is_used_so_none_can_be_taken_away(
    deployed: Deployed, request: pytest.FixtureRequest
) -> None:
    mirrors = "stateful" in LIVES[request.node.callspec.params["deployed"]].patches_of
    unused = frozenset[Right]() if mirrors else MIRRORED

    assert granted(deployed.manifests, ACCOUNT) == deployed.calls.used | unused


@pytest.mark.parametrize("deployed", extended(*RUNS), indirect=True)
def test_every_right_is_one_that_a_life_uses(
    deployed: Deployed, rendered_lives: dict[str, list[Manifest]]
) -> None:
    # The test above holds that a life uses all that it is granted.
    used = set[Right]().union(*(granted(life, ACCOUNT) for life in rendered_lives.values()))

    assert granted(deployed.manifests, ACCOUNT) <= used | of_matrixinfer(used)


@pytest.mark.parametrize("deployed", extended("model-booster-matrixinfer"), indirect=True)
def test_the_rights_on_both_dialects_are_the_same(
    deployed: Deployed, rendered_lives: dict[str, list[Manifest]]
) -> None:
    groups = {kind.group for kind in kinds(MATRIXINFER)}

    written, expected = (
        {right for right in rights if right.group in groups}
        for rights in (
            granted(deployed.manifests, ACCOUNT),
            of_matrixinfer(granted(rendered_lives["model-booster"], ACCOUNT)),
        )
    )

    assert written == expected


def of_matrixinfer(rights: Iterable[Right]) -> set[Right]:
    """Rights on MatrixInfer's kinds in the place of those on Kthena's."""
    same = {
        (kthena.group, kthena.plural): matrixinfer
        for kthena, matrixinfer in zip(kinds(KTHENA), kinds(MATRIXINFER), strict=True)
    }

    def translated(right: Right) -> Right:
        plural, slash, subresource = right.resource.partition("/")
        kind = same.get((right.group, plural))
        resource = f"{kind.plural}{slash}{subresource}" if kind else right.resource
        return Right(kind.group if kind else right.group, resource, right.verb)

    return set(map(translated, rights))


def kinds(dialect: Dialect) -> tuple[Kind, ...]:
    """Its boosters, and what is made of them."""
    return dialect.booster, *dialect.children


def test_no_rule_repeats_another_so_none_can_be_taken_away(deployed: Deployed) -> None:
    rules = granted_by_rules(deployed.manifests, ACCOUNT)

    assert sum(map(len, rules)) == len(granted(deployed.manifests, ACCOUNT))
