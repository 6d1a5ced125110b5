"""Fleets of servers to measure and to compare with: the same seed gives the same fleet."""

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import Any

import numpy as np

JsonObject = dict[str, Any]

CARDS = {  # cents/hour, GB, GB/s
    "L4": (40, 24, 300),
    "A10": (60, 24, 600),
    "A30": (75, 24, 933),
    "L40S": (110, 48, 864),
    "MI210": (120, 64, 1638),
    "A100-40": (130, 40, 1555),
    "Gaudi2": (150, 96, 2450),
    "A100": (180, 80, 2039),
    "MI250": (200, 128, 3277),
    "H100": (300, 80, 3350),
    "MI300X": (330, 192, 5300),
    "H200": (380, 141, 4800),
    "B200": (560, 192, 8000),
}

MODELS = (1, 3, 7, 8, 13, 20, 24, 34, 40, 70)
"""Sizes [billions of parameters]."""

CLASSES = {"Premium": (1, 1.0, 500), "Standard": (2, 2.0, 1000), "Free": (3, 4.0, 2000)}
"""Priority, factor of the ITL target, target of the wait [ms]."""

AT_TOKENS = 512


def fleet(servers: int, accelerators: int, seed: int, demand: float) -> JsonObject:
    """Make a document of SystemData.

    Parameters
    ----------
    servers, accelerators
        How many; from the 14th on an accelerator is several cards of a type.
    seed
        Of the random choices: models, classes, lengths, and loads from 15 to 3600
        requests/min, evenly on a logarithmic scale.
    demand
        About how often all servers together want the cards that there are.
    """
    random = np.random.default_rng(seed)
    kinds = [_accelerator(place) for place in range(accelerators)]
    profiles = [_profile(size, kind) for size in MODELS for kind in kinds]
    loaded = [_server(place, kinds, random) for place in range(servers)]
    return {
        "system": {
            "acceleratorData": {"accelerators": kinds},
            "modelData": {"models": profiles},
            "serviceClassData": {"serviceClasses": [_class(name) for name in CLASSES]},
            "serverData": {"servers": loaded},
            "optimizerData": {"optimizer": {"unlimited": False}},
            "capacityData": {"count": _capacity(loaded, profiles, kinds, demand)},
        }
    }


