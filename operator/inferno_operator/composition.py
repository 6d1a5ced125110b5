"""Put the controllers together: what each gets to know of the others."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inferno_operator.adapters.http.metrics import OperatorMetrics
from inferno_operator.adapters.optimizers.remote import StatefulRemoteOptimizer
from inferno_operator.adapters.prometheus.client import PrometheusClient
from inferno_operator.controllers.boosters.controller import BoosterController
from inferno_operator.controllers.calibration.controller import CalibrationController
from inferno_operator.controllers.calibration.replicas import (
    LabelledReplicas,
    PrometheusWindows,
    find_labelled_replicas,
)
from inferno_operator.controllers.capacity.controller import CapacityController
from inferno_operator.controllers.measurement.controller import MeasurementController
from inferno_operator.controllers.measurement.lookahead import PastRates
from inferno_operator.controllers.planning.controller import (
    OptimizationController,
    PlansController,
    ServerCheck,
)
from inferno_operator.controllers.planning.ports import (
    Context,
    KeySource,
    Machines,
    OnDemand,
    SystemOptimizer,
)
from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.controllers.scaling.controller import ScalingController
from inferno_operator.engines.catalogue import catalogue_with
from inferno_operator.engines.demand import DemandSurvey
from inferno_operator.engines.survey import Survey
from inferno_operator.resources import Resource
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Now
from inferno_operator.runtime.informers import Informers
from inferno_operator.runtime.manager import Controller
from inferno_operator.runtime.write_guard import GuardedCluster
from inferno_operator.settings import Settings
from inferno_optimizer.system import System

CALIBRATED_SOURCE = "vLLM"
"""The source whose replicas report what a calibration needs."""


@dataclass(frozen=True, slots=True)
class Components:
    """What controllers work with.

    Attributes
    ----------
    cluster, informers
        The API server, and what watches it.
    optimizer, metrics
        What optimizes, and who receives figures.
    prometheus
        Answers queries; None if the settings do not say where Prometheus is.
    dialect
        The ModelBoosters that the Model Booster controller looks after; None: it does not run.
    now
        The time of day, for what people know by the calendar.
    steady
        The time of day for what lasts: it does not jump, see `SteadyClock`.
    plan_key
        Gives the key with which the operator signs its Plans.
    """

    cluster: GuardedCluster
    informers: Informers
    optimizer: SystemOptimizer
    metrics: OperatorMetrics
    prometheus: PrometheusClient | None
    dialect: Dialect | None
    now: Now
    steady: Now
    plan_key: KeySource


@dataclass(frozen=True, slots=True)
class Controllers:
    """The controllers in the order in which they are stopped; one of them is `optimization`."""

    optimization: OptimizationController
    all: Sequence[Controller]


def compose(settings: Settings, parts: Components) -> Controllers:
    """Return the controllers that the settings ask for."""
    cluster, informers, now = parts.cluster, parts.informers, parts.now
    measurement = _measurement(settings, parts)
    scaling = ScalingController(cluster, informers, _system_of, parts.steady)
    capacity = CapacityController(cluster, informers, now, scaling.recheck)
    source = OnDemand(cluster)
    plans = PlansController(cluster, informers, source, measurement, now, parts.plan_key)
    optimization = _optimization(settings, parts, measurement, capacity, plans)
    measurement.when_a_plan_is_needed(optimization.plan_now)
    measurement.when_a_server_is_wanted(optimization.wake)
    controllers: tuple[Controller, ...] = (
        plans,  # before the optimization, which it would complete
        optimization,
        ServerCheck(cluster, informers, source, now, plans.locks),
        measurement,
        *_calibration(settings, parts, measurement),
        capacity,
        scaling,
        *_boosters(parts),
    )
    return Controllers(optimization, controllers)


def _measurement(settings: Settings, parts: Components) -> MeasurementController:
    """Return the measurement controller; without Prometheus it only says so on the Servers."""
    sources = catalogue_with(settings.measure_sources)
    survey = None if parts.prometheus is None else Survey(parts.prometheus, sources, time.time)
    demand = None if parts.prometheus is None else DemandSurvey(parts.prometheus, sources)
    interval = settings.measure_interval
    controller = MeasurementController(
        parts.cluster, parts.informers, survey, interval, parts.now, parts.metrics, demand
    )
    if parts.prometheus is not None:
        controller.begin_with(PastRates(parts.prometheus, sources, time.time))
    return controller


def _calibration(
    settings: Settings, parts: Components, measurement: MeasurementController
) -> Sequence[Controller]:
    """Return the calibration controller, if there is a Prometheus."""
    if parts.prometheus is None:
        return ()

    def labelled() -> Sequence[LabelledReplicas]:
        selections = (
            find_labelled_replicas(key.namespace, server, server.spec.measure.labels)
            for key, server in measurement.servers()
            if server.spec.measure and server.spec.measure.source == CALIBRATED_SOURCE
        )
        return [item for item in selections if item is not None]

    windows = PrometheusWindows(parts.prometheus, labelled)
    return (CalibrationController(parts.cluster, windows, settings.namespaces, parts.now),)


def _optimization(
    settings: Settings,
    parts: Components,
    measurement: MeasurementController,
    machines: Machines,
    plans: PlansController,
) -> OptimizationController:
    """Return the optimization controller; it asks the others for loads, nodes and permissions."""
    context = Context(
        parts.cluster,
        OnDemand(parts.cluster),
        parts.optimizer,
        parts.now,
        parts.steady,
        measurement,
        machines,
        plans.approver,
        settings.time_limit,
        parts.metrics,
        locks=plans.locks,
        writes=plans.writes,
    )
    store = parts.optimizer if isinstance(parts.optimizer, StatefulRemoteOptimizer) else None
    return OptimizationController(
        context, parts.informers, stateful=not settings.stateless, store=store
    )


def _boosters(parts: Components) -> Sequence[Controller]:
    """Return the Model Booster controller, if the settings name a dialect."""
    if parts.dialect is None:
        return ()
    return (BoosterController(parts.cluster, parts.informers, parts.dialect, parts.now),)


def _system_of(resources: Iterable[Resource]) -> System:
    """Return the system that the objects of a namespace describe."""
    return build_system(resources).system
