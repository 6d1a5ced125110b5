"""`inferno size`: one model and one load on every card, without a file."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferno_operator.cli.catalogue import (
    KnownModel,
    read_catalogue,
    read_hardware,
    read_models,
)
from inferno_operator.cli.options import parse_duration_ms, parse_rate
from inferno_operator.cli.sizing import CardGroup, SizeRequest, WantedLoad, size
from inferno_optimizer.errors import InputError
from tests.cli.program import ROOT, inferno

OWN_CARD = ["Qwen3-8B", "--card", "X1", "--memory", "80", "--bandwidth", "3350", "--tflops", "989"]
LOAD = ("--rate", "7/s", "--input", "1000", "--output", "300", "--ttft", "500ms", "--itl", "40ms")


@cache
def sizing(*arguments: str | Path) -> dict[str, Any]:
    """Return the result as JSON."""
    printed = inferno("size", *arguments, "-o", "json")
    assert printed.returncode == 0, printed.stderr
    found: dict[str, Any] = json.loads(printed.stdout)
    return found


def options(*arguments: str | Path) -> list[dict[str, Any]]:
    """Return all options."""
    found: list[dict[str, Any]] = sizing(*arguments)["options"]
    return found


def test_the_cheapest_that_holds_the_targets_comes_first_and_the_others_say_why_not() -> None:
    found = options("Qwen3-32B", *LOAD)

    held = [each for each in found if "reason" not in each]
    priced = [each["costPerHour"] for each in held if each["costPerHour"] is not None]
    assert priced == sorted(priced)
    assert all(each["itlMs"] <= 40 and each["ttftMs"] <= 500 for each in held)
    assert {each["type"] for each in found} == {c.name for c in read_hardware().accelerators}
    reasons = {each["accelerator"]: each["reason"] for each in found if "reason" in each}
    assert reasons["A100"].startswith("cannot meet --itl: ")
    assert reasons["L4"].startswith("the weights take 66 GB, and 22 GB can be used")


def test_replicas_serve_the_rate_and_cost_follows_from_the_price_of_a_card() -> None:
    [found] = options("Qwen3-8B", "--rate", "40/s", "--accelerator", "h100", "--cards", "1")

    price = next(card.price for card in read_hardware().accelerators if card.name == "H100")
    assert price is not None
    assert (
        (found["replicas"] - 1) * found["maxRate"] < 40 * 60 <= found["replicas"] * found["maxRate"]
    )
    assert found["costPerHour"] == pytest.approx(found["cards"] * price)
    tokens = 40 * 3600 * 300
    assert found["costPerMillionOutputTokens"] == pytest.approx(found["costPerHour"] / tokens * 1e6)


PUBLISHED = {figures.model: figures.data[0] for figures in read_catalogue().figures}
H100_ALONE = ("--accelerator", "H100", "--cards", "1")


@pytest.mark.parametrize(
    ("dtype", "measured"),
    [("", "Qwen/Qwen3-8B"), ("bf16", "Qwen/Qwen3-8B"), ("fp8", "Qwen/Qwen3-8B-FP8")],
)
def test_what_others_have_measured_replaces_the_estimate(dtype: str, measured: str) -> None:
    precision = ("--dtype", dtype) if dtype else ()
    printed = inferno("size", "Qwen3-8B", *LOAD, *H100_ALONE, *precision).stdout.decode()
    fleet = inferno("size", "Qwen3-8B", *LOAD, *H100_ALONE, *precision, "-o", "yaml").stdout

    [model] = [each for each in yaml.safe_load_all(fleet) if each["kind"] == "Model"]
    [given] = model["spec"]["data"]
    steps = PUBLISHED[measured].step_parms
    assert steps is not None
    assert (given["stepParms"], given["origin"]) == (steps.to_json(), "published")
    [row] = [line for line in printed.splitlines() if line.startswith("H100 ")]
    assert row.endswith("  measured")
    assert f"H100: measured by others, see `inferno catalogue show {measured}`" in printed
    assert inferno("catalogue", "show", measured).returncode == 0
    assert "Estimated from data sheets" not in printed


@pytest.mark.parametrize(
    "arguments",
    [
        (*H100_ALONE, "--input", "100"),  # shorter than what was measured
        (*H100_ALONE, "--kv-dtype", "fp8"),
        (*H100_ALONE, "--model-config", ROOT / "samples/catalogue/config.json"),
        ("--accelerator", "H100", "--cards", "2"),
        ("--accelerator", "H200", "--cards", "1"),
    ],
)
def test_what_was_measured_of_something_else_replaces_no_estimate(
    arguments: tuple[str | Path, ...],
) -> None:
    [found] = options("Qwen3-8B", *arguments)

    assert found["origin"] == "estimated"
    assert found["errorPercent"] > 0


def test_the_fleet_that_it_prints_is_planned_as_it_says(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_bytes(inferno("size", "Qwen3-32B", *LOAD, "-o", "yaml").stdout)

    planned = json.loads(inferno("plan", file, "-o", "json").stdout)

    best = options("Qwen3-32B", *LOAD)[0]
    [given] = planned["allocations"].values()
    assert (given["accelerator"], given["numReplicas"]) == (best["accelerator"], best["replicas"])
    assert given["cost"] == pytest.approx(100 * best["costPerHour"])
    costs = [
        each["spec"]["cost"]
        for each in yaml.safe_load_all(file.read_text())
        if each["kind"] == "Accelerator"
    ]
    assert all(cost > 0 for cost in costs), "a card without a price would be free of charge"


def test_prefill_and_decode_are_apart_where_that_costs_less(tmp_path: Path) -> None:
    """Long prompts, and a tight inter-token latency."""
    load = ("--rate", "3/s", "--input", "8000", "--output", "300", "--ttft", "2s", "--itl", "30ms")
    file = tmp_path / "fleet.yaml"
    file.write_bytes(inferno("size", "Qwen3-32B", *load, "-o", "yaml").stdout)

    apart = sizing("Qwen3-32B", *load)["apart"]
    planned = json.loads(inferno("plan", file, "-o", "json").stdout)

    assert apart["costPerHour"] < options("Qwen3-32B", *load)[0]["costPerHour"]
    assert apart["ttftMs"] <= 2000
    assert apart["itlMs"] <= 30
    [given] = planned["allocations"].values()
    assert given["roles"].keys() == {"prefill", "decode"}
    assert given["cost"] == pytest.approx(100 * apart["costPerHour"])
    printed = inferno("size", "Qwen3-32B", *load).stdout.decode()
    assert "\ncheaper with prefill and decode apart: " in printed


def test_a_card_and_prices_of_ones_own(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("X1: 0.5\nH100: 1.25\n")
    card = ("--card", "X1", "--memory", "80", "--bandwidth", "3350", "--tflops", "989.4")
    only = ("--accelerator", "H100", "--cards", "1")

    own, known = sorted(
        options("Qwen3-14B", *card, *only, "--prices", prices), key=lambda each: each["costPerHour"]
    )

    assert (own["type"], known["type"]) == ("X1", "H100")
    assert own["itlMs"] == pytest.approx(known["itlMs"], rel=1e-3)
    assert (own["costPerHour"], known["costPerHour"]) == (0.5, 1.25)


@pytest.mark.parametrize("lines", ["H10O: 2", "H100: .inf", "H100: true", "- H100", "H100: two"])
def test_prices_that_cannot_be_meant_are_refused(lines: str, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(lines)

    printed = inferno("size", "Qwen3-8B", "--prices", prices)

    assert printed.returncode == 2
    [line] = printed.stderr.decode().splitlines()
    assert line.startswith(f"inferno: {prices}: ")


@pytest.mark.parametrize("arguments", [("--currency", "EUR"), ("--accelerator", "MI325X")])
def test_without_any_price_the_fewest_cards_come_first(arguments: tuple[str, ...]) -> None:
    found = options("Qwen3-8B", *arguments, "--rate", "1e-9/s")

    assert {each["costPerHour"] for each in found if "reason" not in each} == {None}
    assert found[0]["cards"] == 1


def test_the_price_of_a_card_is_found_in_either_case(tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("h100: 1.25\n")
    twice = ("--accelerator", "H100", "--accelerator", "h100", "--cards", "1")

    [found] = options("Qwen3-8B", *twice, "--prices", prices)

    assert found["costPerHour"] == 1.25


def test_cards_that_cannot_share_a_model_hide_no_other_reason() -> None:
    found = options("Llama-3.3-70B", "--cards", "3", "--cards", "1", "--accelerator", "H100",
                    "--accelerator", "B200")  # fmt: skip

    reasons = [each["reason"] for each in found if each["type"] == "H100"]
    assert reasons[0].startswith("the weights take 141 GB")
    assert reasons[1] == "3 cards cannot share 64 heads"


def test_prices_in_another_currency_are_not_mixed_with_those_of_the_catalogue(
    tmp_path: Path,
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text("H100: 1.25\n")

    found = options("Qwen3-8B", "--prices", prices, "--currency", "EUR")

    assert {each["type"] for each in found if each.get("costPerHour")} == {"H100"}


def test_the_table_has_each_card_once_and_all_has_every_number_of_cards() -> None:
    few = inferno("size", "Qwen3-32B", *LOAD).stdout.decode()
    whole = inferno("size", "Qwen3-32B", *LOAD, "--all").stdout.decode()

    assert few.startswith("Qwen3-32B: 7 requests/s of 1000 input and 300 output tokens")
    assert "USD/HOUR" in few
    assert sum(line.startswith(("H100 ", "2xH100 ", "4xH100 ")) for line in few.splitlines()) == 1
    assert sum(line.startswith(("H100 ", "2xH100 ", "4xH100 ")) for line in whole.splitlines()) == 3
    assert ": --all" in few
    assert ": --all" not in whole


def test_the_picture_names_what_nothing_else_beats(tmp_path: Path) -> None:
    picture = tmp_path / "size.svg"

    assert inferno("size", "Qwen3-32B", *LOAD, "--plot", picture).returncode == 0

    drawn = picture.read_text()
    assert drawn.startswith("<svg ")
    assert ">4xMI300X</text>" in drawn
    assert "USD/hour" in drawn


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*OWN_CARD, "--link", "0"], "--card X1: --link: must be above 0, not 0"),
        ([*OWN_CARD, "--bandwidth", "inf"], "--card X1: --bandwidth: must be above 0, not inf"),
        ([*OWN_CARD, "--price", "nan"], "--price: nan is no price"),
        ([*OWN_CARD, "--card", "h100"], "--card h100: the catalogue has it; choose another name"),
        (["Qwen3-8B", "--rate", "1e400/s"], "--rate: '1e400/s' is not a rate"),
        (["Kimi-K2", "--cards", "1", "--accelerator", "L4"], "Kimi-K2 runs on none of the cards"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str) -> None:
    printed = inferno("size", *arguments)

    assert printed.returncode == 2
    [line] = printed.stderr.decode().splitlines()
    assert line.startswith(f"inferno: {message}")


@pytest.mark.parametrize("model", read_models().models, ids=lambda model: model.name)
def test_every_model_fits_somewhere(model: KnownModel) -> None:
    hardware = read_hardware()
    load = WantedLoad(1.0, 1000, 300, ttft_ms=60_000, itl_ms=1000)
    request = SizeRequest(model.name, model.config, model.name, "", "bf16", load)
    cards = [
        CardGroup(each, count, each.price) for each in hardware.accelerators for count in (1, 8)
    ]

    found = size(request, cards, hardware).sized

    assert len(found) == len(cards)
    assert not found[0].reason
    assert found[0].cost is not None


@pytest.mark.parametrize(
    ("text", "expected"), [("40ms", 40.0), ("1.5s", 1500.0), (" 2 s ", 2000.0), ("900us", 0.9)]
)
def test_a_duration_has_a_unit(text: str, expected: float) -> None:
    assert parse_duration_ms(text, "--itl") == pytest.approx(expected)


@pytest.mark.parametrize(("text", "expected"), [("7/s", 7.0), ("420/min", 7.0), ("7 rps", 7.0)])
def test_a_rate_has_a_unit(text: str, expected: float) -> None:
    assert parse_rate(text, "--rate") == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "7", "-1/s", "seven/s", "7/fortnight", "nan/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a rate"):
        parse_rate(text, "--rate")
