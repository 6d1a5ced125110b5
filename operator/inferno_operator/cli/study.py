"""Studies: many replays, whose results are kept in a file as soon as there are some."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

from inferno_operator.cli.executors import completed
from inferno_operator.cli.offline.manifests import read_documents
from inferno_operator.cli.offline.study import StudiedFleet, StudiedTrace, Study, StudySetting
from inferno_operator.cli.offline.system import OnUnknown, measures_of, system_of
from inferno_operator.cli.offline.traces import read_trace
from inferno_operator.cli.replay import (
    Replayed,
    ReplayedLoad,
    ReplayOptions,
    Warn,
    find_policy,
    run,
    scenario_of,
    share_of,
)
from inferno_operator.cli.replay_documents import Row
from inferno_operator.runtime.files import append_bytes, read_bytes, write_bytes
from inferno_optimizer.errors import InputError
from inferno_optimizer.replay.plant import LeadTime
from inferno_optimizer.replay.policies import BOUND
from inferno_optimizer.replay.replay import Scenario

NAMES = ("fleet", "trace", "setting", "policy")
KEY = "key"

Result = Mapping[str, Any]
"""What a replay came to, as JSON: the columns of `Row`, `hours` and `cardHours`."""


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
        return share_of(self.bound["cost"], self.result["cost"])

    def document(self) -> dict[str, Any]:
        """All of it as JSON; costs in cents."""
        own = {"regret": self.regret, "shareOfOptimum": self.share_of_optimum}
        return {**self.run.names, **self.result, **own}


def runs_of(study: Study, folder: Path, unknown: OnUnknown, warn: Warn) -> list[StudyRun]:
    """The replays of a study, in its order; each load is also replayed with the bound.

    Parameters
    ----------
    study
        What is replayed.
    folder
        Where its paths begin.
    unknown, warn
        Called with unknown fields, and with what was assumed.
    """
    policies = list(dict.fromkeys((BOUND.name, *study.policies)))
    for policy in policies:
        find_policy(policy)  # an unknown one is refused before the first replay
    return [
        StudyRun(fleet.name, trace.name, setting.name, policy, _digest(inputs, policy), scenario)
        for fleet, trace in product(study.fleets, study.traces)
        for setting, inputs, scenario in _scenarios(study, fleet, trace, folder, unknown, warn)
        for policy in policies
    ]


def _scenarios(
    study: Study,
    fleet: StudiedFleet,
    trace: StudiedTrace,
    folder: Path,
    unknown: OnUnknown,
    warn: Warn,
) -> Iterator[tuple[StudySetting, str, Scenario]]:
    """Yield the settings, a digest of what results depend on, and what is replayed."""
    file = str(folder / trace.file)
    documents = read_documents(str(folder / path) for path in fleet.paths)
    load = ReplayedLoad(read_trace(file), file)
    system, measures = system_of(documents, unknown, warn, load.means), measures_of(documents)
    inputs = _digest(
        [document.content for document in documents],
        hashlib.sha256(read_bytes(file)).hexdigest(),
        trace.model_dump(exclude={"name", "file"}),
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
            truth=system_of(true, unknown).profiles if true else (),
            truth_file=truth_file,
            measures=measures,
            poisson=setting.poisson,
        )
        performing = [document.content for document in true]
        made = _digest(inputs, setting.model_dump(exclude={"name", "truth"}), performing)
        yield setting, made, scenario_of(system, load, options, warn)


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def finished(runs: Sequence[StudyRun], executor: Executor) -> Iterator[tuple[StudyRun, Result]]:
    """Yield the result of each run, as soon as there is one."""
    by_key = {each.key: each for each in runs}
    calls = {key: (each.scenario, each.policy) for key, each in by_key.items()}
    for key, result in completed(executor, result_of, calls):
        yield by_key[key], result


def result_of(scenario: Scenario, policy: str) -> Result:
    """Replay, and return the sums over all servers; the bound is another run of the study."""
    account = run(scenario, policy)
    row = Row.of(Replayed(policy, account, account), "", slice(None)).document()
    return {**row, "hours": account.hours, "cardHours": account.card_hours}


def known_results(file: Path) -> dict[str, Result]:
    """The results of earlier runs by their keys; none without the file.

    A last line that was cut short, as by a crash, is left out.

    Raises
    ------
    InputError
        The file cannot be read, or is not one of results.
    """
    if not file.exists():
        return {}
    lines = read_bytes(str(file)).splitlines(keepends=True)
    whole = [line for line in lines if line.endswith(b"\n")]
    return dict(_parsed(line, f"{file}:{number}") for number, line in enumerate(whole, start=1))


def _parsed(line: bytes, place: str) -> tuple[str, Result]:
    try:
        result = json.loads(line)
        return result.pop(KEY), {name: result[name] for name in result if name not in NAMES[:-1]}
    except (ValueError, KeyError, AttributeError) as error:
        raise InputError(f"{place}: is not a result of a study; name another file") from error


def adding_to(file: Path) -> Callable[[StudyRun, Result], None]:
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


def studied(study: Study, runs: Sequence[StudyRun], results: Mapping[str, Result]) -> list[Studied]:
    """What all runs came to, in the order of the study, without a bound that nobody asked for."""
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
