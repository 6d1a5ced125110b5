"""Loads over time."""

import numpy as np
import pytest

from inferno_optimizer.errors import InputError
from inferno_optimizer.replay.trace import Trace, assign_clients, iterate_epochs
from tests.unit.optimizer.replay.fleets import OUTPUT, system, trace


def test_finer_steps_have_the_same_rates() -> None:
    finer = trace([1.0, 3.0], step_s=600.0).every(60.0)

    assert finer.rate[:, 0].tolist() == [1.0] * 10 + [3.0] * 10
    assert finer.seconds == 1200.0


def test_longer_steps_have_as_many_requests() -> None:
    longer = trace([1.0, 3.0, 5.0, 7.0, 9.0]).every(120.0)

    assert longer.rate[:, 0].tolist() == [2.0, 6.0, 9.0]


def test_steps_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        InputError, match="steps of 70 s: take a multiple or a whole part of the 60 s of the trace"
    ):
        trace([1.0]).every(70.0)


def test_a_part_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="nothing of the trace is between"):
        trace([1.0]).between(60.0, 60.0)


def test_clients_with_names_of_servers_load_these_as_they_are() -> None:
    found = assign_clients(trace([1.0, 2.0], clients=["s1"]), system(2).servers)

    assert found.rate.T.tolist() == [[0.0, 0.0], [1.0, 2.0]]


def test_other_clients_are_dealt_in_turn_with_the_peak_at_the_load_of_the_server() -> None:
    found = assign_clients(trace([1.0, 4.0], clients=["a", "b"]), system(3, rate=120.0).servers)

    assert found.rate.T.tolist() == [[0.5, 2.0]] * 3
    assert found.output_tokens[0].tolist() == [OUTPUT] * 3


def test_an_epoch_ends_where_a_length_changes_by_more_than_a_fiftieth() -> None:
    lengths = np.array([100.0, 101.0, 103.0, 103.0, 90.0])[:, None]
    changing = Trace(("a",), 60.0, np.ones_like(lengths), np.zeros_like(lengths), lengths)

    assert list(iterate_epochs(changing)) == [slice(0, 2), slice(2, 4), slice(4, 5)]
