"""What a wrong measurement takes from servers under full load, on a real control plane.

A real Prometheus scrapes simulated engines behind the pods. Times are short: the window of the way
down is half a minute, unless said otherwise.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from operator import le
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.motion import ENGINES, LENGTHS, Motion, Mover, PodTimes, manifests, moving
from tests.cluster.scene import Scene, condition
from tests.cluster.test_way_down import History
from tests.conftest import StartOperator
from tests.controlplane.deployments import deployment
from tests.controlplane.waiting import wait_until
from tests.engines.fleet import Fleet as FleetOfEngines
from tests.engines.fleet import Settings

Manifest = dict[str, Any]

pytestmark = pytest.mark.usefixtures("crds_installed", "deployment_controllers")

LONG_S = 30
"""The window of the loads that are measured [s]; the short one is a third."""

MODEL = {
    "A100": replace(ENGINES["A100"], beta=1.0),  # a step takes 20 ms with 12 requests
    "L40S": replace(ENGINES["L40S"], beta=0.5),
    "H100": ENGINES["H100"],
}
"""What the engines are, and what the Model says of them."""

CARDS = {"A100": 30, "L40S": 30, "H100": 30}


def constant(rate: float) -> Callable[[float], float]:
    """Return a load that does not move."""
    return lambda _: rate


def mover(name: str, rate: float, accelerator: str, replicas: int) -> Mover:
    """Return a server under full load."""
    return Mover(name, constant(rate), (accelerator,), replicas, MODEL[accelerator])


FLEETS: Mapping[str, Sequence[Mover]] = {
    "three servers": [
        mover("eight", 20.0, "A100", 8),
        mover("four", 7.5, "L40S", 4),
        mover("two", 4.2, "A100", 2),
    ],
    "prefill and decode": [mover("apart", 12.0, "A100", 4)],
}
"""Servers, their loads [requests/s], and the replicas that these need."""

PREFILL = "apart-prefill-l40s", 4
"""The prefill replicas of the server that has them apart; nothing is scraped of these."""


def manifests_of(name: str, window_s: int) -> Iterator[Manifest]:
    """Yield all objects of a fleet."""
    fleet = list(FLEETS[name])
    is_apart = name == "prefill and decode"
    for manifest in manifests(fleet, CARDS, interval=2):
        kind, spec = manifest["kind"], manifest.get("spec", {})
        if kind == "Model":
            spec["data"] = [_performance(accelerator) for accelerator in MODEL]
            if is_apart:
                spec["transfer"] = {"perRequestMs": 1, "perTokenMs": 0.001}
                spec["data"] = [_decode(), _prefill()]
        elif kind == "Server":
            windows = {"shortSeconds": LONG_S // 3, "longSeconds": LONG_S}
            spec["measure"]["windows"] = windows
            spec["scaleDown"] = {"windowSeconds": LONG_S}
            if is_apart:
                spec["workloads"] = [
                    {"accelerator": "A100", "role": "Decode", "name": "apart-a100"},
                    {"accelerator": "L40S", "role": "Prefill", "name": PREFILL[0]},
                ]
                yield deployment(*PREFILL)
        elif kind == "Optimizer":
            spec["guard"] = {"window": window_s}
        yield manifest


def _performance(accelerator: str) -> Manifest:
    engine = MODEL[accelerator]
    return {
        "acc": accelerator,
        "accCount": 1,
        "maxBatchSize": engine.max_batch_size,
        "atTokens": 200,
        "decodeParms": {"alpha": engine.alpha, "beta": engine.beta},
        "prefillParms": {"gamma": engine.gamma, "delta": engine.delta},
    }


def _decode() -> Manifest:
    item = _performance("A100")
    del item["decodeParms"], item["prefillParms"]
    steps = {"alpha": 8, "kappa": 0.002, "delta": 0.01, "ahead": 1, "budget": 8192}
    return item | {"role": "Decode", "stepParms": steps, "maxTokens": 1000000}


def _prefill() -> Manifest:
    item = _performance("L40S")
    del item["decodeParms"], item["prefillParms"]
    steps = {"alpha": 20, "kappa": 0.0001, "delta": 1.1, "ahead": 1, "budget": 8192}
    return item | {"role": "Prefill", "stepParms": steps, "maxBatchSize": 1, "maxTokens": 1000000}


QUIET = "quiet"
"""A model with as many replicas, at least, and little load, which a wrong label measures."""

SPARE: Mapping[str, int] = {"three servers": 4, "prefill and decode": 0}
"""Its replicas beyond those that a server begins with, which may grow before the label is wrong.

