"""Replays of a trace with several policies, and their results as rows, JSON and CSV."""

import csv
import io
import signal
import sys
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from multiprocessing import active_children, get_context
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Annotated, TypeVar

import numpy as np
from pydantic import Field
from pydantic.alias_generators import to_camel

from inferno_operator.cli import options
from inferno_operator.cli.offline.documents import Document, parse_documents
from inferno_operator.cli.offline.traces import find_client_line
from inferno_operator.cli.options import CENTS, Money
from inferno_operator.cli.tables.table import Part as Printed
from inferno_operator.cli.tables.table import TextTable
from inferno_operator.resources import Load, Measure
from inferno_operator.resources.parsing import ManifestError, read_part
from inferno_operator.resources.schema import Number, Part
from inferno_operator.runtime.files import find_sample, read_bytes
from inferno_optimizer.caveats import MOST_USE
from inferno_optimizer.errors import InfernoError, InputError
from inferno_optimizer.replay.account import Account, Incident, divide_sums, find_worst_incidents
from inferno_optimizer.replay.fleet import (
    ReplayFleet,
    SizedFleet,
    build_fleet,
    perturb_profiles,
    set_parameters,
    slow_down,
)
from inferno_optimizer.replay.plant import LeadTime
from inferno_optimizer.replay.policies import BOUND, POLICIES, FloorOfTrace, find_best_homes
from inferno_optimizer.replay.policy import NamedPolicy, OwnWindows, Policy
from inferno_optimizer.replay.replay import Scenario, replay
from inferno_optimizer.replay.trace import Trace, assign_clients
from inferno_optimizer.suggestions import alternatives
from inferno_optimizer.system import PerformanceProfile, System
from inferno_optimizer.units import SECONDS_PER_HOUR

ALIKE = 0.8  # least likeness of the names of a client and a server that is a typing error
BEST = "@best"  # end of the name of a policy that runs each server on its best single accelerator

# Policies of other autoscalers: the file of `samples/policies`, and the name in it.
SAMPLES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "keda-slo": ("llm_d", "KedaSlo"),
        "keda-queue": ("llm_d", "KedaQueue"),
        "keda-queue-guard": ("llm_d", "KedaQueueGuard"),
        "keda-saturation": ("llm_d", "KedaSaturation"),
        "keda-token": ("llm_d", "KedaToken"),
        "dynamo-sla": ("dynamo", "DynamoSla"),
        "melange": ("melange", "Melange"),
    }
)

TOLD_STEPS = 1000  # steps of a replay between two messages about its progress

Warn = Callable[[Iterable[str]], None]
Form = TypeVar("Form", bound=Part)
Name = TypeVar("Name", bound=Hashable)
Result = TypeVar("Result")


