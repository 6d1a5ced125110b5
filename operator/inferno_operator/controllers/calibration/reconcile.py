"""One calibration cycle: read windows, calibrate all Models, write what changed noticeably."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inferno_operator.controllers.calibration.parameters import calibrations, with_prefill_batch
from inferno_operator.controllers.calibration.past import Past
from inferno_operator.controllers.calibration.ports import Pair, WindowSource
from inferno_operator.controllers.calibration.status import update
from inferno_operator.resources import CalibratedData, Model
from inferno_operator.resources.objects import Now, kind_of
from inferno_operator.resources.observation import Observation, observe
from inferno_operator.runtime.ports import Cluster, FieldManager
from inferno_operator.runtime.updates import Writer
from inferno_optimizer.calibration.windows import Window, retained
from inferno_optimizer.errors import InfernoError

MODEL = kind_of(Model)
OFF = "Off"

FORGET_S = 24 * 3600.0
"""Age at which a window is forgotten [s]."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Context:
    """What cycles need.

    `namespaces` are those of the Models; if empty, all. `memory` has the windows to calibrate
    with, and `past` says which of the time before the start are still to be read; both outlive
    the cycles.
    """

    cluster: Cluster
    windows: WindowSource
    namespaces: Sequence[str]
    now: Now
    memory: dict[Pair, list[Window]] = field(default_factory=dict)
    past: Past = field(default_factory=Past)


async def reconcile(context: Context) -> None:
    """Calibrate all Models; what cannot be read or written now is left to the next cycle."""
    try:
        read = await context.windows.read()
        models = await _models(context)
    except InfernoError as error:
        logger.warning("no calibration: %s", error)
        return
    if read:  # else nothing is known yet of the replicas to ask about
        await _remember_past(context)
    _remember(context.memory, read, context.now().timestamp())
    wanted = {key: model for key, (_, model) in models.items() if model.spec.calibrate != OFF}
    rows = calibrations(context.memory, wanted, context.now())
    updates = (
        update(observation, rows.get(key) or _last(model), context.now())
        for key, (observation, model) in models.items()
    )
    writer = Writer(context.cluster, FieldManager.CALIBRATION, context.now)
    try:
        await writer.write_all(filter(None, updates))
    except InfernoError as error:
        logger.warning("some calibrations are not written: %s", error)


async def _models(context: Context) -> Mapping[tuple[str, str], tuple[Observation, Model]]:
    """The valid Models by namespace and spec.name; of several of a name, the oldest."""
    listings = [
        await context.cluster.list(MODEL, namespace) for namespace in context.namespaces or ("",)
    ]
    observations = [observe(Model, m) for listing in listings for m in listing.manifests]
    valid = [
        (o, o.resource) for o in observations if isinstance(o.resource, Model) and not o.deleted
    ]
    return {
        (observation.reference.key.namespace, model.spec.name): (observation, model)
        for observation, model in sorted(valid, key=lambda item: item[1].age, reverse=True)
    }


async def _remember_past(context: Context) -> None:
    """Read some windows of the time before the start; those that cannot be read are left out."""
    now = context.now().timestamp()
    for end in context.past.take(now):
        try:
            _remember(context.memory, await context.windows.read(end), now)
        except InfernoError as error:
            logger.warning("some windows before the start are not read: %s", error)


def _remember(
    memory: dict[Pair, list[Window]], read: Mapping[Pair, Sequence[Window]], now: float
) -> None:
    """Add the new windows, and forget old ones."""
    for pair in {*memory, *read}:
        before = memory.pop(pair, [])
        windows = (*before, *with_prefill_batch(read.get(pair, ()), before))
        if kept := retained(window for window in windows if window.end >= now - FORGET_S):
            memory[pair] = kept


def _last(model: Model) -> tuple[CalibratedData, ...]:
    """The calibration in the status, of a Model that has no windows; none if it is switched off."""
    return () if model.spec.calibrate == OFF else model.status.calibration
