"""`inferno size`: what one model needs for one load, on every card of the catalogue.

Each card, and each number of cards that share the layers, is an accelerator of a fleet with one
Server; the fleet is sized as any other, and is what `-o yaml` prints.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from inferno_operator.cli.catalogue import (
    Card,
    DoesNotFitError,
    EstimateRequest,
    Figures,
    KnownHardware,
    ModelEstimate,
    estimate,
    list_warnings,
    read_catalogue,
    read_models,
)
from inferno_operator.cli.offline.documents import Document
from inferno_operator.cli.offline.manifests import object_name
from inferno_operator.cli.offline.model_config import (
    find_stored_precision,
    read_architecture,
    read_config,
)
from inferno_operator.cli.offline.system import parse_system
from inferno_operator.resources import (
    Accelerator,
    AcceleratorSpec,
    Metadata,
    Model,
    ModelSpec,
    Optimizer,
    PerformanceData,
    Server,
    ServiceClass,
)
from inferno_operator.resources.caveats import list_absurd_figures
from inferno_operator.runtime.files import read_text
from inferno_optimizer.caveats import LONGEST_STEP, LONGEST_WAIT
from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.options import Option, explain
from inferno_optimizer.suggestions import alternatives

CENTS = 100
"""Cents of a unit of prices."""

SERVICE_CLASS = "Standard"

LINK = 32.0
"""Bandwidth between cards of one's own, unless it is given [GB/s]: PCIe 4.0 x16."""

GROUPS_APART = 8
"""Groups of cards of which every pair is tried with prefill and decode apart."""

PREFILL_BATCH = 8
"""Most prompts that a prefill replica computes in a step."""

NETWORK = 50.0
"""What a card sends to another server [GB/s]: 400 Gbit/s."""

HANDOVER_MS = 5.0
"""Time to hand a request over from prefill to decode, besides that of its cache [ms]."""

Estimates = Sequence[tuple["CardGroup", ModelEstimate]]


@dataclass(frozen=True, slots=True)
class WantedLoad:
    """The load, and its targets.

    Attributes
    ----------
    rate
        [requests/s].
    input_tokens, output_tokens
        Mean tokens of requests.
    ttft_ms, itl_ms
        Most that the mean time to first token and the mean inter-token latency may be [ms].
    """

    rate: float
    input_tokens: int
    output_tokens: int
    ttft_ms: float
    itl_ms: float


@dataclass(frozen=True, slots=True)
class SizeRequest:
    """What is to be sized; the model and its precisions are as in `EstimateRequest`.

    `published` is what others have measured of the model in these precisions.
    """

    name: str
    config: Mapping[str, Any]
    origin: str
    weights: str
    cache: str
    load: WantedLoad
    published: Sequence[Figures] = ()

    def find_measured(self, group: "CardGroup") -> PerformanceData | None:
        """Return what others have measured on a group with such requests; None: nothing."""
        inputs, outputs = self.load.input_tokens, self.load.output_tokens
        for data in (data for figures in self.published for data in figures.data):
            steps = data.step_parms
            if (
                steps is not None
                and (data.acc, data.acc_count) == (group.card.name, group.cards)
                and steps.min_in_tokens <= inputs <= (steps.max_in_tokens or inputs)
                and steps.min_out_tokens <= outputs <= (steps.max_out_tokens or outputs)
            ):
                return data
        return None


def build_request(
    model: str, model_config: str, weights: str, cache: str, load: WantedLoad
) -> SizeRequest:
    """Return what is to be sized: a model of the catalogue, or one of a config.json.

    Raises InputError if the model is not known, or the file cannot be read.
    """
    if model_config:
        config = read_config(model_config)
        return SizeRequest(model, config, model_config, weights, cache, load)
    known = read_models().model(model)
    other = "" if weights == find_stored_precision(known.config) else weights
    # Engines keep the cache in this precision, unless they are told.
    published = read_catalogue().list_steps(known.repository, other) if cache == "bf16" else []
    return SizeRequest(model, known.config, model, weights, cache, load, published)


@dataclass(frozen=True, slots=True)
class CardGroup:
    """Some cards that share the layers of each replica.

    `price` is that of one card [units of money/hour]; None: it is not known.
    """

    card: Card
    cards: int
    price: float | None

    @property
    def name(self) -> str:
        """The name of the accelerator, such as 2xH100."""
        return self.card.name if self.cards == 1 else f"{self.cards}x{self.card.name}"


