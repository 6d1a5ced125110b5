"""Which Plans have the digest of what they say, and how often that is computed."""

from functools import partial

from inferno_operator.controllers.planning.proposal import DigestCheck
from inferno_operator.resources import Plan, parse
from tests.calls import calls
from tests.unit.operator.controllers.planning.scene import scene_of
from tests.unit.operator.objects import Manifest


async def proposed() -> Manifest:
    """A Plan that the operator made."""
    async with scene_of() as scene:
        await scene.propose()
        manifest: Manifest = scene.plans()["inferno-1"]
    return manifest


def read(manifest: Manifest) -> Plan:
    plan = parse(manifest)
    assert isinstance(plan, Plan)
    return plan


async def test_the_digest_of_a_spec_that_was_read_is_computed_once() -> None:
    manifest, check = await proposed(), DigestCheck()
    plan, newer = read(manifest), read(manifest)

    first, again, of_newer = (calls(partial(check.is_right, p)) for p in (plan, plan, newer))

    assert again < first / 10
    assert of_newer == first


async def test_another_spec_of_a_plan_that_was_right_is_looked_at() -> None:
    manifest, check = await proposed(), DigestCheck()
    plan = read(manifest)
    forged = read({**manifest, "spec": {**manifest["spec"], "stepsOmitted": 7}})

    answers = [check.is_right(each) for each in (plan, forged, forged, plan)]

    assert answers == [True, False, False, True]