class ReplaySettings(Part):
    """How a replay is made, and how far the Models are from the truth; times in seconds.

    Replicas are slower than the Models say by the factor `slower`, and each parameter is wrong by
    the share `error`; where the file `truth` has a Model, they perform as that says. With
    `poisson`, policies see counts of random arrivals.
    """

    step_seconds: Annotated[Number, Field(ge=options.MIN_STEP_S, le=options.MAX_STEP_S)] = 60.0
    lead_time_seconds: Annotated[Number, Field(ge=0, le=options.MAX_LEAD_TIME_S)] = 120.0
    lead_time_cov: Annotated[Number, Field(ge=0, le=options.MAX_LEAD_TIME_COV)] = 0
    slower: Annotated[Number, Field(ge=options.MIN_SLOWER)] = 1
    error: Annotated[Number, Field(ge=0, le=options.MAX_ERROR)] = 0
    poisson: bool = False
    seed: Annotated[int, Field(ge=0)] = 0
    truth: str = ""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a policy came to, beside the bound of hindsight."""

    policy: str
    account: Account
    bound: Account

    @property
    def regret(self) -> float:
        """Cost above that of the bound [cents]."""
        return self.account.total_cost - self.bound.total_cost

    @property
    def share_of_optimum(self) -> float:
        """Cost of the bound divided by the cost."""
        return divide(self.bound.total_cost, self.account.total_cost)


def divide(part: float, whole: float) -> float:
    """A quotient; 1 of nothing."""
    return part / whole if whole > 0 else 1.0


@dataclass(frozen=True, slots=True)
class ReplayedLoad:
    """A trace and its name in messages, a file or Prometheus; its first hours (0: all), scaled."""

    trace: Trace
    origin: str
    hours: float = 0.0
    scale: float = 1.0

    @property
    def means(self) -> dict[str, Load]:
        """The mean load of each client."""
        trace, loads = self.trace, {}
        for column, client in enumerate(trace.clients):
            rate = trace.rate[:, column]
            weights = rate if rate.any() else None
            given, generated = (
                round(float(np.average(lengths[:, column], weights=weights)))
                for lengths in (trace.input_tokens, trace.output_tokens)
            )
            loads[client] = Load(
                arrival_rate=60.0 * float(rate.mean()),
                avg_in_tokens=given,
                avg_out_tokens=max(generated, 1),
            )
        return loads


def build_scenario(
    system: System,
    load: ReplayedLoad,
    settings: ReplaySettings,
    warn: Warn,
    *,
    truth: Sequence[PerformanceProfile] = (),
    measures: Mapping[str, Measure] = MappingProxyType({}),
) -> Scenario:
    """What is to be replayed; tells which servers are left out and how clients are dealt.

    `truth` is how replicas really perform where it is known, and `measures` where each Server is
    measured, by spec.name, if it is.
    """
    fleet, refused = build_fleet(system)
    warn(f"server {d.server!r} is left out: {d.message}" for d in refused)
    trace, origin = load.trace, load.origin
    names = [server.name for server in fleet.servers]
    _refuse_unknown_clients(trace, names, [d.server for d in refused], origin)
    if not set(names) & set(trace.clients):
        clients = len(trace.clients)
        spread = f"its {clients} clients are" if clients > 1 else "its 1 client is"
        over = f"spread over {len(names)} Servers and scaled to their loads"
        warn([f"{origin}: no client matches a Server name; {spread} {over}"])
    whole = assign_clients(trace, fleet.servers).scale(load.scale)
    part = whole.between(0.0, load.hours * SECONDS_PER_HOUR) if load.hours else whole
    warn(_list_doubts(fleet, part, origin))
    try:
        if settings.truth and not truth:
            raise InputError("has no Model with performance data")  # noqa: TRY301 - told as others
        true = set_parameters(fleet.system, tuple(truth))
    except InputError as error:
        raise InputError(f"{settings.truth}: {error}") from error
    really = perturb_profiles(
        slow_down(true, settings.slower), settings.error, np.random.default_rng(settings.seed)
    )
    named = [measures[name].windows if name in measures else None for name in names]
    windows = (
        [own.short_seconds if own else np.nan for own in named],
        [own.long_seconds if own else np.nan for own in named],
    )
    return Scenario(
        fleet=build_fleet(really)[0],
        believed=fleet,
        trace=part.every(settings.step_seconds),
        lead=LeadTime(settings.lead_time_seconds, settings.lead_time_cov),
        seed=settings.seed,
        windows=OwnWindows(*(np.array(each, dtype=np.float64) for each in windows)),
        poisson=settings.poisson,
    )


def _list_doubts(fleet: ReplayFleet, trace: Trace, origin: str) -> Iterator[str]:
    """Yield the servers that cannot meet their targets where they run now.

    And whether all rates are far above what runs carries, as where they have another unit.
    """
    sized = SizedFleet(fleet).at(trace.lengths.mean(axis=0))
    carried = sized.max_rate[np.arange(len(fleet.servers)), fleet.home]
    for server, home, rate in zip(fleet.servers, fleet.home, carried, strict=True):
        if rate <= 0:
            yield (
                f"server {server.name!r}: its targets are out of reach on"
                f" {fleet.accelerators[home]}, where it runs now; policies that stay there carry"
                " its load and miss its targets"
            )
    carried *= [server.current.replicas for server in fleet.servers]
    rates = trace.rate.mean(axis=0)
    known = (carried > 0) & (rates > 0)
    if known.any() and (rates > MOST_USE * carried)[known].all():
        yield (
            f"{origin}: all rates are above {MOST_USE} times what runs now carries; rates are per"
            " second: if they are per minute, name their column rate_per_min"
        )


def _refuse_unknown_clients(
    trace: Trace, servers: Sequence[str], left_out: Sequence[str], origin: str
) -> None:
    """Refuse a client that is no server, where others are, or where its name is misspelt."""
    unknown = [c for c in trace.clients if c not in servers and c not in left_out]
    names = [name.lower() for name in servers]
    misspelt = [c for c in unknown if get_close_matches(c.lower(), names, 1, ALIKE)]
    if not misspelt and len(unknown) < len(trace.clients):
        misspelt = unknown
    for client in misspelt:
        near = alternatives(client, sorted(servers))
        place = find_client_line(origin, client)
        raise InputError(f"{place}: client {client!r} is no server of the fleet{near}")


def read_form(form: type[Form], file: Path) -> tuple[Form, Document]:
    """Read a file of one document; an InputError names the line and the field."""
    first, *others = parse_documents(read_bytes(str(file)), str(file))
    if others:
        raise InputError(f"{others[0].origin}: the file must have one document")
    try:
        return read_part(form, first.content), first
    except ManifestError as error:
        raise InputError(f"{first.place(error.steps)}: {error.path} {error.problem}") from error


def read_settings(file: Path | None, given: Mapping[str, object]) -> ReplaySettings:
    """Read the settings of a replay, of which some may be given; `truth` is beside the file."""
    settings = ReplaySettings() if file is None else read_form(ReplaySettings, file)[0]
    if file and settings.truth:
        settings = settings.model_copy(update={"truth": str(file.parent / settings.truth)})
    own = {name: value for name, value in given.items() if value is not None}
    return settings.model_copy(update=own)


def find_policy(name: str) -> NamedPolicy:
    """Return the policy of a name, or of `module:name` in the folder of the command.

    The name may end in `@best`.

    Raises InputError if there is none, or its module cannot be imported.
    """
    name = name.removesuffix(BEST)
    if name in POLICIES:
        return POLICIES[name]
    _, policy = _load_policy(name)
    return NamedPolicy(name, policy, percentiles=getattr(policy, "percentiles", True))


def find_policy_files(name: str) -> list[Path]:
    """Return the file of a policy that `find_policy` loads; none of one of the optimizer."""
    name = name.removesuffix(BEST)
    file = None if name in POLICIES else _load_policy(name)[0].__file__
    return [Path(file)] if file else []


def _load_policy(name: str) -> tuple[ModuleType, Policy]:
    """Load a policy of `samples/policies`, or `module:name` with the folder of the command."""
    if name in SAMPLES:
        file, attribute = SAMPLES[name]
        module = load_sample(file)
        return module, getattr(module, attribute)
    module_name, colon, attribute = name.partition(":")
    if not colon:
        near = alternatives(name, sorted({*POLICIES, *SAMPLES}))
        raise InputError(f"no policy is named {name!r}{near}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = import_module(module_name)
        return module, getattr(module, attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"policy {name!r}: {error}") from error
    finally:
        sys.path.pop(0)


@cache
def load_sample(name: str) -> ModuleType:
    """Load a file of `samples/policies`.

    Its name as a module is none that a policy of the user has, so that a changed copy can be
    replayed beside it.
    """
    file = find_sample(f"policies/{name}.py")
    spec = spec_from_file_location(f"inferno_operator.policies.{name}", file)
    if spec is None or spec.loader is None or not file.exists():
        raise InputError(f"{file}: No such file")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def replay_policies(
    scenario: Scenario, names: Sequence[str], tell: Callable[[str], None], jobs: int = 1
) -> list[Replayed]:
    """Replay with each policy, and with the bound of hindsight; so many at the same time."""
    wanted = list(dict.fromkeys((BOUND.name, *names)))
    for name in wanted:
        find_policy(name)  # an unknown one is refused before the first replay
    accounts: dict[str, Account] = {}
    if jobs == 1:
        accounts = {name: replay_policy(scenario, name, tell) for name in wanted}
    else:
        calls = {name: (scenario, name) for name in wanted}
        with processes(jobs) as executor:
            for name, account in yield_completed(executor, replay_policy, calls):
                accounts[name] = account
                tell(f"replayed {name}")
    bound = accounts[BOUND.name]
    return [Replayed(name, accounts[name], bound) for name in names]


def replay_policy(
    scenario: Scenario, name: str, tell: Callable[[str], None] = lambda _: None
) -> Account:
    """Replay with the policy of a name, and tell how far it is.

    Raises InputError if a policy of the user fails.
    """
    steps = scenario.trace.steps
    policy = find_policy(name)
    home = (
        find_best_homes(scenario.believed, scenario.trace)
        if name.endswith(BEST)
        else scenario.fleet.home
    )
    tell(f"replaying {name}")

    def progress(step: int) -> None:
        if step and step % TOLD_STEPS == 0:
            tell(f"replaying {name}: {step / steps:.0%}")

    try:
        return replay(scenario, policy, home, tell=progress)
    except Exception as error:  # the code of a policy of the user may raise anything
        if policy.name in {*POLICIES, *SAMPLES} or isinstance(error, InfernoError):
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = traceback.format_exception_only(error)[-1].strip()
        where = f"{Path(place.filename).name}:{place.lineno}"
        raise InputError(f"policy {name!r} failed: {what} ({where})") from error


WORST_TOLD = 10  # most times at which targets were missed that are shown for each policy


def build_document(scenario: Scenario, replays: Sequence[Replayed]) -> Mapping[str, object]:
    """The result as JSON; costs in cents, with all servers and each of them."""
    trace, accelerators = scenario.trace, scenario.fleet.accelerators
    policies = [
        {
            **Row.of(replayed, "", slice(None)).document(),
            "regret": replayed.regret,
            "shareOfOptimum": replayed.share_of_optimum,
            "cardHours": replayed.account.card_hours,
            "classes": [row.of_class() for row in list_class_rows(replayed)],
            "servers": [row.document() for row in list_server_rows(replayed)],
            "worst": [
                build_incident_document(incident, trace.step_s)
                for incident in find_worst_incidents(
                    replayed.account, trace, accelerators, WORST_TOLD
                )
            ],
        }
        for replayed in replays
    ]
    hours = trace.seconds / SECONDS_PER_HOUR
    return {"hours": hours, "stepSeconds": trace.step_s, "policies": policies}


AS_THEY_ARE = (
    *("outside", "within", "rate", "able", "waiting"),
    *("replicas", "ready", "refused", "before"),
)


def build_incident_document(incident: Incident, step_s: float) -> Mapping[str, object]:
    """A time at which targets were missed as JSON; times in seconds from the start of the trace."""
    return {
        "server": incident.server,
        "class": incident.service_class,
        "accelerator": incident.accelerator,
        "startSeconds": incident.first * step_s,
        "endSeconds": (incident.last + 1) * step_s,
        "worstSeconds": incident.worst * step_s,
        **{name: getattr(incident, name) for name in AS_THEY_ARE},
        "changedSeconds": incident.changed * step_s,
        "cause": incident.cause.value,
    }


@dataclass(frozen=True, slots=True)
class Row:
    """What a policy came to with one server, or with all of them."""

    policy: str
    server: str
    cost: float
    requests: float
    within: float
    delay_within: float
    itl_within: float
    missed_minutes: float
    replicas: float
    started: int
    moves: int

    @classmethod
    def of(
        cls,
        replayed: Replayed,
        server: str,
        which: slice | np.ndarray[tuple[int], np.dtype[np.bool_]],
    ) -> "Row":
        """The sums over some servers."""
        account = replayed.account
        requests = account.requests[which]
        return cls(
            policy=replayed.policy,
            server=server,
            cost=float(account.cost[which].sum()),
            requests=float(requests.sum()),
            within=divide_sums(account.within[which], requests),
            delay_within=divide_sums(account.delay_within[which], requests),
            itl_within=divide_sums(account.itl_within[which], requests),
            missed_minutes=float(account.missed_minutes[which].sum()),
            replicas=float(account.replicas[which].sum()),
            started=int(account.started[which].sum()),
            moves=int(account.moves[which].sum()),
        )

    def document(self) -> dict[str, object]:
        """The row as JSON."""
        names = ("policy", *(["server"] if self.server else []), *COLUMNS)
        return {to_camel(name): getattr(self, name) for name in names}

    def of_class(self) -> dict[str, object]:
        """The row of a class as JSON."""
        return {"class": self.server} | {to_camel(n): getattr(self, n) for n in COLUMNS}


COLUMNS = tuple(column.name for column in fields(Row) if column.name not in ("policy", "server"))


def list_server_rows(replayed: Replayed) -> list[Row]:
    """A row for each server."""
    names = enumerate(replayed.account.servers)
    return [Row.of(replayed, name, slice(place, place + 1)) for place, name in names]


def list_class_rows(replayed: Replayed) -> list[Row]:
    """A row for the servers of each class, by its name."""
    classes = np.array(replayed.account.classes)
    return [
        Row.of(replayed, name, classes == name) for name in sorted(set(replayed.account.classes))
    ]


def write_csv(replays: Sequence[Replayed]) -> str:
    """A line for each policy and server, and one for all servers of a policy."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ("policy", "server", *COLUMNS)
    writer.writerow(to_camel(name) for name in names)
    for replayed in replays:
        for row in (Row.of(replayed, "", slice(None)), *list_server_rows(replayed)):
            writer.writerow(getattr(row, name) for name in names)
    return text.getvalue().rstrip("\n")