@dataclass(frozen=True, slots=True)
class OwnCard:
    """A card as options describe it; what is not given is None, and without a name there is none.

    `memory` [GB], `bandwidth` [GB/s], `tflops` [TFLOP/s], `link` [GB/s], `price` [1/hour].
    """

    name: str
    memory: float | None
    bandwidth: float | None
    tflops: float | None
    link: float | None
    price: float | None

    def refuse_figures_without_name(self) -> None:
        """Raise InputError if something is said of a card that has no name."""
        said = {**self._figures(), "--price": self.price}
        given = [option for option, value in said.items() if value is not None]
        if given and not self.name:
            raise InputError(f"{given[0]}: needs --card, whose it is")

    def build(self, hardware: KnownHardware) -> Card:
        """Return the card.

        Raises InputError if a figure is missing or not above 0, or the catalogue has the name.
        """
        place = f"--card {self.name}"
        if any(
            object_name(known.name) == object_name(self.name) for known in hardware.accelerators
        ):
            raise InputError(f"{place}: the catalogue has it; choose another name")
        figures = self._figures()
        figures["--link"] = LINK if self.link is None else self.link
        for option, value in figures.items():
            if value is None:
                raise InputError(f"{place}: {option} is missing")
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{place}: {option}: must be above 0, not {value:g}")
        names = ("memory", "bandwidth", "flops16", "link")
        sheet = dict(zip(names, figures.values(), strict=True))
        return Card.model_validate({"name": self.name, "source": "", **sheet})

    def _figures(self) -> dict[str, float | None]:
        return {
            "--memory": self.memory,
            "--bandwidth": self.bandwidth,
            "--tflops": self.tflops,
            "--link": self.link,
        }


def list_doubts(load: WantedLoad, card: OwnCard) -> Iterator[str]:
    """Yield what is hardly meant in its unit, a line each."""
    for option, limit, most in (
        ("--ttft", load.ttft_ms, LONGEST_WAIT),
        ("--itl", load.itl_ms, LONGEST_STEP),
    ):
        if limit > most:
            yield f"{option}: {limit / 1000:g} s is longer than users wait; ms are milliseconds"
    options = {"memSize": "--memory", "memBW": "--bandwidth"}
    for field, message in list_absurd_figures(card.memory or 0, card.bandwidth or 0).items():
        yield f"{options[field]}: {message}"


@dataclass(frozen=True, slots=True)
class Sized:
    """What a group needs for the load.

    `option` is None where the model cannot be placed; `reason` says why that, or why the targets
    are out of reach, and is empty where they hold.
    """

    group: CardGroup
    reason: str
    option: Option | None = None
    output_tokens_per_hour: float = 0.0

    @property
    def cost(self) -> float | None:
        """Cost of all replicas [units of money/hour]; None: the price is not known."""
        if self.option is None or self.group.price is None:
            return None
        return self.option.cards * self.group.price

    @property
    def cost_per_million(self) -> float | None:
        """Cost of a million output tokens [units of money]; None: the price is not known."""
        return None if self.cost is None else self.cost / self.output_tokens_per_hour * 1e6

    def to_json(self) -> Mapping[str, object]:
        """The result as JSON; latencies in ms, `maxRate` in requests/min of one replica."""
        group, option = self.group, self.option
        found: dict[str, object] = {
            "accelerator": group.name,
            "type": group.card.name,
            "cardsPerReplica": group.cards,
        }
        if self.reason or option is None:
            return {**found, "reason": self.reason}
        return {
            **found,
            "replicas": option.replicas,
            "cards": option.cards,
            "maxBatch": option.max_batch_size,
            "ttftMs": option.ttft_ms,
            "itlMs": option.itl_ms,
            "maxRate": option.max_rate,
            "costPerHour": self.cost,
            "costPerMillionOutputTokens": self.cost_per_million,
            "origin": option.origin,
            "errorPercent": option.error_percent,
        }


@dataclass(frozen=True, slots=True)
class SizeResult:
    """What every group needs, those that hold the targets first, the cheapest of them first.

    `apart` is an option with prefill and decode apart that costs less than all others, if there is
    one. `fleet` are the custom resources, with the accelerators that hold the targets and have a
    price; `warnings` are what a reader has to know of the figures.
    """

    request: SizeRequest
    sized: Sequence[Sized]
    apart: Option | None
    fleet: Sequence[Mapping[str, Any]]
    warnings: Sequence[str]

    @property
    def best(self) -> Sequence[Sized]:
        """The first of each card."""
        return _list_firsts(self.sized)

    def to_json(self) -> object:
        """The result as JSON."""
        load, apart = self.request.load, self.apart
        return {
            "model": self.request.name,
            "load": {
                "requestsPerSecond": load.rate,
                "inputTokens": load.input_tokens,
                "outputTokens": load.output_tokens,
                "ttftMs": load.ttft_ms,
                "itlMs": load.itl_ms,
            },
            "options": [each.to_json() for each in self.sized],
            "apart": apart
            and {
                "placement": apart.accelerator,
                "cards": apart.cards,
                "ttftMs": apart.ttft_ms,
                "itlMs": apart.itl_ms,
                "costPerHour": apart.cost / CENTS,
            },
            "warnings": list(self.warnings),
        }


