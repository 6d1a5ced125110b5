"""Which Optimizer and which Server is meant."""

import pytest

from inferno_operator.cli.kubectl.selection import choose_optimizer, choose_server
from inferno_optimizer.errors import InputError
from tests.unit.operator.objects import observed, optimizer, server

BOTH = [observed(optimizer("a")), observed(optimizer("b"))]


def test_the_only_optimizer_needs_no_name() -> None:
    assert choose_optimizer(BOTH[:1], "llm", None).metadata.name == "a"
    assert choose_optimizer(BOTH, "llm", "b").metadata.name == "b"


def test_of_several_optimizers_one_has_to_be_named() -> None:
    with pytest.raises(
        InputError, match="namespace 'llm' has several Optimizers: name one of a, b"
    ):
        choose_optimizer(BOTH, "llm", None)
    with pytest.raises(InputError, match=r"Optimizer llm/c: there is none \(known: a, b\)"):
        choose_optimizer(BOTH, "llm", "c")
    with pytest.raises(InputError, match="namespace 'llm' has no Optimizer"):
        choose_optimizer([], "llm", None)


def test_an_optimizer_that_cannot_be_read_is_refused_with_the_field() -> None:
    broken = optimizer("a")
    broken["spec"]["data"] = {}

    with pytest.raises(InputError, match=r"Optimizer default/a: spec.data.optimizer is missing"):
        choose_optimizer([observed(broken)], "llm", None)


def test_the_name_of_an_object_wins_over_that_in_a_spec() -> None:
    servers = [observed(server("x", name="first")), observed(server("first", name="second"))]

    assert choose_server(servers, "llm", "first").metadata.name == "first"
    assert choose_server(servers, "llm", "x").metadata.name == "first"
    assert choose_server(servers[1:], "llm", "first").metadata.name == "second"


def test_a_server_that_is_not_there_or_unreadable_is_refused() -> None:
    broken = server("s")
    del broken["spec"]["model"]

    with pytest.raises(InputError, match=r"Server default/s: spec.model is missing"):
        choose_server([observed(broken)], "llm", "s")
    with pytest.raises(InputError, match=r"Server llm/t: there is none \(known: s\)"):
        choose_server([observed(broken)], "llm", "t")


def test_the_nearest_name_is_suggested_for_one_that_is_not_there() -> None:
    servers = [observed(server("premium-chat")), observed(server("batch"))]

    with pytest.raises(InputError, match=r"there is none; did you mean premium-chat\? \(known: "):
        choose_server(servers, "llm", "premium-caht")
    with pytest.raises(InputError, match=r"Optimizer llm/c: there is none \(known: a, b\)"):
        choose_optimizer(BOTH, "llm", "c")


def test_of_a_namespace_without_such_objects_that_is_said() -> None:
    with pytest.raises(InputError, match=r"^Server llm/t: namespace 'llm' has no Server$"):
        choose_server(BOTH, "llm", "t")