def build_floor_document(floor: FloorOfTrace) -> Mapping[str, object]:
    """The floor as JSON; costs in cents."""
    amounts = zip(floor.cost, floor.replicas, floor.most_replicas, strict=True)
    servers = zip(floor.servers, amounts, floor.accelerators, strict=True)
    cards = zip(floor.types, floor.cards, floor.most_cards, floor.capacity, strict=True)
    return {
        "hours": floor.hours,
        "cost": float(floor.cost.sum()),
        "servers": [
            {
                "server": name,
                "cost": float(cost),
                "replicas": float(replicas),
                "mostReplicas": int(most),
                "accelerators": dict(accelerators),
            }
            for name, (cost, replicas, most), accelerators in servers
        ],
        "cards": {
            name: {"mean": float(mean), "most": int(most), "available": int(available)}
            for name, mean, most, available in cards
        },
    }


HOMES_SHOWN = 2  # accelerators of a server that the floor names


def describe_replays(replays: Sequence[Replayed], money: Money = CENTS) -> Iterator[Printed]:
    """Yield a row for each policy, and what cards they used."""
    accounts = [replayed.account for replayed in replays]
    hours = accounts[0].card_hours
    types = [kind for kind in hours if any(each.card_hours[kind] > 0 for each in accounts)]
    rows, cards, shares = [], [], []
    for replayed, account in zip(replays, accounts, strict=True):
        row = Row.of(replayed, "", slice(None))
        rows.append(
            (
                replayed.policy,
                money.amount(row.cost / account.hours),
                money.change(replayed.regret / account.hours),
                f"{replayed.share_of_optimum:.1%}",
                *(f"{share:.2%}" for share in (row.within, row.delay_within, row.itl_within)),
                f"{row.missed_minutes:.0f}",
                f"{row.replicas:.2f}",
                *map(str, (row.started, row.moves)),
            )
        )
        means = (f"{account.card_hours[kind] / account.hours:.2f}" for kind in types)
        cards.append((replayed.policy, *means))
        shares.append((replayed.policy, *(f"{of.within:.2%}" for of in list_class_rows(replayed))))
    yield TextTable(
        (
            *("POLICY", ">COST/H", ">REGRET/H", ">OF OPTIMUM", ">WITHIN", ">DELAY", ">ITL"),
            *(">MISSED MIN", ">REPLICAS", ">STARTED", ">MOVES"),
        ),
        rows,
        ("STARTED", "MISSED MIN", "DELAY", "ITL", "MOVES"),
    )
    yield from money.named()
    yield ""
    yield TextTable(("CARDS", *(f">{kind}" for kind in types)), cards)
    classes = sorted(set(accounts[0].classes))
    if len(classes) > 1:
        yield ""
        yield TextTable(("WITHIN", *(f">{name}" for name in classes)), shares)


