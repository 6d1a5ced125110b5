"""Studies: many replays on this machine or a Dask cluster, whose results are kept in a file."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

import inferno_optimizer
from inferno_operator.cli import options, replay
from inferno_operator.cli.offline.manifests import read_documents
from inferno_operator.cli.offline.system import OnUnknown, list_measures, parse_system
from inferno_operator.cli.offline.traces import read_trace
from inferno_operator.cli.tables.table import Part as Printed
from inferno_operator.cli.tables.table import TextTable
from inferno_operator.resources.schema import Items, NonEmptyText, Number, Part
from inferno_operator.runtime.files import append_bytes, read_bytes, write_bytes
from inferno_optimizer.errors import InputError, UnavailableError
from inferno_optimizer.replay.policies import BOUND
from inferno_optimizer.replay.replay import Scenario

NAMES, KEY = ("fleet", "trace", "setting", "policy"), "key"
Result = Mapping[str, Any]  # the columns of `Row`, `hours` and `cardHours`, as JSON


class _Fleet(Part):
    name: NonEmptyText
    paths: Annotated[Items[NonEmptyText], Field(min_length=1)]


class _Trace(Part):
    name: NonEmptyText
    file: NonEmptyText
    hours: Annotated[Number, Field(ge=0)] = 0
    scale: Annotated[Number, Field(ge=0, le=options.MAX_SCALE)] = 1


class _Setting(replay.ReplaySettings):
    name: NonEmptyText


class Study(Part):
    """Each policy is replayed with each fleet, trace and setting; paths are from its folder."""

    fleets: Annotated[Items[_Fleet], Field(min_length=1)]
    traces: Annotated[Items[_Trace], Field(min_length=1)]
    settings: Annotated[Items[_Setting], Field(min_length=1)] = (
        _Setting(name="as the Models say"),
    )
    policies: Annotated[Items[NonEmptyText], Field(min_length=1)]


def read_study(file: Path) -> Study:
    """Read a study; an InputError names the wrong field, or the name that is there twice."""
    study, document = replay.read_form(Study, file)
    for field in Study.model_fields:
        names = [getattr(each, "name", each) for each in getattr(study, field)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InputError(f"{document.place([field])}: {field}: {twice[0]!r} is there twice")
    return study


class StudyRun(NamedTuple):
    """A replay of a study, and what its parts are called there.

    `key` is a digest of all that the result depends on: objects, load, setting, policy, version.
    A policy of the user is known by its name and its file only.
    """

    fleet: str
    trace: str
    setting: str
    policy: str
    key: str
    scenario: Scenario

    def __str__(self) -> str:
        return f"{self.fleet}, {self.trace}, {self.setting}, {self.policy}"


def list_runs(
    study: Study, folder: Path, unknown: OnUnknown, warn: replay.Warn
) -> Iterator[StudyRun]:
    """Yield the replays of a study, in its order; each load is also replayed with the bound.

    Paths begin in `folder`; `unknown` and `warn` are called with unknown fields, and with what was
    assumed.
    """
    policies = list(dict.fromkeys((BOUND.name, *study.policies)))
    for policy in policies:
        replay.find_policy(policy)  # an unknown one is refused before the first replay
    program = _hash_files(sorted(Path(inferno_optimizer.__file__).parent.rglob("*.py")))
    code = {policy: _hash_files(replay.find_policy_files(policy)) for policy in policies}
    for fleet, trace in product(study.fleets, study.traces):
        file = str(folder / trace.file)
        documents = read_documents(str(folder / path) for path in fleet.paths)
        load = replay.ReplayedLoad(read_trace(file), file, trace.hours, trace.scale)
        system = parse_system(documents, unknown, warn, load.means)
        inputs = _digest(
            [document.content for document in documents],
            hashlib.sha256(read_bytes(file)).hexdigest(),
            trace.model_dump(exclude={"name", "file"}),
            program,
            version("inferno-operator"),
        )
        for setting in study.settings:
            truth = str(folder / setting.truth) if setting.truth else ""
            true = read_documents([truth] if truth else [])
            performing = [document.content for document in true]
            made = _digest(inputs, setting.model_dump(exclude={"name", "truth"}), performing)
            scenario = replay.build_scenario(
                system,
                load,
                setting.model_copy(update={"truth": truth}),
                warn,
                truth=parse_system(true, unknown).profiles if true else (),
                measures=list_measures(documents),
            )
            for policy in policies:
                names = (fleet.name, trace.name, setting.name, policy)
                yield StudyRun(*names, _digest(made, policy, code[policy]), scenario)


def _hash_files(files: Iterable[Path]) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def compute_result(scenario: Scenario, policy: str) -> Result:
    """Replay, and return the sums over all servers; the bound is another run of the study."""
    account = replay.replay_policy(scenario, policy)
    row = replay.Row.of(replay.Replayed(policy, account, account), "", slice(None)).document()
    return {**row, "hours": account.hours, "cardHours": account.card_hours}


@contextmanager
def dask_cluster(address: str) -> Iterator[Executor]:
    """The workers of a Dask cluster, by the address of its scheduler.

    Raises InputError if Dask is not installed, or the address is none; UnavailableError if the
    scheduler does not answer.
    """
    try:
        from distributed import Client  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise InputError("--scheduler needs Dask: pip install 'inferno-operator[study]'") from error
    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except ValueError as error:
        raise InputError(f"--scheduler {address}: {error}") from error
    except OSError as error:
        raise UnavailableError(f"--scheduler {address}: {error}") from error
    with client, client.get_executor() as executor:
        yield executor


def read_results(file: Path) -> dict[str, Result]:
    """Return the results of earlier runs by their keys; none without the file.

    A last line that was cut short, as by a crash, is left out. An InputError says that the file
    cannot be read, or is not one of results.
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

    An InputError says that the file cannot be written, now or later.
    """
    content = read_bytes(file) if file.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:  # a line that was cut short
        write_bytes(file, whole)
    append_bytes(file, b"")

    def add(run: StudyRun, result: Result) -> None:
        line = json.dumps({KEY: run.key, **dict(zip(NAMES, run, strict=False)), **result})
        append_bytes(file, f"{line}\n".encode())

    return add


def list_rows(
    study: Study, runs: Sequence[StudyRun], results: Mapping[str, Result]
) -> list[dict[str, Any]]:
    """Return what all runs came to as JSON, in the order of the study, beside the bound.

    A bound that nobody asked for is left out; costs are in cents.
    """
    bounds = {run[:3]: results[run.key]["cost"] for run in runs if run.policy == BOUND.name}
    rows = []
    for run in (each for each in runs if each.policy in study.policies):
        result, bound = results[run.key], bounds[run[:3]]
        share = replay.divide(bound, result["cost"])
        own = {"regret": float(result["cost"] - bound), "shareOfOptimum": share}
        rows.append({**dict(zip(NAMES, run, strict=False)), **result, **own})
    return rows


def describe_study(rows: Sequence[Mapping[str, Any]], money: options.Money) -> Iterator[Printed]:
    """Yield a row for each run."""
    headings = (
        *("FLEET", "TRACE", "SETTING", "POLICY", ">COST/H", ">REGRET/H", ">OF OPTIMUM"),
        *(">WITHIN", ">REPLICAS", ">CARDS", ">MOVES"),
    )
    cells = [
        (
            *(row[name] for name in NAMES),
            money.amount(row["cost"] / row["hours"]),
            money.change(row["regret"] / row["hours"]),
            f"{row['shareOfOptimum']:.1%}",
            f"{row['within']:.2%}",
            f"{row['replicas']:.2f}",
            f"{sum(row['cardHours'].values()) / row['hours']:.2f}",
            str(row["moves"]),
        )
        for row in rows
    ]
    yield TextTable(headings, cells, ("MOVES", "CARDS", "OF OPTIMUM", "REPLICAS", "REGRET/H"))
    yield from money.named()
