"""Replicas go by half within the window, on a real control plane, also of operators that end."""

import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from operator import ge
from typing import Any

import pytest

from tests.cluster.background import Background
from tests.cluster.kubelet import Witness, running_pods
from tests.cluster.scene import Scene
from tests.cluster.test_workloads import Fleet
from tests.conftest import StartOperator
from tests.controlplane.errors import ApiError
from tests.controlplane.waiting import wait_until

Manifest = dict[str, Any]

pytestmark = pytest.mark.usefixtures("crds_installed", "deployment_controllers")

WINDOW_S = 10.0
CARDS = {"A": 20}
RUNNING = {"s00": 8, "s01": 5, "s02": 3, "s03": 2}


class History(Background):
    """How many replicas serve and are asked for, by Deployment, each moment."""

    def __init__(self, scene: Scene, window_s: float) -> None:
        super().__init__()
        self._scene = scene
        self._window_s = window_s
        self._began = time.monotonic()
        self.moments: dict[str, list[tuple[float, int, int]]] = {}
        self._asked: list[float] = []
        """When each look began: what it saw is no older."""
        self.look()  # what is there at first, however late the thread begins

    def work(self) -> None:
        """Look five times a second."""
        while not self._stopped.wait(0.2):
            with suppress(ApiError):  # an API server that is slow for a moment
                self.look()

    def look(self) -> None:
        """Note what there is now."""
        asked = self.now
        found = self._scene.items("deployments")
        self._asked.append(asked)
        for each in found:
            ready = each.get("status", {}).get("readyReplicas", 0)
            moment = self.now, ready, each["spec"]["replicas"]
            self.moments.setdefault(each["metadata"]["name"], []).append(moment)

    def falls(self) -> list[tuple[str, float, int, int]]:
        """Where fewer than half serve of what served less than a window before."""
        return list(self._falls())

    def _falls(self) -> Iterator[tuple[str, float, int, int]]:
        for name, moments in self.moments.items():
            for place, (begin, (_, before, _)) in enumerate(zip(self._asked, moments, strict=True)):
                for now, ready, asked in moments[place:]:
                    least = before - max(1, before // 2)
                    if now - begin < self._window_s and min(ready, asked) < least:
                        yield name, now - begin, before, min(ready, asked)

    @property
    def now(self) -> float:
        """Seconds since it began to look."""
        return time.monotonic() - self._began

    @property
    def unchanged_s(self) -> float:
        """Seconds since a number that is asked for changed, or since it began to look."""
        changes = (
            moment
            for moments in self.moments.values()
            for (_, _, before), (moment, _, after) in pairwise(moments)
            if before != after
        )
        return self.now - max(changes, default=0.0)

    def serving(self) -> dict[str, int]:
        """The replicas that were ready last."""
        return {name: moments[-1][1] for name, moments in self.moments.items()}

    def latest(self) -> dict[str, int]:
        """The numbers that were asked for last."""
        return {name: moments[-1][2] for name, moments in self.moments.items()}

    def reductions_since(self, begin: float) -> dict[str, list[tuple[float, int, int]]]:
        """The reductions after a moment: when, and the numbers before and after."""
        found: dict[str, list[tuple[float, int, int]]] = {}
        for name, moments in self.moments.items():
            for (_, _, before), (moment, _, after) in pairwise(moments):
                if moment > begin and after < before:
                    found.setdefault(name, []).append((moment, before, after))
        return found

    def by_minute(self, begin: float) -> dict[str, list[int]]:
        """The ready replicas at each fifth of a window since a moment."""
        found: dict[str, list[int]] = {}
        for name, moments in self.moments.items():
            due, found[name] = begin, []
            for moment, ready, _ in moments:
                if moment >= due:
                    found[name].append(ready)
                    due += self._window_s / 5
        return found

    def numbers(self, name: str) -> list[int]:
        """The numbers that were asked for, one after the other."""
        asked = [n for _, _, n in self.moments[name]]
        return [n for n, before in zip(asked, [None, *asked], strict=False) if n != before]


@pytest.fixture
def fleet(scene: Scene) -> Fleet:
    """Servers in the test's namespace."""
    return Fleet(scene, CARDS)


@pytest.fixture
def witness(fleet: Fleet) -> Iterator[Witness]:
    """Pods start and end in the test's namespace."""
    where = fleet.control_plane.kubeconfig, fleet.scene.namespace
    with running_pods(*where, fleet.cards) as witness:
        yield witness


@pytest.mark.usefixtures("witness")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nobody_loses_more_than_half_within_the_window_however_often_operators_end(
    fleet: Fleet, operator: StartOperator
) -> None:
    names = fleet.create(servers=len(RUNNING), window=int(WINDOW_S))
    running = operator()
    fleet.decide({name: {"A": RUNNING[name]} for name in names}, dict.fromkeys(names, 1))
    wait_until(fleet.reasons, lambda found: set(found.values()) == {"Actuated"}, "replicas")

    with History(fleet.scene, WINDOW_S) as history:
        fleet.decide({name: {"A": 1} for name in names}, dict.fromkeys(names, 1))
        for least in (4, 2, 1):
            wait_until(
                lambda: fleet.scene.replicas()["s00-a"], partial(ge, least), "fewer replicas"
            )
            running.kill()
            running = operator()
        wait_until(fleet.reasons, lambda found: set(found.values()) == {"Actuated"}, "one each")

    assert history.falls() == []
    assert history.numbers("s00-a") == [8, 4, 2, 1]
    assert history.numbers("s01-a") == [5, 3, 2, 1]
    assert history.numbers("s02-a") == [3, 2, 1]
    assert history.numbers("s03-a") == [2, 1]
