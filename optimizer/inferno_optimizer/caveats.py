"""Caveats: warnings about decisions whose predicted numbers may be wrong.

A problem (see `validation`) keeps an object out of the plan. A warning does not change the plan;
it says why the predicted numbers of a server on an accelerator may not hold.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.solution import Decision
from inferno_optimizer.system import (
    LOWEST_PRIORITY,
    Generation,
    Load,
    PerformanceProfile,
    PrefillDecodeParameters,
    Role,
    RoleProfile,
    Server,
    StepParameters,
    Target,
    TokenBudgetParameters,
)
from inferno_optimizer.validation import Problem


def warned(catalogue: Catalogue, decisions: Iterable[Decision]) -> tuple[Decision, ...]:
    """The decisions, each with the warnings about every accelerator of its allocation.

    Raises
    ------
    KeyError
        A decision is for a server that the system does not have.
    """
    servers = {server.name: server for server in catalogue.system.servers}
    return tuple(_warned(catalogue, servers[d.server], d) for d in decisions)


def _warned(catalogue: Catalogue, server: Server, decision: Decision) -> Decision:
    parts = decision.allocation.parts if decision.allocation else ()
    target = catalogue.target(server)
    warnings = tuple(
        warning
        for part in parts
        if (profile := catalogue.profile(server.model, part.accelerator, part.role))
        for warning in warnings_of(server, profile, part.max_batch_size, target)
    )
    return replace(decision, warnings=warnings) if warnings else decision


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
            f"the load has no avgInTokens, so that latencies on {profile.accelerator} leave out the"
            f" prefill; give avgInTokens and avgOutTokens"
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


def priority_problem(service_class: str, priority: int) -> Problem | None:
    """The problem of a priority that does not mean what its number says; None if it does."""
    if 1 <= priority <= LOWEST_PRIORITY:
        return None
    message = (
        f"{priority} counts as {LOWEST_PRIORITY}, the least important; give 1 (the most important)"
        f" to {LOWEST_PRIORITY}"
    )
    return Problem("service class", service_class, "priority", message)


def has_prefill(profile: PerformanceProfile | RoleProfile) -> bool:
    """Whether the profile includes the prefill time of input tokens."""
    match profile.parameters:
        case PrefillDecodeParameters() as parameters:
            return parameters.has_prefill
        case TokenBudgetParameters() | StepParameters():
            return True
        case _:
            return False
