"""Caveats: warnings about decisions whose predicted numbers may be wrong.

A problem (see `validation`) keeps an object out of the plan. A warning does not change the plan;
it says why the predicted numbers of a server on an accelerator may not hold, or that a number of an
object is absurd for its unit.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import permutations

from inferno_optimizer.sizing.cases import Case, Catalogue
from inferno_optimizer.sizing.table import build_candidates
from inferno_optimizer.solution import Decision
from inferno_optimizer.suggestions import cut
from inferno_optimizer.system import (
    LOWEST_PRIORITY,
    Allocation,
    DecodeParameters,
    Generation,
    Load,
    PerformanceParameters,
    PerformanceProfile,
    PrefillDecodeParameters,
    Role,
    RoleProfile,
    Server,
    ServiceClass,
    StepParameters,
    System,
    Target,
    TokenBudgetParameters,
)
from inferno_optimizer.units import HOURS_PER_MONTH, MS_PER_MINUTE, MS_PER_SECOND
from inferno_optimizer.validation import Problem

IMPLAUSIBLE = "Implausible"
"""Reason of problems that say that a number is hardly meant in its unit."""

CLASSES_COMPARED = 20
"""Most service classes that are compared for the order of their priorities, each with each."""

LEAST_SHARE_OF_STEP = 0.1
"""Least share of the shortest possible latency that a target may be and still seem meant."""

LONGEST_STEP, LONGEST_WAIT = 10_000.0, 300_000.0
"""The longest plausible targets [ms]: between tokens, and until the first one."""

LEAST_TOKENS_PER_SECOND = 0.5
"""Least plausible throughput of a server."""

MOST_COV = 10.0
"""Largest plausible coefficient of variation; recorded days have up to 3."""

LEAST_STEP = 0.1
"""Shortest plausible step [ms]; no card reads the weights of a language model in less."""

SLOWEST_STEP = 3000.0
"""Longest plausible step of a lone request [ms]."""

LEAST_CARD_COST, MOST_CARD_COST = 10.0, 10_000.0
"""Lowest and highest plausible cost of a card [cents/hour]."""

CENTS_PER_DOLLAR = 100

LEAST_USE = 0.02
"""Least share of what the replicas of a server carry that its load plausibly is."""

HARDLY_ANY_LOAD = (
    f"the load is below {LEAST_USE * 100:g} % of what its replicas carry; rates are in"
    " requests/min: if it is per second, write 60 times as much"
)

MOST_USE = 10
"""Largest multiple of what the replicas of a server carry that its load plausibly is."""

TOO_MUCH_LOAD = (
    f"the load is above {MOST_USE} times what its replicas carry; rates are in requests/min: if it"
    " is per hour, write a 60th"
)
"""The same words for each server, so that lists of warnings have them once."""


def warned(catalogue: Catalogue, decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """The decisions, each with the warnings about every accelerator of its allocation.

    Allocations get the origin of the performance data of these.

    Raises
    ------
    KeyError
        A decision is for a server that the system does not have.
    """
    servers = {server.name: server for server in catalogue.system.servers}
    return tuple(_warned(catalogue, servers[d.server], d) for d in decisions)


def _warned(catalogue: Catalogue, server: Server, decision: Decision) -> Decision:
    if decision.allocation is None:
        return decision
    target, warnings, parts = catalogue.target(server), list[str](), list[Allocation]()
    for part in decision.allocation.parts:
        profile = catalogue.profile(server.model, part.accelerator, part.role)
        if profile:
            warnings += warnings_of(server, profile, part.max_batch_size, target)
        origin = profile.origin if profile else ""
        error = profile.error_percent if profile else 0.0
        parts.append(_with_origin(part, origin, error))
    worst = max(parts, key=lambda part: (part.error_percent, bool(part.origin)))
    allocation = _with_origin(decision.allocation, worst.origin, worst.error_percent)
    if allocation.mix:
        allocation = replace(allocation, mix=tuple(parts))
    if allocation is decision.allocation and tuple(warnings) == decision.warnings:
        return decision
    return replace(decision, warnings=tuple(warnings), allocation=allocation)


def _with_origin(allocation: Allocation, origin: str, error_percent: float) -> Allocation:
    """An allocation whose latencies are predicted from data of an origin."""
    if (allocation.origin, allocation.error_percent) == (origin, error_percent):
        return allocation
    return replace(allocation, origin=origin, error_percent=error_percent)


def warnings_of(
    server: Server, profile: PerformanceProfile | RoleProfile, batch: int, target: Target
) -> Iterator[str]:
    """Warnings about a server on the accelerator of a profile; none for an idle server.

    Parameters
    ----------
    server, profile
        The server, and a performance profile of its model.
    batch
        The largest batch of a replica [requests].
    target
        What the server's class promises for its model.
    """
    if not server.load.idle:
        if not _computes_only_prompts(profile):
            yield from _beyond_memory(server.load, profile, batch)
        yield from _without_prefill(server.load, profile)
        yield from _beyond_lengths(server.load, profile)
        yield from _without_spread(target, profile)


def _computes_only_prompts(profile: PerformanceProfile | RoleProfile) -> bool:
    return isinstance(profile, RoleProfile) and profile.role is Role.PREFILL


def _beyond_memory(
    load: Load, profile: PerformanceProfile | RoleProfile, batch: int
) -> Iterator[str]:
    tokens, room = batch * load.tokens_kept, profile.max_batch_size * profile.at_tokens
    fields = "maxBatchSize and atTokens"
    if profile.max_tokens:
        room, fields = profile.max_tokens, "maxTokens"
    if tokens > room > 0:
        yield (
            f"a batch of {batch} on {profile.accelerator} keeps {tokens} tokens in memory"
            f" ({load.tokens_kept} of each request), more than the {room} that follow from"
            f" {fields} of model {profile.model!r}; give maxTokens of the model, or a smaller"
            f" maxBatchSize of the server"
        )


def _without_prefill(load: Load, profile: PerformanceProfile | RoleProfile) -> Iterator[str]:
    if has_prefill(profile) and not load.input_tokens:
        yield (
            f"avgInTokens is missing: latencies on {profile.accelerator} ignore prefill time, so"
            f" TTFT is too low; give avgInTokens and avgOutTokens"
        )


def _beyond_lengths(load: Load, profile: PerformanceProfile | RoleProfile) -> Iterator[str]:
    """Steps are measured with requests of some lengths, and hold for lengths that are like them."""
    steps = profile.parameters
    if not isinstance(steps, StepParameters):
        return
    inputs, outputs = load.input_tokens, load.tokens_of(Generation.STEPS)
    known_in, known_out = (
        (steps.min_input_tokens, steps.max_input_tokens),
        (steps.min_output_tokens, steps.max_output_tokens),
    )
    if _within(inputs, known_in) and _within(outputs, known_out):
        return
    yield (
        f"the load ({inputs} in, {outputs} out) is outside the range in which stepParms of model"
        f" {profile.model!r} on {profile.accelerator} were measured ({_span(known_in)} in,"
        f" {_span(known_out)} out): calibrate with such requests"
    )


def _without_spread(target: Target, profile: PerformanceProfile | RoleProfile) -> Iterator[str]:
    steps = profile.parameters.generation is Generation.STEPS
    if target.itl_percentile and target.itl_ms and not steps:
        yield (
            f"slo-itl-percentile counts as the mean on {profile.accelerator}: only stepParms tell"
            f" how the latency varies; calibrate model {profile.model!r}"
        )


def _within(tokens: int, bounds: tuple[int, int]) -> bool:
    """Whether a length is within bounds, of which 0 is none; so is an unknown length, 0."""
    least, most = bounds
    return not tokens or least <= tokens <= (most or tokens)


def _span(bounds: tuple[int, int]) -> str:
    least, most = bounds
    return f"{least} to {most}" if most else f"at least {least}"


def cost_problem(accelerator: str, cost: float, multiplicity: int) -> Problem | None:
    """The problem of a cost that is absurd in cents/hour; None if it may be meant."""
    card = cost / max(multiplicity, 1)
    if 0 < card < LEAST_CARD_COST:
        message = (
            f"{card:g} cents/hour for a card is less than any card costs; if it is in dollars,"
            f" write {cost * CENTS_PER_DOLLAR:g}"
        )
    elif card > MOST_CARD_COST:
        message = (
            f"{card:g} cents/hour for a card is more than any card costs; if it is per month, write"
            f" {cost / HOURS_PER_MONTH:.4g}"
        )
    else:
        return None
    return Problem("accelerator", accelerator, "cost", message, IMPLAUSIBLE)


def implausible_numbers(system: System) -> Iterator[Problem]:
    """Numbers that are valid but absurd for their unit: step times, targets and variations.

    One problem for each object and unit that it may be in; it names the first such number.
    """
    too_fast = [p for p in system.profiles if 0 < _step_ms(p.parameters) < LEAST_STEP]
    too_slow = [p for p in system.profiles if _step_ms(p.parameters) > SLOWEST_STEP]
    for profiles, than, unit, factor, much in (
        (too_fast, "faster", "seconds", MS_PER_SECOND, "1000 times as much"),
        (too_slow, "slower", "microseconds", 1 / MS_PER_SECOND, "a 1000th"),
    ):
        for model in dict.fromkeys(profile.model for profile in profiles):
            own = [profile for profile in profiles if profile.model == model]
            steps = own[0].parameters
            message = (
                f"a step of {_rounded(_step_ms(steps))} ms is {than} than any card"
                f"{_and_more(*own)}; times are in ms: if they are in {unit}, write {much}, such as"
                f" alpha {_rounded(steps.alpha * factor)}"
            )
            part = own[0].accelerator
            yield Problem("model", model, "alpha", message, IMPLAUSIBLE, part)
    yield from _mixed_units(p for p in system.profiles if p not in too_fast + too_slow)
    for service_class in system.classes:
        units = defaultdict[str, list[Problem]](list)
        for unit, problem in _implausible_targets(service_class, system):
            units[unit].append(problem)
        for first, *more in units.values():
            yield replace(first, message=first.message + _and_more(first, *more))
    for server in system.servers:
        cov = max(server.load.arrival_cov, server.load.service_cov)
        if cov > MOST_COV:
            is_of_arrivals = cov == server.load.arrival_cov
            field = f"currentAlloc.load.{'arrivalCOV' if is_of_arrivals else 'serviceCOV'}"
            message = f"{cov:g} is the {cov:g}-fold of the mean; if it is in %, write {cov / 100:g}"
            yield Problem("server", server.name, field, message, IMPLAUSIBLE)


def _mixed_units(profiles: Iterable[PerformanceProfile]) -> Iterator[Problem]:
    """The first profile of each model whose alpha is below its beta, as if one has another unit.

    A lone request reads all weights; one more adds little to that.
    """
    named: set[str] = set()
    for profile in profiles:
        match profile.parameters:
            case DecodeParameters(alpha, beta) | PrefillDecodeParameters(alpha, beta):
                if not 0 < alpha < beta or profile.model in named:
                    continue
                named.add(profile.model)
                about = "as if a request alone took less than one more adds; times are in ms"
                if alpha * MS_PER_SECOND > SLOWEST_STEP:
                    field, unit, right = "beta", "microseconds", beta / MS_PER_SECOND
                    seen = f"{beta:g} ms is above alpha, {alpha:g} ms"
                else:
                    field, unit, right = "alpha", "seconds", alpha * MS_PER_SECOND
                    seen = f"{alpha:g} ms is below beta, {beta:g} ms"
                message = f"{seen}, {about}: if it is in {unit}, write {right:g}"
                part = profile.accelerator
                yield Problem("model", profile.model, field, message, IMPLAUSIBLE, part)


def _and_more(*found: object) -> str:
    more = len(found) - 1
    return f" (so in {more} more place{'s' * (more > 1)})" if more else ""


def _rounded(number: float) -> str:
    """A number with three digits, without an exponent where people read none."""
    return f"{float(f'{number:.3g}'):g}"


def _implausible_targets(
    service_class: ServiceClass, system: System
) -> Iterator[tuple[str, Problem]]:
    """The targets that are far below what is possible, or far above; each with its likely unit."""
    kind, name = "service class", service_class.name
    loads: dict[str, list[int]] = {}
    for server in system.servers:
        if server.service_class == service_class.name:
            loads.setdefault(server.model, []).append(server.load.input_tokens)
    for model, target in service_class.targets.items():
        for field, unit, message in _lax_targets(target):
            yield unit, Problem(kind, name, field, message, IMPLAUSIBLE, model)
        own = [
            p
            for p in system.profiles
            if p.model == model and 0 < _step_ms(p.parameters) <= SLOWEST_STEP
        ]
        if not own:
            continue
        fastest = min(own, key=lambda profile: _step_ms(profile.parameters))
        step = _step_ms(fastest.parameters)
        tokens = min(loads.get(model, [0]))
        first = min(max(_prompt_ms(p.parameters, tokens), step) for p in own)
        limits = {
            "slo-itl": (target.itl_ms, step),
            "slo-ttw": (target.wait_ms, step),
            "slo-ttft": (target.ttft_ms, first),
        }
        for field, (asked, floor) in limits.items():
            if 0 < asked < floor * LEAST_SHARE_OF_STEP:
                what = "time to first token" if field == "slo-ttft" else "step"
                message = (
                    f"{asked:g} ms, where the shortest {what} takes {_rounded(floor)} ms;"
                    f" targets are in ms: if it is in seconds, write {asked * MS_PER_SECOND:g}"
                )
                yield "seconds", Problem(kind, name, field, message, IMPLAUSIBLE, model)


def _lax_targets(target: Target) -> Iterator[tuple[str, str, str]]:
    """Field, likely unit and message of each target that nearly everything meets."""
    limits = {
        "slo-itl": (target.itl_ms, LONGEST_STEP),
        "slo-ttw": (target.wait_ms, LONGEST_WAIT),
        "slo-ttft": (target.ttft_ms, LONGEST_WAIT),
    }
    for field, (asked, most) in limits.items():
        if asked > most:
            seconds = f"{asked / MS_PER_SECOND:g}"
            message = (
                f"{asked:.0f} ms are {seconds} seconds; targets are in ms: if it is in"
                f" microseconds, write {seconds}"
            )
            yield field, "microseconds", message
    rate = target.tokens_per_second
    if 0 < rate < LEAST_TOKENS_PER_SECOND:
        message = (
            f"{rate:g} tokens/s of a server are less than any serves; if it is in tokens/ms, write"
            f" {rate * MS_PER_SECOND:g}"
        )
        yield "slo-tps", "tokens/ms", message


def _step_ms(parameters: PerformanceParameters) -> float:
    """The shortest step of an answer, that of a lone request [ms]."""
    match parameters:
        case DecodeParameters(alpha, beta) | PrefillDecodeParameters(alpha, beta):
            return alpha + beta
        case TokenBudgetParameters(alpha, beta, gamma):
            return alpha + beta + gamma
        case StepParameters(alpha=alpha):
            return alpha


def _prompt_ms(parameters: PerformanceParameters, tokens: int) -> float:
    """The time that the prompt of a lone request takes [ms]."""
    match parameters:
        case DecodeParameters():
            return 0.0
        case PrefillDecodeParameters(gamma=gamma, delta=delta):
            return gamma + delta * tokens
        case TokenBudgetParameters(alpha, beta):
            return alpha + beta * tokens
        case StepParameters(alpha=alpha, delta=delta):
            return alpha + delta * tokens


def implausible_loads(catalogue: Catalogue, servers: Iterable[Server]) -> Iterator[Problem]:
    """Servers whose load is a tiny share of what their replicas carry, or a large multiple.

    A single replica is the least that a server can have, so such servers are named only if all
    servers are as empty. What is measured is left out: those loads have a spread.
    """
    loaded = [s for s in servers if not s.load.idle and s.current.replicas and not s.load_spread]
    several = [server for server in loaded if server.current.replicas > 1]
    found = _find_absurd_loads(catalogue, several)
    if len(found) == len(several):
        alone = [server for server in loaded if server.current.replicas == 1]
        absurd = _find_absurd_loads(catalogue, alone)
        found |= absurd if len(absurd) == len(alone) else {}
    for server in loaded:
        if server.name in found:
            field = "currentAlloc.load.arrivalRate"
            yield Problem("server", server.name, field, found[server.name], IMPLAUSIBLE)


def _find_absurd_loads(catalogue: Catalogue, servers: Iterable[Server]) -> dict[str, str]:
    """What is said of the servers whose load does not fit what runs, by name."""
    cases = [
        _pinned_case(catalogue, case)
        for server in servers
        if not (server.current.mix or server.current.roles)
        if isinstance(case := catalogue.case(server), Case)
    ]
    candidates = build_candidates(catalogue, cases)
    found: dict[str, str] = {}
    rates = candidates.sizing.max_rate.tolist()
    for case, rate in zip(candidates.pairs.case.tolist(), rates, strict=True):
        server = cases[case].server
        carried = rate * server.current.replicas * MS_PER_MINUTE
        if math.isfinite(carried) and server.load.arrival_rate < LEAST_USE * carried:
            found[server.name] = HARDLY_ANY_LOAD
        elif 0 < carried < server.load.arrival_rate / MOST_USE:
            found[server.name] = TOO_MUCH_LOAD
    return found


def _pinned_case(catalogue: Catalogue, case: Case) -> Case:
    """The case of a server on the accelerator that it runs on, and on no other."""
    here, profiles = case.server.current.accelerator, catalogue.system.profiles
    return replace(
        case, profiles=tuple(i for i in case.profiles if profiles[i].accelerator == here), apart=()
    )


def priority_problem(service_class: str, priority: int) -> Problem | None:
    """The problem of a priority that does not mean what its number says; None if it does."""
    if 1 <= priority <= LOWEST_PRIORITY:
        return None
    message = (
        f"{priority} counts as {LOWEST_PRIORITY}, the least important; give 1 (the most important)"
        f" to {LOWEST_PRIORITY}"
    )
    return Problem("service class", service_class, "priority", message)


def find_reversed_priorities(system: System) -> Iterator[Problem]:
    """The strictest class, if the stricter classes are, the less important they are.

    One is stricter than another if none of its targets of a model that both have is laxer.
    """
    found: list[tuple[ServiceClass, ServiceClass]] = []
    for strict, lax in permutations(system.classes[:CLASSES_COMPARED], 2):
        both = strict.targets.keys() & lax.targets.keys()
        pairs = [(strict.targets[m], lax.targets[m]) for m in both]
        if not pairs or not all(_is_stricter(s, x) for s, x in pairs):
            continue
        if strict.effective_priority <= lax.effective_priority:
            return
        found.append((strict, lax))
    for strict, lax in found[:1]:
        message = (
            f"{strict.effective_priority} is served after {cut(lax.name)!r} with"
            f" {lax.effective_priority}, whose targets are laxer; 1 is served first"
        )
        yield Problem("service class", strict.name, "priority", message)


def _is_stricter(one: Target, other: Target) -> bool:
    """Whether targets are not laxer in anything, and differ; of other percentiles it is unknown."""
    if _percentiles(one) != _percentiles(other):
        return False
    limits = [*zip(_limits(one), _limits(other), strict=True)]
    return all(a <= b for a, b in limits) and any(a < b for a, b in limits)


def _limits(target: Target) -> tuple[float, ...]:
    """The limits of a target [ms; s/token]; one that is not set is endless."""
    least = target.tokens_per_second
    limits = (target.itl_ms, target.wait_ms, target.ttft_ms, 1 / least if least else 0.0)
    return tuple(limit or math.inf for limit in limits)


def _percentiles(target: Target) -> tuple[float, ...]:
    return target.wait_percentile, target.ttft_percentile, target.itl_percentile


def has_prefill(profile: PerformanceProfile | RoleProfile) -> bool:
    """Whether the profile includes the prefill time of input tokens."""
    match profile.parameters:
        case PrefillDecodeParameters() as parameters:
            return parameters.has_prefill
        case TokenBudgetParameters() | StepParameters():
            return True
        case _:
            return False
