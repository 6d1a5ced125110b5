"""The formulas of llm-d and Dynamo, in steps that are computed by hand."""

from dataclasses import fields, replace

import numpy as np
import pytest

from inferno_operator.cli.replay import find_policy
from inferno_optimizer.replay.plant import StepResult
from inferno_optimizer.replay.policy import Decide, Seen, Setting
from tests.unit.optimizer.replay.fleets import fleet, load, trace

QUIET = StepResult(**{field.name: np.zeros(1) for field in fields(StepResult)})


def decider(name: str, step_s: float = 60.0) -> Decide:
    of = fleet()
    return find_policy(name).make(Setting(of, step_s, 120.0, of.home, trace([8.0])))


def wanted(decide: Decide, present: int, ready: int, time_s: float = 60.0, **served: float) -> int:
    of = fleet()
    result = replace(QUIET, **{name: np.array([value]) for name, value in served.items()})
    counts = [of.at_home(np.array([count])) for count in (present, ready)]
    return int(decide(Seen(time_s, load(8.0), result, *counts)).sum())


@pytest.mark.parametrize(
    ("running", "waiting", "present", "replicas"),
    [(40, 0, 1, 2), (48, 0, 2, 3), (49, 0, 2, 4), (10, 3, 2, 3), (0, 0, 1, 1)],
)
def test_the_queue_counts_what_waits_or_a_sixteenth_of_what_runs(
    running: float, waiting: float, present: int, replicas: int
) -> None:
    decide = decider("keda-queue-guard")

    assert wanted(decide, present, present, running=running, waiting=waiting) == replicas


def test_without_the_guard_an_increase_must_last_for_five_minutes() -> None:
    decide = decider("keda-queue")
    seen = [wanted(decide, 2, 2, running=running) for running in [32] * 5 + [60] * 5]

    assert seen == [2] * 9 + [4]


def test_the_guard_takes_off_what_starts_and_takes_nothing_away_meanwhile() -> None:
    assert wanted(decider("keda-queue-guard"), 6, 4, waiting=9) == 7
    assert wanted(decider("keda-queue-guard"), 6, 2, waiting=7) == 6


@pytest.mark.parametrize(
    ("batch_use", "waiting", "ready", "replicas"),
    [
        (2.9, 0.0, 4, 5),  # .80 - .725 is less than .10
        (2.0, 9.0, 4, 5),  # 5 - 2.25 is less than 3
        (2.0, 9.0, 3, 4),  # one starts
        (2.4, 0.0, 4, 4),  # three would have .80 to bear
        (1.0, 0.0, 4, 3),
    ],
)
def test_saturation_adds_or_takes_one(
    batch_use: float, waiting: float, ready: int, replicas: int
) -> None:
    decide = decider("keda-saturation")
    present = 4

    for _ in range(6):
        found = wanted(decide, present, ready, batch_use=batch_use, waiting=waiting)

    assert found == replicas


def test_tokens_add_one_replica_in_three_minutes() -> None:
    decide, present, history = decider("keda-token"), 1, []

    for _ in range(7):
        present = wanted(decide, present, present, batch_use=4.0)
        history.append(present)

    assert history == [2, 2, 2, 3, 3, 3, 4]


def test_dynamo_has_the_replicas_for_the_throughput_and_one_more_where_it_is_slow() -> None:
    decide = decider("dynamo-sla")

    base = wanted(decide, 1, 1, itl_ms=10.0)
    more = wanted(decide, base, base, time_s=120.0, itl_ms=90.0)

    assert base == 3
    assert more == base + 1
    assert wanted(decide, more, more, time_s=180.0, itl_ms=10.0) == base