def _accelerator(place: int) -> JsonObject:
    card = list(CARDS)[place % len(CARDS)]
    count = 2 ** (place // len(CARDS))
    name = card if count == 1 else f"{count}x{card}"
    return {"name": name, "type": card, "multiplicity": count, "cost": CARDS[card][0] * count}


def _profile(size: int, kind: JsonObject) -> JsonObject:
    """Decoding is bound by memory: weights are read once an iteration, two bytes each."""
    _, memory, bandwidth = CARDS[kind["type"]]
    weights, cards = 2.0 * size, kind["multiplicity"]
    count = 1
    while 0.7 * memory * cards * count < weights:
        count *= 2
    alpha = 1600 * weights / (bandwidth * cards * count)
    free = 0.9 * memory * cards * count - weights
    return {
        "name": _model(size),
        "acc": kind["name"],
        "accCount": count,
        "alpha": round(alpha, 3),
        "beta": round(0.02 * alpha, 4),
        "maxBatchSize": max(1, int(free / (0.11 * size))),
        "atTokens": AT_TOKENS,
    }


def _model(size: int) -> str:
    return f"model-{size}b"


def _class(name: str) -> JsonObject:
    priority, factor, wait = CLASSES[name]
    targets = [
        {"model": _model(size), "slo-itl": round(factor * (15 + 2 * size), 1), "slo-ttw": wait}
        for size in MODELS
    ]
    return {"name": name, "priority": priority, "modelTargets": targets}


def _server(place: int, kinds: list[JsonObject], random: np.random.Generator) -> JsonObject:
    kind = kinds[int(random.integers(len(kinds)))]
    replicas = int(random.integers(4))
    rate = 15 * math.exp(random.uniform(0, math.log(3600 / 15)))
    return {
        "name": f"server-{place:05}",
        "class": str(random.choice(list(CLASSES))),
        "model": _model(int(random.choice(MODELS))),
        "currentAlloc": {
            "accelerator": kind["name"] if replicas else "",
            "numReplicas": replicas,
            "cost": kind["cost"] * replicas,
            "load": {
                "arrivalRate": round(rate, 2),
                "avgLength": int(random.choice((128, 256, 512, 1024))),
            },
        },
    }


def _capacity(
    servers: list[JsonObject], profiles: list[JsonObject], kinds: list[JsonObject], demand: float
) -> list[JsonObject]:
    """Cards of each type: its even share of what all servers want, over the demand."""
    kind_of = {kind["name"]: kind for kind in kinds}
    wanted = dict.fromkeys((kind["type"] for kind in kinds), 0.0)
    by_model: dict[str, list[JsonObject]] = {}
    for profile in profiles:
        if kind_of[profile["acc"]]["multiplicity"] == 1:
            by_model.setdefault(profile["name"], []).append(profile)
    for server in servers:
        for profile in by_model[server["model"]]:
            cards = _cards(server["currentAlloc"]["load"], profile)
            wanted[kind_of[profile["acc"]]["type"]] += cards
    share = demand * len(wanted)
    return [{"type": card, "count": math.ceil(sum_ / share)} for card, sum_ in wanted.items()]


def _cards(load: JsonObject, profile: JsonObject) -> float:
    """About as many cards as the load takes: replicas that run half full."""
    tokens = load["avgLength"]
    batch = max(profile["maxBatchSize"] * AT_TOKENS // tokens, 1) / 2
    per_minute = 60_000 * batch / (tokens * (profile["alpha"] + profile["beta"] * batch))
    return float(math.ceil(load["arrivalRate"] / per_minute) * profile["accCount"])


SHORTEST, LONGEST = 100, 1100
"""Tokens of a request, where no two servers have requests of the same length."""


def with_different_lengths(document: JsonObject) -> JsonObject:
    """No two servers can be sized together."""
    span = LONGEST - SHORTEST

    def lengthen(place: int, server: JsonObject) -> None:
        server["currentAlloc"]["load"]["avgLength"] = SHORTEST + place * 7919 % span

    return _each_server(document, lengthen)


def of_generation(document: JsonObject, generation: int) -> JsonObject:
    """The same fleet, with performance data of another generation made from the first."""
    if generation == 1:
        return document
    changed = deepcopy(document)
    for profile in changed["system"]["modelData"]["models"]:
        profile.update(_PARAMETERS[generation](profile.pop("alpha"), profile.pop("beta")))
    for service_class in changed["system"]["serviceClassData"]["serviceClasses"]:
        for target in service_class["modelTargets"]:
            target["slo-ttft"] = target.pop("slo-ttw")
    return _each_server(changed, _split_tokens)


def _split_tokens(_: int, server: JsonObject) -> None:
    load = server["currentAlloc"]["load"]
    tokens = load.pop("avgLength")
    load.update(avgInTokens=tokens // 2, avgOutTokens=tokens - tokens // 2)
    server["maxQueueSize"] = 10


_PARAMETERS: Mapping[int, Callable[[float, float], JsonObject]] = MappingProxyType(
    {
        2: lambda alpha, beta: {
            "decodeParms": {"alpha": alpha, "beta": beta},
            "prefillParms": {"gamma": alpha, "delta": 0.001 * alpha},
        },
        3: lambda alpha, beta: {
            "perfParms": {"alpha": alpha, "beta": beta / 10, "gamma": beta / AT_TOKENS}
        },
        4: lambda alpha, beta: {
            "stepParms": {
                "alpha": alpha,
                "kappa": beta / AT_TOKENS,
                "delta": beta / 10,
                "u": beta / AT_TOKENS,
                "ahead": 1,
                "budget": 2048,
            }
        },
    }
)


def _each_server(document: JsonObject, change: Callable[[int, JsonObject], Any]) -> JsonObject:
    changed = deepcopy(document)
    for place, server in enumerate(changed["system"]["serverData"]["servers"]):
        change(place, server)
    return changed