def size(request: SizeRequest, groups: Sequence[CardGroup], hardware: KnownHardware) -> SizeResult:
    """Find what a model needs for a load on each group.

    Raises
    ------
    InputError
        A precision is not known, the config.json has a mistake, or the model fits nowhere.
    """
    estimates, excluded = _estimate_all(request, groups, hardware)
    if not estimates:
        raise InputError(f"{request.name} runs on none of the cards: {excluded[0].reason}")
    by_name = {group.name: group for group, _ in estimates}
    per_hour = request.load.rate * request.load.output_tokens * 3600
    sized = [
        Sized(by_name[option.accelerator], _word_reason(option.reason), option, per_hour)
        for option in _explain(request, estimates)
    ]
    ranked = (*sorted(sized, key=_rank), *excluded)
    holding = {each.group.name for each in ranked if not each.reason}
    used = [(p, e) for p, e in estimates if p.name in holding] or estimates
    # Without a price a card would count as free.
    priced = [(p, e) for p, e in used if p.price is not None] or used
    fleet = _build_fleet(request, priced)
    warnings = list_warnings([each for _, each in used if each.measured is None])
    if measured := [group.name for group, each in used if each.measured is not None]:
        names = " or ".join(figures.model for figures in request.published)
        source = f"see `inferno catalogue show {names}`"
        warnings = [f"{', '.join(measured)}: measured by others, {source}", *warnings]
    pool = _select_for_roles(ranked, estimates)
    apart = _find_apart(request, pool, ranked[0]) if pool else None
    if apart is not None:
        fleet = _build_fleet(request, pool, apart=True)
    return SizeResult(request, ranked, apart, list(fleet), warnings)


def _explain(
    request: SizeRequest, estimates: Estimates, *, apart: bool = False
) -> Sequence[Option]:
    """Size the server of the fleet; returns its options, the usable ones first."""
    fleet = _build_fleet(request, estimates, apart=apart)
    return explain(parse_system([Document(each, "the fleet") for each in fleet]), request.name)


def _select_for_roles(ranked: Sequence[Sized], estimates: Estimates) -> Estimates:
    """Return the best group of each card with a price, the best cards first."""
    by_name = {group.name: (group, each) for group, each in estimates}
    priced = [s for s in ranked if s.group.price is not None and s.group.name in by_name]
    return [by_name[each.group.name] for each in _list_firsts(priced)[:GROUPS_APART]]


def _list_firsts(ranked: Sequence[Sized]) -> Sequence[Sized]:
    """Return the first of each card."""
    firsts: dict[str, Sized] = {}
    for each in ranked:
        firsts.setdefault(each.group.card.name, each)
    return tuple(firsts.values())


def _find_apart(request: SizeRequest, pool: Estimates, best: Sized) -> Option | None:
    """Return the cheapest option with roles, if it costs less than what does both."""
    least = math.inf if best.reason or best.cost is None else best.cost
    whole = {group.name for group, _ in pool}
    found = _explain(request, pool, apart=True)
    options = (o for o in found if not o.reason and o.accelerator not in whole)
    cheapest = min(options, key=lambda option: option.cost, default=None)
    return cheapest if cheapest is not None and cheapest.cost / CENTS < least else None


def _word_reason(reason: str) -> str:
    """Name targets as the options of the command do."""
    return reason.replace("slo-itl", "--itl").replace("slo-ttft", "--ttft")


def _rank(sized: Sized) -> tuple[bool, bool, float]:
    """What holds the targets first, and known costs before unknown ones; else as solvers do.

    Without a price fewer cards are better, and what is out has most cards first: the fastest.
    """
    option, cost = sized.option, sized.cost
    if sized.reason or option is None:
        return True, True, -sized.group.cards
    # Costs are rounded, so that the sum of the same price is the same.
    return False, cost is None, option.cards if cost is None else round(cost, 6)


def _estimate_all(
    request: SizeRequest, groups: Sequence[CardGroup], hardware: KnownHardware
) -> tuple[Estimates, Sequence[Sized]]:
    """Return the estimates, and where the model does not fit or cannot be shared, in this order."""
    heads = read_architecture(request.config, request.origin).heads
    estimates, too_large, unshared = (
        list[tuple[CardGroup, ModelEstimate]](),
        list[Sized](),
        list[Sized](),
    )
    load = request.load
    for group in groups:
        if heads % group.cards:
            unshared.append(Sized(group, f"{group.cards} cards cannot share {heads} heads"))
            continue
        wanted = EstimateRequest(
            request.name,
            request.config,
            request.origin,
            group.cards,
            request.weights,
            request.cache,
            load.input_tokens,
            load.output_tokens,
        )
        try:
            found = estimate(wanted, group.card, hardware)
            estimates.append((group, replace(found, measured=request.find_measured(group))))
        except DoesNotFitError as problem:
            too_large.append(Sized(group, problem.why))
    return estimates, (*too_large, *unshared)


