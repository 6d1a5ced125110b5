"""What is written on a Model, and when."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from inferno_operator.controllers.calibration.controller import report_calibration
from inferno_operator.resources import CalibratedData, DecodeParms, Model
from inferno_operator.resources.observation import Observation, observe
from tests.unit.operator import objects
from tests.unit.operator.controllers.calibration.seen import NOW
from tests.unit.operator.objects import require


def row(reason: str = "Calibrated", alpha: float = 8.0, **fields: Any) -> CalibratedData:  # noqa: ANN401
    parameters = DecodeParms(alpha=alpha, beta=0.1)
    return CalibratedData(
        acc="A", reason=reason, time=NOW, rows=100, decode_parms=parameters, **fields
    )


def observed(rows: Sequence[CalibratedData] = ()) -> Observation:
    """A Model on which these rows were written."""
    manifest = objects.model("M", namespace="default", uid="u", resourceVersion="1", generation=1)
    written = report_calibration(observe(Model, manifest), rows, NOW) if rows else None
    return observe(Model, {**manifest, "status": written.status} if written else manifest)


def test_the_condition_tells_the_first_refusal() -> None:
    change = report_calibration(observed(), [row(), row("NoSpread", message="measure at 64")], NOW)

    (condition,) = require(require(change).status)["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "NoSpread")
    assert condition["message"] == "A: measure at 64"


@pytest.mark.parametrize(
    ("new", "written"),
    [
        (row(), False),
        (row(alpha=8.05), False),
        (row(alpha=8.2), True),
        (row("NoSpread"), True),
        (row().model_copy(update={"rows": 105}), False),
        (row().model_copy(update={"rows": 120}), True),
        (row().model_copy(update={"time": NOW + timedelta(hours=1)}), False),
    ],
)
def test_only_what_changed_noticeably_is_written(new: CalibratedData, written: bool) -> None:
    assert (report_calibration(observed([row()]), [new], NOW) is not None) == written


def test_a_change_of_the_engine_is_an_event_once() -> None:
    shifted = row("Shifted", message="the engine became about 20% slower")

    first = report_calibration(observed([row()]), [shifted], NOW)
    again = report_calibration(observed([shifted]), [row("Shifted", 9.0)], NOW)

    (event,) = require(first).news
    assert (event.type, event.reason, event.action) == ("Warning", "Shifted", "Calibrate")
    assert event.message == "A: the engine became about 20% slower"
    assert require(again).news == ()