def describe_floor(floor: FloorOfTrace, money: Money = CENTS) -> Iterator[Printed]:
    """Yield the floor of each server, the total, and the cards that it takes."""
    rows = []
    for number, name in enumerate(floor.servers):
        mostly = floor.accelerators[number][:HOMES_SHOWN]
        rows.append(
            (
                name,
                money.amount(floor.cost[number] / floor.hours),
                f"{floor.replicas[number]:.2f}",
                f"{floor.most_replicas[number]:.0f}",
                ", ".join(f"{accelerator} {share:.0%}" for accelerator, share in mostly),
            )
        )
    yield TextTable(("SERVER", ">COST/H", ">REPLICAS", ">MOST", "MOSTLY ON"), rows)
    yield ""
    cost = money.amount(floor.cost.sum() / floor.hours)
    yield f"floor: {cost} {money.rate} over {floor.hours:g} h"
    yield ""
    cards = zip(floor.types, floor.cards, floor.most_cards, floor.capacity, strict=True)
    yield TextTable(
        ("CARDS", ">MEAN", ">MOST", ">AVAILABLE"),
        [
            (kind, f"{mean:.2f}", f"{most:.0f}", f"{available:.0f}")
            for kind, mean, most, available in cards
            if most
        ],
    )


def yield_completed(
    executor: Executor, call: Callable[..., Result], calls: Mapping[Name, tuple[object, ...]]
) -> Iterator[tuple[Name, Result]]:
    """Yield the result of each call with its name, as soon as there is one."""
    with _ignore_interrupts():  # by the processes that start here, too
        waiting = {executor.submit(call, *given): name for name, given in calls.items()}
    for future in as_completed(waiting):
        yield waiting[future], future.result()


@contextmanager
def processes(count: int) -> Iterator[Executor]:
    """Processes of this machine; where one of them, or this one, fails, all end at once."""
    others = set(active_children())
    with ProcessPoolExecutor(count, get_context("spawn")) as executor:
        try:
            yield executor
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            for process in set(active_children()) - others:
                process.terminate()
            raise


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C, as processes do for ever that are started meanwhile."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
