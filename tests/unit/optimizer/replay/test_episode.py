"""A published episode: llm-d, guides/workload-autoscaling, README.slo-aware.md (September 2026).

Published for the law with KEDA: 95.8 % of requests within both targets at 5.93 replicas; for 8
replicas all the time: 100 %. The model's parameters are estimates, see the sample.
"""

from pathlib import Path

import numpy as np
import pytest

from inferno_operator.cli.offline.system import read_system
from inferno_operator.cli.offline.traces import read_trace
from inferno_operator.cli.replay import find_policy
from inferno_optimizer.replay.account import Account
from inferno_optimizer.replay.fleet import build_fleet
from inferno_optimizer.replay.plant import LeadTime
from inferno_optimizer.replay.replay import Scenario, replay
from inferno_optimizer.replay.trace import assign_clients

SAMPLES = Path(__file__).parents[4] / "samples"
STEP_S = 5.0


def episode(name: str) -> Account:
    fleet, _ = build_fleet(read_system([str(SAMPLES / "episode")]))
    load = assign_clients(read_trace(str(SAMPLES / "traces/slo-aware.csv")), fleet.servers)
    shown, policy = Scenario(fleet, fleet, load.every(STEP_S), LeadTime(100.0)), find_policy(name)
    return replay(shown, policy, fleet.home)


def replicas(account: Account) -> float:
    """Mean until the load has ended and the replicas are back at their least number."""
    over_time = account.history.replicas[:, 0]
    ended = round(2430 / STEP_S)
    drained = ended + int(np.argmax(over_time[ended:] == over_time[ended:].min()))
    return float(over_time[:drained].mean())


def test_the_law_with_keda_comes_to_what_is_published() -> None:
    account = episode("keda-slo")

    assert account.attainment == pytest.approx(0.958, abs=0.025)
    assert replicas(account) == pytest.approx(5.93, abs=0.3)


def test_eight_replicas_all_the_time_keep_the_targets() -> None:
    account = episode("static-peak")

    assert account.attainment > 0.995
    assert account.history.replicas.max() == 8


def test_inferno_keeps_more_with_fewer_replicas() -> None:
    account = episode("inferno")

    assert account.attainment > 0.97
    assert replicas(account) < 5.9
