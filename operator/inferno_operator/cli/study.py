"""Studies: many replays, whose results are kept in a file as soon as there are some."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

import inferno_optimizer
from inferno_operator.cli.offline.documents import parse_documents
from inferno_operator.cli.offline.manifests import read_documents
from inferno_operator.cli.offline.system import OnUnknown, list_measures, parse_system
from inferno_operator.cli.offline.traces import read_trace
from inferno_operator.cli.options import replay as limits
from inferno_operator.cli.replay import (
    Replayed,
    ReplayedLoad,
    ReplayOptions,
    Row,
    Warn,
    build_scenario,
    divide,
    find_policy,
    find_policy_files,
    replay_policy,
)
from inferno_operator.resources.parsing import ManifestError, read_part
from inferno_operator.resources.schema import Items, NonEmptyText, Number, Part
from inferno_operator.runtime.files import append_bytes, read_bytes, write_bytes
from inferno_optimizer.errors import InputError
from inferno_optimizer.replay.plant import LeadTime
from inferno_optimizer.replay.policies import BOUND
from inferno_optimizer.replay.replay import Scenario

NAMES = ("fleet", "trace", "setting", "policy")
KEY = "key"
NotNegative = Annotated[Number, Field(ge=0)]

Result = Mapping[str, Any]
"""What a replay came to, as JSON: the columns of `Row`, `hours` and `cardHours`."""


class StudiedFleet(Part):
    """Servers, and what they may run on: files and folders, from the folder of the study."""

    name: NonEmptyText
    paths: Annotated[Items[NonEmptyText], Field(min_length=1)]


class StudiedTrace(Part):
    """A recorded load: a file, its hours (0: all of it), and a factor of all rates."""

    name: NonEmptyText
    file: NonEmptyText
    hours: NotNegative = 0
    scale: Annotated[Number, Field(ge=0, le=limits.MAX_SCALE)] = 1


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
    for field in ("fleets", "traces", "settings", "policies"):
        names = [getattr(each, "name", each) for each in getattr(study, field)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"{first.place([field])}: {field}: {twice!r} is there twice")
    return study


@dataclass(frozen=True, slots=True)
class StudyRun:
    """A replay of a study, and what its parts are called there.

    `key` is a digest of all that the result depends on: objects, load, setting, policy, version.
    A policy of the user is known by its name only.
    """

    fleet: str
    trace: str
    setting: str
    policy: str
    key: str
    scenario: Scenario

    @property
    def names(self) -> dict[str, str]:
        """What its parts are called, by what they are."""
        return {name: getattr(self, name) for name in NAMES}

    def __str__(self) -> str:
        return ", ".join(self.names.values())


@dataclass(frozen=True, slots=True)
class Studied:
    """A run and its result, beside that of the bound of hindsight for the same load."""

    run: StudyRun
    result: Result
    bound: Result

    @property
    def regret(self) -> float:
        """Cost above that of the bound [cents]."""
        return float(self.result["cost"] - self.bound["cost"])

    @property
    def share_of_optimum(self) -> float:
        """Cost of the bound divided by the cost."""
        return divide(self.bound["cost"], self.result["cost"])

    def document(self) -> dict[str, Any]:
        """All of it as JSON; costs in cents."""
        own = {"regret": self.regret, "shareOfOptimum": self.share_of_optimum}
        return {**self.run.names, **self.result, **own}


def list_runs(study: Study, folder: Path, unknown: OnUnknown, warn: Warn) -> Iterator[StudyRun]:
    """Yield the replays of a study, in its order; each load is also replayed with the bound.

    Paths begin in `folder`; `unknown` and `warn` are called with unknown fields, and with what was
    assumed.
    """
    policies = list(dict.fromkeys((BOUND.name, *study.policies)))
    for policy in policies:
        find_policy(policy)  # an unknown one is refused before the first replay
    program = _hash_files(sorted(Path(inferno_optimizer.__file__).parent.rglob("*.py")))
    code = {policy: _hash_files(find_policy_files(policy)) for policy in policies}
    for fleet, trace in product(study.fleets, study.traces):
        file = str(folder / trace.file)
        documents = read_documents(str(folder / path) for path in fleet.paths)
        load = ReplayedLoad(read_trace(file), file)
        system, measures = (
            parse_system(documents, unknown, warn, load.means),
            list_measures(documents),
        )
        inputs = _digest(
            [document.content for document in documents],
            hashlib.sha256(read_bytes(file)).hexdigest(),
            trace.model_dump(exclude={"name", "file"}),
            program,
            version("inferno-operator"),
        )
        for setting in study.settings:
            truth_file = str(folder / setting.truth) if setting.truth else ""
            true = read_documents([truth_file]) if truth_file else []
            options = ReplayOptions(
                step_s=setting.step_seconds,
                hours=trace.hours,
                scale=trace.scale,
                slower=setting.slower,
                error=setting.error,
                lead=LeadTime(setting.lead_time_seconds, setting.lead_time_cov),
                seed=setting.seed,
                truth=parse_system(true, unknown).profiles if true else (),
                truth_file=truth_file,
                measures=measures,
                poisson=setting.poisson,
            )
            performing = [document.content for document in true]
            made = _digest(inputs, setting.model_dump(exclude={"name", "truth"}), performing)
            scenario = build_scenario(system, load, options, warn)
            for policy in policies:
                names = (fleet.name, trace.name, setting.name, policy)
                yield StudyRun(*names, _digest(made, policy, code[policy]), scenario)


def _hash_files(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def compute_result(scenario: Scenario, policy: str) -> Result:
    """Replay, and return the sums over all servers; the bound is another run of the study."""
    account = replay_policy(scenario, policy)
    row = Row.of(Replayed(policy, account, account), "", slice(None)).document()
    return {**row, "hours": account.hours, "cardHours": account.card_hours}


def read_results(file: Path) -> dict[str, Result]:
    """Return the results of earlier runs by their keys; none without the file.

    A last line that was cut short, as by a crash, is left out.

    Raises
    ------
    InputError
        The file cannot be read, or is not one of results.
    """
    results: dict[str, Result] = {}
    lines = read_bytes(str(file)).splitlines(keepends=True) if file.exists() else []
    for number, line in enumerate(lines, start=1):
        if line.endswith(b"\n"):
            try:
                result = json.loads(line)
                key = result.pop(KEY)
                results[key] = {name: result[name] for name in result if name not in NAMES[:-1]}
            except (ValueError, KeyError, AttributeError) as error:
                wrong = f"{file}:{number}: is not a result of a study; name another file"
                raise InputError(wrong) from error
    return results


def open_results(file: Path) -> Callable[[StudyRun, Result], None]:
    """Return what adds a result to a file, as a line that is there even if this process is killed.

    Raises
    ------
    InputError
        The file cannot be written, now or later.
    """
    if file.exists():
        content = read_bytes(file)
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:  # a line that was cut short
            write_bytes(file, whole)
    append_bytes(file, b"")

    def add(run: StudyRun, result: Result) -> None:
        line = json.dumps({KEY: run.key, **run.names, **result})
        append_bytes(file, f"{line}\n".encode())

    return add


def compare_with_bounds(
    study: Study, runs: Sequence[StudyRun], results: Mapping[str, Result]
) -> list[Studied]:
    """Return what all runs came to, in the order of the study.

    A bound that nobody asked for is left out.
    """
    bounds = {
        (each.fleet, each.trace, each.setting): results[each.key]
        for each in runs
        if each.policy == BOUND.name
    }
    return [
        Studied(each, results[each.key], bounds[each.fleet, each.trace, each.setting])
        for each in runs
        if each.policy in study.policies
    ]
