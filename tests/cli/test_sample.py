"""`inferno sample`: what can be optimized right after the installation."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferno_operator.cli.catalogue import read_hardware
from tests.cli.program import ROOT, inferno

THREE_MODELS = ROOT / "samples/three-models"


@pytest.mark.parametrize(
    ("options", "folder"), [([], THREE_MODELS), (["--fleet"], ROOT / "samples/fleet")]
)
def test_a_sample_is_the_one_of_the_pages(options: list[str], folder: Path) -> None:
    order = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    files = [yaml.safe_load_all((folder / name).read_text()) for name in order]

    printed = inferno("sample", *options).stdout.decode()

    found = [each for each in yaml.safe_load_all(printed) if each]
    assert found == [found for file in files for found in file if found]


def test_the_load_is_the_one_of_the_pages() -> None:
    file = ROOT / "samples/traces/servegen-m-large.csv"

    assert inferno("sample", "--trace").stdout == file.read_bytes()
    assert inferno("sample", "--trace", "--fleet").returncode == 2


def test_what_is_printed_can_be_optimized() -> None:
    printed = inferno("sample").stdout

    planned = inferno("plan", "-", stdin=printed)

    assert planned.returncode == 0, planned.stderr
    table, *_ = planned.stdout.split(b"\n\n")
    assert inferno("plan", THREE_MODELS).stdout.startswith(table)


def test_every_server_of_the_sample_moves_to_another_card_or_needs_fewer() -> None:
    answer = json.loads(inferno("plan", THREE_MODELS, "-o", "json").stdout)

    placed = {name: a["accelerator"] for name, a in answer["allocations"].items()}
    assert placed == {"chat": "H100", "agent": "H200", "summary": "L40S"}
    assert answer["unserved"] == {}


def specs(kind: str) -> list[dict[str, Any]]:
    printed = yaml.safe_load_all((THREE_MODELS / "fleet.yaml").read_text())
    return [found["spec"] for found in printed if found["kind"] == kind]


@pytest.mark.parametrize("spec", specs("Accelerator"), ids=lambda spec: spec["name"])
def test_the_prices_of_the_sample_are_those_of_the_catalogue(spec: dict[str, Any]) -> None:
    price = read_hardware().card(spec["name"]).price

    assert price is not None
    assert spec["cost"] == pytest.approx(100 * price, rel=0.3)


@pytest.mark.parametrize("spec", specs("Model"), ids=lambda spec: spec["name"])
def test_the_models_of_the_sample_are_as_the_catalogue_estimates_them(spec: dict[str, Any]) -> None:
    (load,) = (s["currentAlloc"]["load"] for s in specs("Server") if s["model"] == spec["name"])
    options = ["--model", spec["name"].replace("Small-3.2", "Small-3.1")]
    options += ["--input-tokens", str(load["avgInTokens"])]
    options += ["--output-tokens", str(load["avgOutTokens"])]
    options += [] if "oss" in spec["name"] else ["--dtype", "fp8"]
    for pair in spec["data"]:
        options += ["--accelerator", pair["acc"], "--accelerator-count", str(pair["accCount"])]

    estimated = inferno("catalogue", "estimate", *options).stdout

    for ours, theirs in zip(spec["data"], yaml.safe_load(estimated)["spec"]["data"], strict=True):
        assert ours["stepParms"] == pytest.approx(theirs["stepParms"], rel=0.3)
        assert ours["maxBatchSize"] == pytest.approx(theirs["maxBatchSize"], rel=0.3)
