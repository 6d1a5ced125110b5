"""Three more kinds of fleets, which differ from those of the benchmarks in every respect.

Loads, classes, sizes of models, batches, cards of a replica and the spread of the capacity: a
solver that is tuned on one kind of fleet shows on another what it has learned by heart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from inferno_optimizer.decisions import size_servers
from inferno_optimizer.sizing.cases import Catalogue
from inferno_optimizer.wire.codec import decode_system
from tests.generate import AT_TOKENS, JsonObject

CARDS: Mapping[str, tuple[float, float, float]] = {
    "T4": (20, 16, 320),
    "V100": (90, 32, 900),
    "L4": (45, 24, 300),
    "L40S": (115, 48, 864),
    "RTX6000": (140, 96, 1790),
    "A100": (170, 80, 2039),
    "Gaudi3": (190, 128, 3700),
    "H100": (290, 80, 3350),
    "H200": (350, 141, 4800),
    "MI300X": (340, 192, 5300),
    "MI355X": (430, 288, 8000),
    "B200": (540, 192, 8000),
    "TPUv6": (160, 32, 1640),
}
"""Cents/hour, GB, GB/s."""

GROUPS = (1, 4)
"""Cards of an accelerator: of every type the first, of the first seven the second, too."""

MOST_CARDS = 8
"""Cards of a replica, at most."""

LARGE = 300.0
"""Cards of a server that count at most: a type that just misses a target needs thousands."""


@dataclass(frozen=True)
class Market:
    """What a kind of fleet is like.

    Attributes
    ----------
    priorities
        Of the classes.
    shares
        How many of the servers each class has.
    sizes
        Of models [billions of parameters], the first ones more often.
    lengths
        Of requests [tokens].
    scarce
        How much of its even share of the cards each type has, before all are scaled.
    """

    priorities: Sequence[int]
    shares: Sequence[float]
    sizes: Sequence[float]
    lengths: Sequence[int]
    scarce: Sequence[float]


HEAVY = Market(
    priorities=(1, 2, 3),
    shares=(0.2, 0.3, 0.5),
    sizes=(2, 4, 9, 14, 27, 32, 72, 110),
    lengths=(64, 180, 400, 900, 2200),
    scarce=(4.0, 4.0, 3.0, 3.0, 2.0, 0.1, 2.0, 0.1, 0.1, 0.3, 0.2, 0.1, 2.0),
)
"""The important servers are the large ones; new cards are scarce, old ones ample."""

MIXED = Market(
    priorities=(1, 5, 10, 20, 50),
    shares=(0.1, 0.15, 0.25, 0.3, 0.2),
    sizes=(1, 3, 6, 12, 30, 49, 65, 90, 180),
    lengths=(100, 300, 800, 1500),
    scarce=(0.2, 0.2, 0.2, 0.5, 0.2, 6.0, 0.1, 8.0, 0.3, 2.0, 0.1, 0.2, 0.2),
)
"""Loads do not depend on the class, of which there are five; three types have most cards."""


SIZES = (1, 2, 3, 7, 8, 13, 14, 30, 32, 49, 70, 90, 110, 180)
LENGTHS = (64, 150, 300, 500, 900, 1500, 2500)
"""What markets are drawn from."""


def heavy_tailed(servers: int, seed: int, demand: float) -> JsonObject:
    """Loads with a Pareto tail, larger in more important classes."""
    random = np.random.default_rng((seed, 1))
    kinds = random.choice(len(HEAVY.shares), servers, p=HEAVY.shares)
    rates = 12 * (random.pareto(1.15, servers) + 1) * np.array((4.0, 1.5, 0.6))[kinds]
    return _document(HEAVY, kinds, np.minimum(rates, 15_000.0), demand, random)


def mixed(servers: int, seed: int, demand: float) -> JsonObject:
    """Loads of a wide lognormal distribution, the same in all classes."""
    random = np.random.default_rng((seed, 2))
    kinds = random.choice(len(MIXED.shares), servers, p=MIXED.shares)
    rates = 40 * np.exp(1.4 * random.standard_normal(servers))
    return _document(MIXED, kinds, rates, demand, random)


def drawn(servers: int, seed: int, demand: float) -> JsonObject:
    """A market whose classes, models, lengths, loads and scarce cards are drawn as well."""
    random = np.random.default_rng((seed, 3))
    classes = int(random.integers(2, 6))
    sizes = random.choice(SIZES, int(random.integers(3, 8)), replace=False)
    market = Market(
        priorities=sorted((random.choice(100, classes, replace=False) + 1).tolist()),
        shares=random.dirichlet(np.full(classes, 3.0)).tolist(),
        sizes=sorted(sizes.tolist()),
        lengths=random.choice(LENGTHS, 4, replace=False).tolist(),
        scarce=np.exp(1.5 * random.standard_normal(len(CARDS))).tolist(),
    )
    kinds = random.choice(classes, servers, p=market.shares)
    rates = 30 * np.exp(random.uniform(0.5, 2.0) * random.standard_normal(servers))
    return _document(market, kinds, np.minimum(rates, 20_000.0), demand, random)


def _document(
    market: Market,
    kinds: np.ndarray,
    rates: np.ndarray,
    demand: float,
    random: np.random.Generator,
) -> JsonObject:
    """The fleet as SystemData, with so much capacity that the demand is about what is asked for."""
    accelerators = [
        {
            "name": f"{count}x{card}",
            "type": card,
            "multiplicity": count,
            "cost": cost * count * 0.97**count,
        }
        for count, cards in zip(GROUPS, (list(CARDS), list(CARDS)[:7]), strict=True)
        for card, (cost, _, _) in ((card, CARDS[card]) for card in cards)
    ]
    profiles = [
        p for size in market.sizes for a in accelerators if (p := _profile(size, a, random))
    ]
    popular = 1.0 / np.arange(1, len(market.sizes) + 1)
    models = random.choice(market.sizes, len(kinds), p=popular / popular.sum())
    lengths = random.choice(market.lengths, len(kinds))
    servers = [
        {
            "name": f"server-{place:05}",
            "class": f"class-{kind}",
            "model": f"model-{model:g}b",
            "currentAlloc": {
                "load": {"arrivalRate": round(float(rate), 2), "avgLength": int(length)}
            },
        }
        for place, (kind, model, rate, length) in enumerate(
            zip(kinds, models, rates, lengths, strict=True)
        )
    ]
    system: JsonObject = {
        "acceleratorData": {"accelerators": accelerators},
        "modelData": {"models": profiles},
        "serviceClassData": {
            "serviceClasses": [_class(market, kind) for kind in range(len(market.shares))]
        },
        "serverData": {"servers": servers},
        "optimizerData": {"optimizer": {"unlimited": False}},
        "capacityData": {"count": []},
    }
    document = {"system": system}
    system["capacityData"] = {"count": _capacity(document, market, demand)}
    return document


def _profile(
    size: float, accelerator: JsonObject, random: np.random.Generator
) -> JsonObject | None:
    """Decoding reads the weights once an iteration; None where they take too many cards."""
    _, memory, bandwidth = CARDS[accelerator["type"]]
    cards, weights, count = accelerator["multiplicity"], 2.0 * size, 1
    while 0.75 * memory * cards * count < weights:
        count *= 2
    if cards * count > MOST_CARDS:
        return None
    # Several cards are slower than their bandwidth says, and implementations differ.
    alpha = 1400 * weights / (bandwidth * (cards * count) ** 0.85) * random.uniform(0.8, 1.3)
    free = 0.9 * memory * cards * count - weights
    return {
        "name": f"model-{size:g}b",
        "acc": accelerator["name"],
        "accCount": count,
        "alpha": round(2.0 + alpha, 3),
        "beta": round(alpha * random.uniform(0.01, 0.05), 4),
        "maxBatchSize": max(1, int(min(free / (0.09 * size), random.choice((16, 48, 128, 512))))),
        "atTokens": AT_TOKENS,
    }


def _class(market: Market, kind: int) -> JsonObject:
    """Targets that the slower cards miss for large models, more so in important classes."""
    factor = 1.0 + 0.8 * kind
    targets = [
        {
            "model": f"model-{size:g}b",
            "slo-itl": round(factor * (18 + 0.9 * size), 1),
            "slo-ttw": 400 * factor,
        }
        for size in market.sizes
    ]
    return {"name": f"class-{kind}", "priority": market.priorities[kind], "modelTargets": targets}


def _capacity(document: JsonObject, market: Market, demand: float) -> list[JsonObject]:
    """Cards of each type: a share of what all servers would take of it alone."""
    catalogue = Catalogue(decode_system(document).by_name())
    candidates, _ = size_servers(catalogue, catalogue.system.servers)
    rows = np.flatnonzero(candidates.usable)
    types = len(candidates.types)
    least = np.full((len(candidates.cases), types), np.inf)
    np.minimum.at(
        least, (candidates.pairs.case[rows], candidates.pairs.type[rows]), candidates.cards[rows]
    )
    wanted = np.where(np.isfinite(least), np.minimum(least, LARGE), 0.0).sum(axis=0)
    scarce = np.array(
        [dict(zip(CARDS, market.scarce, strict=True))[name] for name in candidates.types]
    )
    share = scarce / scarce.sum() / demand
    return [
        {"type": name, "count": int(np.ceil(cards))}
        for name, cards in zip(candidates.types, (share * wanted).tolist(), strict=True)
    ]
