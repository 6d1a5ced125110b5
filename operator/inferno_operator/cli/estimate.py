"""`inferno catalogue estimate`: performance data of a model that nobody has measured; pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from inferno_operator.cli.offline.catalogue import Card, KnownError, KnownHardware
from inferno_operator.cli.offline.manifests import object_name
from inferno_operator.cli.offline.model_config import find_stored_precision, read_architecture
from inferno_operator.resources import (
    Metadata,
    Model,
    ModelSpec,
    PerformanceData,
    StepParms,
    parse,
)
from inferno_optimizer.calibration.roofline import (
    CACHE_BYTES,
    MAX_REQUESTS,
    PRECISIONS,
    Roofline,
)
from inferno_optimizer.errors import InputError
from inferno_optimizer.suggestions import alternatives
from inferno_optimizer.system import StepParameters

DIGITS = 4
"""Significant digits of what is printed; the error is in the second one."""


@dataclass(frozen=True, slots=True)
class EstimateRequest:
    """What an estimate is asked for.

    Attributes
    ----------
    name
        Of the model.
    config, origin
        Its config.json, and where it is from.
    cards
        Cards of a replica.
    weights, cache
        Precision of weights and cache; none: of the weights as the config.json has it.
    input_tokens, output_tokens
        Mean tokens of requests.
    """

    name: str
    config: Mapping[str, Any]
    origin: str
    cards: int
    weights: str
    cache: str
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class ModelEstimate:
    """Performance data of a model on a card, which nobody has measured.

    `batch` requests of the wanted lengths fit into a cache of `max_tokens`; `error` is what such
    estimates are off by.
    """

    wanted: EstimateRequest
    card: Card
    weights: str
    roofline: Roofline
    parameters: StepParameters
    batch: int
    max_tokens: int
    error: KnownError

    def warnings(self) -> Iterator[str]:
        """What a reader has to know of the figures, a line each."""
        yield "Estimated from data sheets, not measured: calibrate with `inferno calibrate`."
        error, cards = self.error, self.wanted.cards
        yield (
            f"Expected error ({error.entries} published measurements of {error.kind}):"
            f" median {error.median} %, worst {error.largest} %."
        )
        if error.several != (cards > 1):
            place = "multi-GPU" if cards > 1 else "single-GPU"
            yield f"There are no {place} measurements to check against."
        if not self.card.measured:
            yield f"None of the published measurements is of {self.card.name}."

    def data(self) -> Mapping[str, object]:
        """The figures, as a Model has them for an accelerator."""
        rounded = {name: _round(value) for name, value in self._step_parms().items()}
        return PerformanceData.json_of(
            acc=self.card.name,
            acc_count=self.wanted.cards,
            step_parms=StepParms.json_of(**rounded),
            max_batch_size=self.batch,
            at_tokens=self.wanted.output_tokens,
            max_tokens=self.max_tokens,
            max_num_seqs=MAX_REQUESTS,
            origin="estimated",
            error_percent=self.error.median,
        )

    def _step_parms(self) -> Mapping[str, float]:
        steps = self.parameters
        return {
            "alpha": steps.alpha,
            "kappa": steps.kappa,
            "delta": steps.delta,
            "budget": int(steps.budget),
            "overhead": steps.overhead,
            "min_in_tokens": steps.min_input_tokens,
            "max_in_tokens": steps.max_input_tokens,
            "min_out_tokens": steps.min_output_tokens,
            "max_out_tokens": steps.max_output_tokens,
        }


def estimate(wanted: EstimateRequest, card: Card, hardware: KnownHardware) -> ModelEstimate:
    """ModelEstimate the performance of a model on a card.

    Raises
    ------
    InputError
        A precision is not known, the config.json has a mistake, or the model does not fit.
    """
    model = read_architecture(wanted.config, wanted.origin)
    weights = wanted.weights or find_stored_precision(wanted.config)
    precision = replace(
        _require_known(PRECISIONS, weights, "--dtype"),
        cache=_require_known(CACHE_BYTES, wanted.cache, "--kv-dtype"),
    )
    roofline = Roofline(model, precision, card.figures, wanted.cards)
    prompt, output = wanted.input_tokens, wanted.output_tokens
    try:
        room = roofline.max_tokens(prompt + output)
    except InputError as problem:
        raise InputError(f"{wanted.name} on {wanted.cards} x {card.name}: {problem}") from problem
    batch = min(room // (prompt + output), MAX_REQUESTS)
    if batch < 1:
        raise InputError(
            f"{wanted.name} on {wanted.cards} x {card.name}: no request of {prompt + output} tokens"
            f" fits into the cache, which has room for {room}"
        )
    parameters = roofline.parameters(prompt, output, batch)
    error = hardware.error(experts=model.experts > 0, several=wanted.cards > 1)
    return ModelEstimate(wanted, card, weights, roofline, parameters, batch, room, error)


def card_counts(cards: Sequence[str], counts: Sequence[int]) -> Sequence[int]:
    """How many cards a replica has on each accelerator: one count for all, or one for each.

    Raises
    ------
    InputError
        There is another number of counts, or an accelerator is named twice.
    """
    if twice := next((card for card in cards if cards.count(card) > 1), None):
        raise InputError(f"--accelerator: {twice} is named twice; a Model has its figures once")
    if len(counts) not in (1, len(cards)):
        raise InputError(
            f"--accelerator-count: {len(counts)} counts for {len(cards)} accelerators;"
            " give one for all, or one for each"
        )
    return counts if len(counts) == len(cards) else tuple(counts) * len(cards)


def model_manifest(estimates: Sequence[ModelEstimate]) -> dict[str, Any]:
    """The manifest of a Model with its figures on each accelerator; there is one at least."""
    name = estimates[0].wanted.name
    manifest = Model.json_of(
        metadata=Metadata.json_of(name=object_name(name)),
        spec=ModelSpec.json_of(name=name, data=[estimate.data() for estimate in estimates]),
    )
    parse(manifest)
    return manifest


def list_warnings(estimates: Sequence[ModelEstimate]) -> Sequence[str]:
    """What a reader has to know of the figures, a line each and none twice."""
    lines = (line for estimate in estimates for line in estimate.warnings())
    return tuple(dict.fromkeys(lines))


def _require_known(known: Mapping[str, Any], name: str, option: str) -> Any:  # noqa: ANN401 - of either table
    if name not in known:
        raise InputError(f"{option}: {name!r} is not known{alternatives(name, list(known))}")
    return known[name]


def _round(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")
