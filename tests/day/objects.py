"""The objects of the day: those of the loop in motion, with windows as short as the day is."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from inferno_operator.controllers.planning.snapshot import build_system
from inferno_operator.resources import Resource
from inferno_operator.resources.parsing import SYSTEM_RESOURCES, parse
from inferno_optimizer.system import System
from tests.cluster.motion import MEAN_TOKENS, Manifest, Mover, PodTimes, manifests
from tests.day.course import CARDS

FASTER = 15
"""How many times faster than by default the operator looks, plans and waits."""

INTERVAL_S = 3
MEASURE_INTERVAL_S = 2
WINDOW_S = 300 // FASTER
POD_TIMES = PodTimes(cold_start_s=4.0, ending_s=2.0)
"""Of a replica; a minute, and half of one, at that speed."""

SCRAPE_S = 1.0
RATE_S = 8
"""Window of the queries [s]: the built-in ones have windows of one and five minutes."""


def day_manifests(movers: list[Mover]) -> Iterator[Manifest]:
    """Yield all objects of the namespace; loads are measured."""
    for manifest in manifests(movers, CARDS, INTERVAL_S):
        if manifest["kind"] == "Server":
            spec = manifest["spec"]
            spec["scaleDown"] = {"windowSeconds": WINDOW_S}
            spec["startupSeconds"] = round(POD_TIMES.cold_start_s)
            spec["measure"] = {
                "source": "Custom",
                "queries": queries(spec["name"]),
                "catchUpSeconds": 60 // FASTER,
            }
        yield manifest


def queries(name: str, seconds: int = RATE_S) -> Mapping[str, str]:
    """What measures a server within seconds: what was served, and what more is in it now."""
    own = f'{{model_name="{name}"}}'
    inside = f"sum(vllm:num_requests_running{own} + vllm:num_requests_waiting{own})"
    before = inside.replace(own, f"{own} offset {seconds}s")
    served = f"sum(rate(vllm:request_success_total{own}[{seconds}s]))"
    return {
        "arrivalRate": f"clamp_min({served} + ({inside} - {before}) / {seconds}, 0) or {served}",
        "avgInTokens": _mean("vllm:request_prompt_tokens", own, seconds),
        "avgOutTokens": _mean("vllm:request_generation_tokens", own, seconds),
        "itlAverage": _mean("vllm:inter_token_latency_seconds", own, seconds),
        "ttftAverage": _mean("vllm:time_to_first_token_seconds", own, seconds),
        "running": f"sum(vllm:num_requests_running{own})",
        "waiting": f"sum(vllm:num_requests_waiting{own})",
    }


def _mean(histogram: str, own: str, seconds: int) -> str:
    total, count = (f"sum(rate({histogram}_{part}{own}[{seconds}s]))" for part in ("sum", "count"))
    return f"{total} / ({count} > 0)"


def system_at_start(movers: list[Mover], all_manifests: Iterable[Manifest]) -> System:
    """The servers as they are at the beginning, for the policies that it is compared with."""
    return build_system(_resources(movers, all_manifests)).system


def _resources(movers: list[Mover], all_manifests: Iterable[Manifest]) -> Iterator[Resource]:
    kinds = {resource.kind for resource in SYSTEM_RESOURCES}
    running = {mover.name: mover for mover in movers}
    for manifest in all_manifests:
        if manifest["kind"] == "Server":
            manifest["spec"]["currentAlloc"] = _current(running[manifest["spec"]["name"]])
        if manifest["kind"] in kinds:
            yield parse(manifest)


def _current(mover: Mover) -> dict[str, Any]:
    told, generated = MEAN_TOKENS
    load = {"arrivalRate": 60 * mover.rate(0.0), "avgInTokens": told, "avgOutTokens": generated}
    return {"accelerator": mover.accelerators[0], "numReplicas": mover.running, "load": load}
