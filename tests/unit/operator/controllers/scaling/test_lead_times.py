"""How long new replicas take to serve, as their pods show."""

import pytest

from inferno_operator.controllers.scaling.pods import FirstStarts, measure_lead_times
from inferno_operator.resources import Server
from tests.unit.operator.objects import manifest, observed, running


def found(before: dict[str, float], **seconds: tuple[float, ...]) -> dict[str, float]:
    """The lead times of a Server with others in its status, whose pods took so long to start."""
    spec = {"name": "S", "class": "C", "model": "M", "currentAlloc": running(0, 1)}
    known = [{"accelerator": a, "seconds": s, "pods": 1} for a, s in before.items()]
    body = {**manifest("Server", spec, name="s"), "status": {"leadTimes": known}}
    server = observed(body).resource
    assert isinstance(server, Server)
    return {time.accelerator: time.seconds for time in measure_lead_times(server, seconds)}


@pytest.mark.parametrize(
    ("pods", "seconds"),
    [((30.0,), 30.0), ((30.0, 50.0), 50.0), (tuple(map(float, range(1, 21))), 18.0)],
)
def test_nine_of_ten_pods_start_within_the_lead_time(
    pods: tuple[float, ...], seconds: float
) -> None:
    assert found({}, A=pods) == {"A": seconds}


def test_the_lead_time_of_an_accelerator_without_pods_stays() -> None:
    assert found({"A": 70.0}, A=(), B=(40.0,)) == {"A": 70.0, "B": 40.0}
    assert found({}, A=(), B=()) == {}


def test_a_lead_time_that_hardly_moves_is_not_written_again() -> None:
    assert found({"A": 100.0}, A=(109.0,)) == {"A": 100.0}
    assert found({"A": 100.0}, A=(115.0,)) == {"A": 115.0}


def test_an_accelerator_that_is_not_named_any_more_has_none() -> None:
    assert found({"A": 70.0, "B": 40.0}, B=(40.0,)) == {"B": 40.0}


def test_a_pod_that_was_unready_for_a_while_did_not_start_again() -> None:
    starts = FirstStarts()

    assert starts.note_ready({"p": 30.0}) == (30.0,)
    assert starts.note_ready({"p": 900.0, "q": 40.0}) == (30.0, 40.0)
    assert starts.note_ready({"q": 40.0}) == (40.0,)


def test_a_pod_that_was_ready_again_before_it_was_seen_tells_nothing() -> None:
    assert FirstStarts().note_ready({"p": 86_400.0}) == ()