Of a server with prefill apart as many have to report as decode, not some of both roles.
"""


@dataclass(frozen=True, slots=True)
class Scaled:
    """A fleet in a cluster, with its engines.

    Attributes
    ----------
    window_s
        The window of the way down.
    """

    scene: Scene
    motion: Motion
    history: History
    movers: Sequence[Mover]
    window_s: int

    def needed(self) -> dict[str, int]:
        """Return the replicas that the loads need; a burst may have asked for more for a while."""
        begun = dict([PREFILL])
        for mover in self.movers:
            begun[f"{mover.name}-{mover.accelerators[0].lower()}"] = mover.running
        return {name: min(n, begun[name]) for name, n in self.history.latest().items()}

    def told(self) -> dict[str, tuple[str, str]]:
        """Return the quality and the message of each measurement."""
        found = {}
        for name, server in self.scene.servers().items():
            measured = condition(server, "Measured")
            found[name] = measured.get("reason", ""), measured.get("message", "")
        return found

    def is_fresh(self) -> bool:
        """Whether each server is measured over whole windows."""
        return all(quality == "Fresh" for quality, _ in self.told().values())

    def is_settled(self) -> bool:
        """Whether what was decided for whole windows runs."""
        conditions = (condition(each, "Actuated") for each in self.scene.servers().values())
        return self.is_fresh() and all(each.get("reason") == "Actuated" for each in conditions)

    def is_steady(self) -> bool:
        """Whether it is settled, and what the first minutes wanted more is gone."""
        return self.is_settled() and self.history.unchanged_s > 1.2 * LONG_S

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        end = self.history.now + seconds
        wait_until(lambda: self.history.now, partial(le, end), "the end", seconds + 60)

    def lose(self, kept: Callable[[int], int]) -> None:
        """Let Prometheus discover only some of the pods of each server."""
        names = [sorted(self.motion.servers[mover.name].pods) for mover in self.movers]
        self.motion.lose(pod for pods in names for pod in pods[kept(len(pods)) :])

    def wait_until_partial(self) -> float:
        """Wait until each measurement says that pods do not report; returns when they do.

        What was decided before, for the load as it was, may still take replicas.
        """

        def is_told(found: Mapping[str, tuple[str, str]]) -> bool:
            return all("ready pods report" in message for _, message in found.values())

        found = wait_until(self.told, is_told, "pods that do not report")
        assert {quality for quality, _ in found.values()} == {"Partial"}
        return self.history.now


@contextmanager
def losing_pods(scaled: Scaled) -> Iterator[float]:
    """Discovery has one pod of each server for three windows."""
    scaled.lose(lambda _: 1)
    known = scaled.wait_until_partial()
    scaled.wait(3 * LONG_S)
    yield known
    scaled.motion.lose(())


@contextmanager
def coming_back_with_a_third(scaled: Scaled) -> Iterator[float]:
    """Prometheus is killed, and comes back with a third of the pods of each server."""
    scaled.motion.prometheus.stop()
    scaled.wait(LONG_S / 2)
    scaled.lose(lambda pods: ceil(pods / 3))
    scaled.motion.prometheus.start()
    known = scaled.wait_until_partial()
    scaled.wait(3 * LONG_S)
    yield known
    scaled.motion.lose(())


@contextmanager
def measuring_another_model(scaled: Scaled) -> Iterator[float]:
    """Each server has a label of another model, which has little load, for a window or two."""

    def label(model_name: str | None = None) -> None:
        plane, namespace = scaled.scene.control_plane, scaled.scene.namespace
        for mover in scaled.movers:
            labels = {"model_name": model_name or mover.name}
            plane.patch("server", mover.name, {"spec": {"measure": {"labels": labels}}}, namespace)

    begin, asked = scaled.history.now, scaled.history.latest()
    label(QUIET)
    wait_until(
        lambda: scaled.history.reductions_since(begin),
        lambda reductions: reductions.keys() == asked.keys(),
        "fewer replicas of each",
        8 * LONG_S,
    )
    scaled.wait(1.2 * scaled.window_s)
    yield begin
    label()


Fault = Callable[[Scaled], AbstractContextManager[float]]
"""It is going on inside of its context; tells since when it is known."""

FAULTS: Mapping[str, Fault] = {
    "discovery loses pods": losing_pods,
    "Prometheus comes back with a third": coming_back_with_a_third,
    "a wrong label": measuring_another_model,
}


@contextmanager
def scaled_fleet(
    name: str, window_s: int, scene: Scene, operator: StartOperator, prometheus_program: Path
) -> Iterator[Scaled]:
    """Run a fleet whose replicas are those that its load needs, until the block ends."""
    movers, times = list(FLEETS[name]), PodTimes(cold_start_s=3.0, ending_s=2.0)
    with FleetOfEngines(seed=2) as quiet:
        settings = Settings(MODEL["A100"], LENGTHS, QUIET, labels={"namespace": "prod"})
        most = max(m.running for m in movers) + SPARE[name]
        quiet.add(QUIET, settings, replicas=most, rate=1.0)
        others = quiet.targets()
        with moving(
            scene, prometheus_program, movers, scrape_s=1.0, pods=times, others=others
        ) as motion:
            scene.apply(*manifests_of(name, window_s))
            wait_until(motion.all_serve, bool, "replicas that serve")
            operator(environment=motion.environment(measure_s=2.0))
            with History(scene, float(window_s)) as history:
                scaled = Scaled(scene, motion, history, movers, window_s)
                wait_until(scaled.is_steady, bool, "replicas for the load", 10 * LONG_S)
                motion.begin()
                yield scaled


def check(scaled: Scaled, fault: Fault, title: str) -> None:
    """Cause a fault and end it: nobody falls too far, and what the load needs comes back."""
    history = scaled.history
    needed, begin = scaled.needed(), history.now
    with fault(scaled) as known:
        during = history.reductions_since(known)
    ended = history.now
    wait_until(
        history.serving,
        lambda ready: all(ready[name] >= n for name, n in needed.items()),
        "what the load needs",
        4 * LONG_S + scaled.window_s,
    )
    wait_until(scaled.is_settled, bool, "replicas for the load", 4 * LONG_S + scaled.window_s)
    _show(scaled, title, begin, ended)

    assert history.falls() == []
    if fault is measuring_another_model:
        assert during.keys() == needed.keys()
    else:
        assert during == {}


def _show(scaled: Scaled, title: str, begin: float, ended: float) -> None:
    """Print the replicas at each fifth of a window, for people."""
    minute_s = scaled.window_s / 5
    after = round((ended - begin) / minute_s, 1)
    print(f"\n{title}; a minute is {minute_s:g} s; the fault ends after {after:g} minutes")
    for name, replicas in scaled.history.by_minute(begin).items():
        print(f"{name:20} {' '.join(map(str, replicas))}")
    for name, reductions in scaled.history.reductions_since(begin).items():
        steps = (f"{at - begin:.0f} s: {before} -> {after}" for at, before, after in reductions)
        print(f"{name:20} {', '.join(steps)}")


@pytest.mark.extended
@pytest.mark.minutes
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("fleet", FLEETS)
def test_a_wrong_measurement_takes_no_more_than_half_within_a_window_and_what_went_comes_back(
    scene: Scene, operator: StartOperator, prometheus_program: Path, fleet: str, fault: str
) -> None:
    with scaled_fleet(fleet, 30, scene, operator, prometheus_program) as scaled:
        check(scaled, FAULTS[fault], f"{fleet}: {fault}")


@pytest.mark.soak("it takes fifteen minutes: the window is 300 s")
@pytest.mark.timeout(1800)
def test_the_usual_window_takes_no_more_than_half_within_300_s(
    scene: Scene, operator: StartOperator, prometheus_program: Path
) -> None:
    with scaled_fleet("three servers", 300, scene, operator, prometheus_program) as scaled:
        check(scaled, measuring_another_model, "three servers: a wrong label, window 300 s")
