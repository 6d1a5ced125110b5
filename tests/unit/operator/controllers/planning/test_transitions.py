"""How a Plan that is carried out is followed."""

from functools import partial

from inferno_operator.controllers.planning.plans import find_arrivals
from inferno_operator.controllers.planning.proposal import build_spec_manifest
from inferno_operator.resources import Plan, Server, parse
from inferno_operator.resources.observation import observe
from tests.calls import calls
from tests.unit.operator import objects
from tests.unit.operator.controllers.planning.test_proposal import proposed

SERVERS = 30


def test_a_plan_that_lists_a_part_of_its_changes_is_followed_by_all_and_unpacked_once() -> None:
    servers = [objects.server(f"S{n:02}") for n in range(SERVERS)]
    proposal = proposed(servers, cards=1000)
    assert proposal is not None
    spec = build_spec_manifest(proposal.spec)
    listed = {**spec, "steps": spec["steps"][:1], "stepsOmitted": SERVERS - 1}
    plan = parse(objects.manifest("Plan", listed, name="p"))
    assert isinstance(plan, Plan)
    there = [observe(Server, server) for server in servers[1:]]

    first, again = (calls(partial(find_arrivals, plan, there)) for _ in range(2))
    seen = find_arrivals(plan, there)

    assert (len(seen.unscaled), seen.servers, seen.gone) == (SERVERS - 1, SERVERS, ("s00",))
    assert again < first / 4
