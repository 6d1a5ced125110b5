"""A study: which policies are replayed, on which loads, with which fleets and settings."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field

from inferno_operator.cli import replay_limits as limits
from inferno_operator.cli.offline.documents import parse_documents
from inferno_operator.resources.parsing import ManifestError, read_part
from inferno_operator.resources.schema import Items, NonEmptyText, Number, Part
from inferno_operator.runtime.files import read_bytes
from inferno_optimizer.errors import InputError

NotNegative = Annotated[Number, Field(ge=0)]


class StudiedFleet(Part):
    """Servers, and what they may run on."""

    name: NonEmptyText
    paths: Annotated[Items[NonEmptyText], Field(min_length=1)]
    """Files and folders, from the folder of the study."""


class StudiedTrace(Part):
    """A recorded load."""

    name: NonEmptyText
    file: NonEmptyText
    """From the folder of the study."""

    hours: NotNegative = 0
    """How much of it; 0: all of it."""

    scale: Annotated[Number, Field(ge=0, le=limits.MAX_SCALE)] = 1
    """Multiplies all rates."""


class StudySetting(Part):
    """How a replay is made, and how far the Models are from the truth; see `inferno replay`."""

    name: NonEmptyText
    step_seconds: Annotated[Number, Field(ge=limits.MIN_STEP_S, le=limits.MAX_STEP_S)] = 60
    lead_time_seconds: Annotated[Number, Field(ge=0, le=limits.MAX_LEAD_TIME_S)] = 120
    lead_time_cov: Annotated[Number, Field(ge=0, le=limits.MAX_LEAD_TIME_COV)] = 0
    slower: Annotated[Number, Field(ge=limits.MIN_SLOWER)] = 1
    error: Annotated[Number, Field(ge=0, le=limits.MAX_ERROR)] = 0
    poisson: bool = False
    seed: Annotated[int, Field(ge=0)] = 0
    truth: str = ""
    """A file with how replicas really perform, from the folder of the study."""


class Study(Part):
    """Each policy is replayed with each fleet, trace and setting."""

    fleets: Annotated[Items[StudiedFleet], Field(min_length=1)]
    traces: Annotated[Items[StudiedTrace], Field(min_length=1)]
    settings: Annotated[Items[StudySetting], Field(min_length=1)] = (
        StudySetting(name="as the Models say"),
    )
    policies: Annotated[Items[NonEmptyText], Field(min_length=1)]


def read_study(file: Path) -> Study:
    """Read a study.

    Raises
    ------
    InputError
        The file cannot be read; a field is missing, unknown or has a bad value; or a name occurs
        twice.
    """
    first, *others = parse_documents(read_bytes(str(file)), str(file))
    if others:
        raise InputError(f"{others[0].origin}: a study is one document")
    try:
        study = read_part(Study, first.content)
    except ManifestError as error:
        raise InputError(f"{first.place(error.steps)}: {error.path} {error.problem}") from error
    names = {
        "fleets": [fleet.name for fleet in study.fleets],
        "traces": [trace.name for trace in study.traces],
        "settings": [setting.name for setting in study.settings],
        "policies": study.policies,
    }
    for field, given in names.items():
        _refuse_repeated(given, f"{first.place([field])}: {field}")
    return study


def _refuse_repeated(names: Iterable[str], place: str) -> None:
    seen = set[str]()
    for name in names:
        if name in seen:
            raise InputError(f"{place}: {name!r} is there twice")
        seen.add(name)
