"""`inferno catalogue`: what others have published, with its source."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml

from inferno_operator.cli.catalogue import read_catalogue, read_models
from inferno_operator.resources import PerformanceData
from inferno_optimizer.sizing.queueing import FloatArray
from tests.cli.program import ROOT, inferno
from tests.published.measured import Point, points

MODELS = sorted({figures.model for figures in read_catalogue().figures})


def test_every_figure_has_a_source_with_its_date() -> None:
    catalogue = read_catalogue()

    assert {figures.source for figures in catalogue.figures} == catalogue.sources.keys()
    assert all(source.date and source.url for source in catalogue.sources.values())


def test_the_list_has_every_model_and_says_that_it_is_a_start() -> None:
    printed = inferno("catalogue", "list").stdout.decode()

    assert all(model in printed for model in MODELS)
    assert "a start: calibrate your own" in printed


def test_a_model_is_shown_with_what_is_known_of_its_figures() -> None:
    printed = inferno("catalogue", "show", "llama_13b").stdout.decode()

    assert "A100             1  20.13  0.87     32        512  sample-data" in printed
    assert "scaled by the bandwidth, not measured" in printed


def test_notes_are_lines_that_fit_beside_the_navigation_of_the_documentation() -> None:
    figures = inferno("catalogue", "show", "Qwen/Qwen3-8B").stdout.decode()
    cards = inferno("catalogue", "accelerators").stdout.decode()
    note = read_catalogue().sources["silybench"].note

    assert note in " ".join(figures.split())
    lines = [line for line in (figures + cards).splitlines() if "https://" not in line]
    assert max(map(len, lines)) <= 90


@pytest.mark.parametrize("model", MODELS)
def test_what_is_shown_as_yaml_can_be_planned_with(model: str, tmp_path: Path) -> None:
    file = tmp_path / "model.yaml"
    file.write_bytes(inferno("catalogue", "show", model, "-o", "yaml").stdout)

    planned = inferno("plan", file, "-o", "json")

    assert yaml.safe_load(file.read_text())["spec"]["name"] == model
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["allocations"] == {}


def test_an_unknown_model_is_refused_with_similar_names() -> None:
    printed = inferno("catalogue", "show", "llama_13")

    assert printed.returncode == 2
    assert printed.stderr.decode().startswith(
        "inferno: the catalogue has no model 'llama_13'; did you mean llama_13b"
    )


def estimate(*options: str | Path) -> subprocess.CompletedProcess[bytes]:
    return inferno("catalogue", "estimate", *options)


def test_an_estimate_can_be_planned_with_and_says_that_it_is_one(tmp_path: Path) -> None:
    file = tmp_path / "model.yaml"
    printed = estimate("--model", "Qwen3-32B", "--accelerator", "H200")
    file.write_bytes(printed.stdout)

    planned = inferno("plan", file, "-o", "json")

    assert printed.stdout.startswith(b"# Estimated from data sheets, not measured")
    assert b"# Expected error (11 published measurements of models without" in printed.stdout
    assert yaml.safe_load(file.read_text())["spec"]["data"][0]["acc"] == "H200"
    assert planned.returncode == 0, planned.stderr


def test_a_config_of_ones_own_is_estimated_as_the_one_that_is_known(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    known = read_models().model("Qwen3-30B-A3B")
    file.write_text(json.dumps(known.config))
    options = ("--model", known.name, "--accelerator", "B200")

    assert estimate(*options, "--model-config", file).stdout == estimate(*options).stdout


def test_a_model_has_its_figures_on_several_accelerators() -> None:
    cards = ("--accelerator", "H100", "--accelerator", "H200")
    counts = ("--accelerator-count", "2", "--accelerator-count", "1")
    model = ("--model", "Llama-3.3-70B", "--dtype", "fp8")

    printed = estimate(*model, *cards, *counts).stdout

    spec = yaml.safe_load(printed)["spec"]
    assert spec["name"] == "Llama-3.3-70B"
    assert [(data["acc"], data["accCount"]) for data in spec["data"]] == [("H100", 2), ("H200", 1)]
    alone = estimate(*model, *cards[2:], *counts[2:]).stdout
    assert spec["data"][1:] == yaml.safe_load(alone)["spec"]["data"]
    assert [
        line.partition(" published")[0] for line in printed.decode().splitlines() if "# " in line
    ] == [
        "# Estimated from data sheets, not measured: calibrate with `inferno calibrate`.",
        "# Expected error (26",
        "# Expected error (11",
    ]


@pytest.mark.parametrize("name", ["Llama-3.3-70B", "meta-llama/Llama-3.1-70B"])
def test_a_model_is_known_by_its_repository_and_by_models_of_its_shape(name: str) -> None:
    assert read_models().model(name).name == "Llama-3.1-70B"


def test_a_card_that_nobody_measured_is_told() -> None:
    printed = estimate("--model", "gpt-oss-20b", "--accelerator", "TPU-v6e", "-o", "table")

    assert b"None of the published measurements is of TPU-v6e." in printed.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--model", "Qwen3-8B", "--accelerator", "MI300"), "did you mean MI300X"),
        (("--model", "Qwen38B", "--accelerator", "H100"), "did you mean Qwen3-8B"),
        (
            ("--model", "Llama-3.1-70B", "--accelerator", "H100"),
            "Llama-3.1-70B on 1 x H100: the weights take 141 GB, and 72 GB can be used",
        ),
        (("--model", "Qwen3-8B", "--accelerator", "H100", "--dtype", "fp4"), "did you mean"),
        (("--model", "Qwen3-8B", "--accelerator", "H100", "--kv-dtype", "f8"), "--kv-dtype: 'f8'"),
        (("--accelerator", "H100"), "name a model with --model"),
        (("--model", "Qwen3-8B", *("--accelerator", "L4") * 2), "L4 is named twice"),
        (
            (*("--model", "Qwen3-8B", "--accelerator", "L4"), *("--accelerator-count", "1") * 2),
            "--accelerator-count: 2 counts for 1 accelerators",
        ),
        (
            ("--model", "Qwen3-8B", "--accelerator", "L4", "--input-tokens", "90000"),
            "no request of 90256 tokens fits into the cache",
        ),
    ],
)
def test_what_cannot_be_estimated_is_refused_in_a_line(options: tuple[str, ...], said: str) -> None:
    printed = estimate(*options)

    assert printed.returncode == 2
    assert said in printed.stderr.decode()
    assert printed.stderr.count(b"\n") == 1


def test_cards_and_models_are_listed_with_their_sources() -> None:
    cards = inferno("catalogue", "accelerators").stdout.decode()
    models = inferno("catalogue", "models").stdout.decode()

    assert (
        "MI300X        192  5300   1307.4  2614.9    448   750   2.59  mi300x, digitalocean"
        in cards
    )
    assert "mi355x: AMD Instinct MI355X data sheet; 2025" in cards
    assert all(model.name in models for model in read_models().models)


RUNS = {
    "llama-3-8b-2xa100-bf16": ("meta-llama/Meta-Llama-3-8B", "A100", 2),
    "llama-3-70b-8xa100-bf16": ("meta-llama/Meta-Llama-3-70B", "A100", 8),
    "llama-3-70b-4xh100-bf16": ("meta-llama/Meta-Llama-3-70B", "H100", 4),
    "llama-3-70b-8xh100-fp8": ("meta-llama/Meta-Llama-3-70B-FP8", "H100", 8),
    "deepseek-r1-8xh200-fp8": ("deepseek-ai/DeepSeek-R1", "H200", 8),
    "deepseek-r1-8xmi300x-fp8": ("deepseek-ai/DeepSeek-R1", "MI300X", 8),
}
PUBLISHED = ROOT / "tests/data/published"


def listed(model: str, accelerator: str) -> PerformanceData:
    (figures,) = read_catalogue().of(model)
    return next(data for data in figures.data if data.acc == accelerator)


@pytest.mark.parametrize("name", RUNS)
def test_figures_of_runs_are_those_that_calibrate_finds(name: str) -> None:
    model, accelerator, cards = RUNS[name]
    options = ("--model", model, "--accelerator", accelerator, "--acc-count", str(cards))
    printed = inferno("calibrate", PUBLISHED / "runs" / f"{name}.csv", *options)
    (found,) = yaml.safe_load(printed.stdout)["spec"]["data"]

    known = listed(model, accelerator).to_json()
    for parms in ("decodeParms", "prefillParms"):
        assert known[parms] == pytest.approx(found[parms], rel=0.001)
    sizes = ("accCount", "maxBatchSize", "atTokens", "maxTokens")
    assert [known[size] for size in sizes] == [found[size] for size in sizes]


def test_all_published_runs_are_in_the_catalogue() -> None:
    assert {file.stem for file in (PUBLISHED / "runs").glob("*.csv")} == RUNS.keys()


@pytest.mark.parametrize(
    ("model", "dtype"), [("Qwen/Qwen3-8B", "bf16"), ("Qwen/Qwen3-8B-FP8", "fp8")]
)
def test_steps_of_an_engine_are_the_line_through_its_published_times(
    model: str, dtype: str
) -> None:
    own = [p for p in points() if p.entry.source == "silybench" and p.entry.dtype == dtype]
    steps = [p for p in own if p.time == "step"]
    requests = np.array([p.clients for p in steps], dtype=np.float64)
    context = np.array([p.input_tokens + p.output_tokens / 2 for p in steps])
    alpha, kappa, more = line(steps, np.ones_like(requests), requests * context, requests)
    prompts = [p for p in own if p.time == "ttft"]
    tokens = np.array([p.input_tokens for p in prompts], dtype=np.float64)
    _, delta = line(prompts, np.ones_like(tokens), tokens)

    known = listed(model, "H100").step_parms
    assert known is not None
    found = (known.alpha, known.kappa, known.overhead, known.delta)
    assert found == pytest.approx((alpha, kappa, more / kappa, delta), rel=0.001)


def line(measured: Sequence[Point], *columns: FloatArray) -> FloatArray:
    """The coefficients of least relative error."""
    times = np.array([point.ms for point in measured])
    design = np.stack(columns, axis=1) / times[:, None]
    return np.asarray(np.linalg.lstsq(design, np.ones_like(times))[0], dtype=np.float64)


def test_an_estimate_stays_an_estimate_in_all_that_is_made_of_it(tmp_path: Path) -> None:
    estimate = ["--model", "Qwen3-32B", "--accelerator", "H100", "--output-tokens", "256"]
    text = inferno("catalogue", "estimate", *estimate).stdout.decode()
    load = {"arrivalRate": 60, "avgInTokens": 1024, "avgOutTokens": 256}
    current = {"accelerator": "H100", "numReplicas": 1, "cost": 300, "load": load}
    objects: list[tuple[str, dict[str, object]]] = [
        ("Accelerator", {"name": "H100", "type": "H100", "cost": 300}),
        ("ServiceClass", {"name": "C", "priority": 1, "data": [{"model": "Qwen3-32B"}]}),
        ("Server", {"name": "chat", "class": "C", "model": "Qwen3-32B", "currentAlloc": current}),
        ("Capacity", {"count": [{"type": "H100", "count": 8}]}),
    ]
    head = {"apiVersion": "inferno.platform.ai/v1alpha1", "metadata": {"name": "a"}}
    rest = yaml.safe_dump_all([{**head, "kind": kind, "spec": spec} for kind, spec in objects])
    fleet, page = tmp_path / "fleet.yaml", tmp_path / "page.html"
    fleet.write_text(f"{text}---\n{rest}")
    (data,) = next(yaml.safe_load_all(text))["spec"]["data"]
    band = f"estimated: +-{data['errorPercent']} %"
    inferno("report", fleet, "--html", page)
    plan = inferno("plan", fleet).stdout.decode()
    options = inferno("explain", fleet, "chat").stdout.decode()

    assert data["origin"] == "estimated"
    assert band in plan
    assert "the data of 1 server are estimated: calibrate" in plan
    assert band in options
    assert f"estimated: ±{data['errorPercent']}\N{NO-BREAK SPACE}%" in page.read_text()


def test_published_figures_say_that_they_are() -> None:
    shown = yaml.safe_load(inferno("catalogue", "show", "llama_13b", "-o", "yaml").stdout)

    assert {item["origin"] for item in shown["spec"]["data"]} == {"published"}