def _build_fleet(
    request: SizeRequest, estimates: Estimates, *, apart: bool = False
) -> Iterator[Mapping[str, Any]]:
    """Yield the custom resources: one Server, and all that it may run on."""
    load, name = request.load, object_name(request.name)
    for group, _ in estimates:
        spec = AcceleratorSpec.json_of(
            name=group.name,
            type=group.card.name,
            multiplicity=group.cards,
            cost=round((group.price or 0.0) * group.cards * CENTS, 4),
        )
        yield Accelerator.json_of(
            metadata=Metadata.json_of(name=object_name(group.name)), spec=spec
        )
    # The cards of a replica are those of the accelerator, so that a card may stand there with
    # several numbers of them.
    data = [{**each.data(), "acc": group.name, "accCount": 1} for group, each in estimates]
    transfer = None
    if apart:
        prefill = {"role": "Prefill", "maxBatchSize": PREFILL_BATCH, "maxNumSeqs": PREFILL_BATCH}
        data += [{**each, **role} for each in data for role in (prefill, {"role": "Decode"})]
        # One number for all: that of the fewest cards, each of which sends most.
        bytes_of_token = max(
            each.roofline.cached_bytes(load.input_tokens) / load.input_tokens
            for _, each in estimates
        )
        transfer = {"perRequestMs": HANDOVER_MS, "perTokenMs": bytes_of_token / NETWORK / 1e6}
    spec = ModelSpec.json_of(name=request.name, transfer=transfer, data=data)
    yield Model.json_of(metadata=Metadata.json_of(name=name), spec=spec)
    target = {"model": request.name, "slo-itl": load.itl_ms, "slo-ttft": load.ttft_ms}
    yield ServiceClass.json_of(
        metadata=Metadata.json_of(name=object_name(SERVICE_CLASS)),
        spec={"name": SERVICE_CLASS, "priority": 1, "data": [target]},
    )
    traffic = {
        "arrivalRate": float(f"{load.rate * 60:.12g}"),
        "avgInTokens": load.input_tokens,
        "avgOutTokens": load.output_tokens,
    }
    yield Server.json_of(
        metadata=Metadata.json_of(name=name),
        spec={
            "name": request.name,
            "class": SERVICE_CLASS,
            "model": request.name,
            "currentAlloc": {"accelerator": "", "numReplicas": 0, "load": traffic},
        },
    )
    yield Optimizer.json_of(
        metadata=Metadata.json_of(name="inferno"),
        spec={"optimize": False, "data": {"optimizer": {"unlimited": True}}},
    )


def gather_groups(
    hardware: KnownHardware,
    names: Sequence[str],
    counts: Sequence[int],
    own: OwnCard,
    prices: Path | None,
    currency: str,
) -> Sequence[CardGroup]:
    """Return the cards of these names, or all, in each number, with their prices.

    Raises InputError if a name is not known, or the own card or a price cannot be used.
    """
    chosen = {card.name: card for card in map(hardware.card, names)}
    cards = list(chosen.values()) or list(hardware.accelerators)
    own.refuse_figures_without_name()
    if own.name:
        cards.append(own.build(hardware))
    own_prices = dict(_read_prices(prices, cards))
    if own.price is not None:
        own_prices[own.name] = _require_price("--price", own.price)
    is_usd = currency == "USD"  # as the prices of the catalogue are
    return [
        CardGroup(card, count, own_prices.get(card.name, card.price if is_usd else None))
        for card in cards
        for count in sorted(set(counts))
    ]


def _read_prices(file: Path | None, cards: Sequence[Card]) -> Iterator[tuple[str, float]]:
    """Yield the prices of a file with the names of the cards."""
    if file is None:
        return
    try:
        found = yaml.safe_load(read_text(str(file)))
    except yaml.YAMLError as error:
        raise InputError(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise InputError(f"{file}: not lines such as H100: 2.50")
    names = {card.name.casefold(): card.name for card in cards}
    for card, price in found.items():
        if (name := names.get(str(card).casefold())) is None:
            near = alternatives(str(card), list(names.values()))
            raise InputError(f"{file}: {card}: no such card{near}")
        yield name, _require_price(f"{file}: {card}", price)


def _require_price(place: str, price: object) -> float:
    """Return a price; the message about what is none begins with its place."""
    if isinstance(price, int | float) and not isinstance(price, bool) and 0 <= price < math.inf:
        return float(price)
    raise InputError(f"{place}: {price!r} is no price, such as 2.50")
