"""What the webhook answers, without a cluster."""

from typing import Any

import kopf
import pytest

from inferno_operator.adapters.admission import Admission
from inferno_operator.controllers.planning.mistakes import SMALL_KINDS
from tests.unit.operator import objects
from tests.wrong_objects import FLEET, MISTAKES, Manifest

FROZEN = objects.guarded({"freeze": [{"start": "0 25 * * *", "duration": "1h"}]})


def body(manifest: Manifest, **metadata: object) -> kopf.Body:
    fields: Any = {**manifest["metadata"], "namespace": "n", **metadata}
    whole: Any = {**manifest, "metadata": fields}
    return kopf.Body(whole)


def known() -> dict[str, Any]:
    """Indices with what is right."""
    return {
        kind.plural: {"n": [o for o in map(objects.observed, FLEET) if o.kind is kind]}
        for kind in SMALL_KINDS
    }


@pytest.fixture
def admission() -> Admission:
    return Admission(kopf.WebhookServer())


async def test_names_are_compared_when_all_objects_are_known(admission: Admission) -> None:
    wrong, before, after = body(MISTAKES["model misspelt"]), list[str](), list[str]()

    await admission.check(body=wrong, warnings=before, **known())
    await admission.note_complete()
    await admission.check(body=wrong, warnings=after, **known())

    assert (before, len(after)) == ([], 1)


async def test_what_cannot_be_read_is_refused_unless_it_was_so_before(
    admission: Admission,
) -> None:
    warnings = list[str]()

    with pytest.raises(kopf.AdmissionError, match="no cron expression"):
        await admission.check(body=body(FROZEN), warnings=warnings)
    with pytest.raises(kopf.AdmissionError, match="no cron expression"):
        await admission.check(body=body(FROZEN), old=body(FLEET[-1]), warnings=warnings)
    assert warnings == []

    await admission.check(body=body(FROZEN, labels={"a": "b"}), old=body(FROZEN), warnings=warnings)
    assert "no cron expression" in warnings[0]


async def test_an_object_that_is_being_deleted_may_be_written(admission: Admission) -> None:
    warnings = list[str]()

    deleted = body(FROZEN, deletionTimestamp=objects.born(0))
    await admission.check(body=deleted, old=body(FLEET[-1]), warnings=warnings)

    assert warnings == []


async def test_an_error_of_ours_refuses_nothing(
    admission: Admission, caplog: pytest.LogCaptureFixture
) -> None:
    warnings = list[str]()
    await admission.note_complete()

    await admission.check(body=body(FLEET[0]), warnings=warnings)  # there are no indices

    assert warnings == []
    assert "nothing is said about Accelerator n/a100" in caplog.text
