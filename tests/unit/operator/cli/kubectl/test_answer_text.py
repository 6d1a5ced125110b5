"""What a person approves is what the decisions of a Plan say, computed again."""

import pytest

from inferno_operator.cli.kubectl.answer import check_text
from inferno_operator.controllers.planning.proposal import compute_plan_digest
from inferno_operator.resources import Plan, parse
from inferno_operator.resources.objects import Key
from inferno_optimizer.errors import InputError
from tests.unit.operator.controllers.planning.test_forged import desired
from tests.unit.operator.controllers.planning.test_proposal import made
from tests.unit.operator.objects import Manifest

PLACE = Key("default", "inferno-1")


def plan(**spec: object) -> Plan:
    """This Plan with other fields."""
    whole = made(PLACE)
    found = parse({**whole, "spec": {**whole["spec"], **spec}})
    assert isinstance(found, Plan)
    return found


def with_its_digest(found: Plan) -> Plan:
    """A Plan whose digest somebody computed again, as anybody can."""
    spec = found.spec.model_copy(update={"digest": compute_plan_digest(found.spec)})
    return found.model_copy(update={"spec": spec})


def test_what_the_operator_made_is_what_it_shows() -> None:
    check_text(plan())


@pytest.mark.parametrize("allocation", [{"numReplicas": 50}, {"cost": 999}, {"numReplicas": -7}])
def test_other_decisions_than_are_shown_are_refused(allocation: Manifest) -> None:
    forged = plan(decisions=desired(made(PLACE), **allocation))

    with pytest.raises(InputError, match="is not the digest of what it says"):
        check_text(forged)
    with pytest.raises(InputError, match="Plan default/inferno-1: "):
        check_text(with_its_digest(forged))


def test_another_cost_than_that_of_the_decisions_is_refused() -> None:
    totals = {"servers": 1, "costBefore": 0, "costAfter": 2.9}

    with pytest.raises(InputError, match="its totals show another change of cost"):
        check_text(with_its_digest(plan(totals=totals)))


def test_a_plan_without_a_signature_is_refused() -> None:
    with pytest.raises(InputError, match="has no signature"):
        check_text(plan(signature=""))


def test_decisions_that_are_left_out_cannot_be_approved() -> None:
    with pytest.raises(InputError, match="left out"):
        check_text(with_its_digest(plan(decisions="")))
