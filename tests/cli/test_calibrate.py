"""`inferno calibrate` on runs of engines with known parameters; see tests/data/calibration."""

import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.cli.program import ROOT, inferno

DATA = ROOT / "tests/data/calibration"
NAMES = ("--model", "meta-llama/Llama-3.1-8B", "--accelerator", "H100")
TRUTH = {
    "llama-8b-h100.csv": (7.0, 0.05, 12.0, 0.00005),
    "vllm-bench.json": (7.0, 0.05, 12.0, 0.00005),
    "granite-13b-a100.csv": (15.0, 0.4, 10.0, 0.001),
}


@pytest.mark.parametrize("file", TRUTH)
def test_the_parameters_are_those_of_the_engine(file: str) -> None:
    printed = inferno("calibrate", DATA / file, *NAMES)

    found = re.findall(r"(?:alpha|beta|gamma|delta) ([\d.e-]+) ±", printed.stdout.decode())
    assert [float(value) for value in found] == pytest.approx(TRUTH[file], rel=0.05)
    assert (printed.returncode, printed.stderr) == (0, b"")


@pytest.mark.parametrize("file", TRUTH)
def test_what_it_prints_is_a_model_that_can_be_used(file: str) -> None:
    printed = inferno("calibrate", DATA / file, *NAMES, "--max-batch-size", "32")
    (model,) = yaml.safe_load_all(printed.stdout)
    (data,) = model["spec"]["data"]

    alpha, beta, _, _ = TRUTH[file]
    assert (model["spec"]["name"], data["acc"]) == ("meta-llama/Llama-3.1-8B", "H100")
    assert (data["maxBatchSize"], data["accCount"]) == (32, 1)
    assert data["decodeParms"]["alpha"] < alpha  # a chord, steeper by the waits for prefills
    assert data["decodeParms"]["beta"] > beta


def test_runs_at_one_concurrency_are_refused_with_the_run_that_would_help() -> None:
    printed = inferno("calibrate", DATA / "one-concurrency.csv", *NAMES, "--max-batch-size", "64")

    assert printed.returncode == 1
    assert printed.stdout == b""
    assert printed.stderr.decode().startswith("inferno: NoSpread: all batches are of 16, ")
    assert "help most: concurrency 64, 513 input tokens, 128 output" in printed.stderr.decode()
    assert printed.stderr.count(b"\n") == 1
    page = (ROOT / "docs/guides/calibration.md").read_text()
    assert " ".join(printed.stderr.decode().split()) in " ".join(page.split())


def test_a_run_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    text = (DATA / "llama-8b-h100.csv").read_text()
    file = tmp_path / "runs.csv"
    file.write_text(f"{text}0.5,512,128,7,12\n")

    printed = inferno("calibrate", file, *NAMES)

    assert printed.returncode == 0
    assert printed.stderr.decode() == f"warning: {file}:9: is not used: Invalid\n"


H100 = ROOT / "tests/data/h100"
"""Runs of a real engine, which mixes prefills with decode steps."""


def test_runs_of_an_engine_that_mixes_prefills_with_decode_steps_give_step_parameters() -> None:
    printed = inferno("calibrate", H100 / "closed-512-128.csv", *NAMES)
    (data,) = yaml.safe_load(printed.stdout)["spec"]["data"]

    steps = data["stepParms"]
    assert steps["alpha"] == pytest.approx(9.01, rel=0.02)  # a regression over the single steps
    assert steps["ahead"] == pytest.approx(1, abs=0.05)  # the engine is one step ahead
    assert "decodeParms" not in data
    assert b"stepParms 1.2%, decodeParms 4.5%" in printed.stdout
    assert b"hold for 250 to 1150 input and 58 to 267 output tokens" in printed.stdout
    assert (printed.returncode, printed.stderr) == (0, b"")


def test_a_parameter_that_the_runs_hardly_tell_is_marked() -> None:
    """With one shape alone the context grows with the batch as the work of the prompts does."""
    one, three = (
        inferno("calibrate", H100 / f"closed-{runs}.csv", *NAMES).stdout.decode().splitlines()
        for runs in ("512-128", "all")
    )

    (marked,) = (line.split() for line in one if "hardly known" in line)
    assert marked[0] == "kappa:"
    assert 0.5 * float(marked[1]) < float(marked[4].rstrip(",;"))
    assert marked[-6:] == ["at", "most", "13%", "of", "a", "time"]
    assert not any("hardly known" in line for line in three)


def test_a_run_that_is_three_times_off_is_named_and_does_not_spoil_the_rest(tmp_path: Path) -> None:
    text = (H100 / "closed-512-128.csv").read_text()
    file = tmp_path / "runs.csv"
    file.write_text(text.replace("10.266,43.652", "10.266,130.956"))

    printed, clean = (
        inferno("calibrate", runs, *NAMES) for runs in (file, H100 / "closed-512-128.csv")
    )

    found, expected = (
        yaml.safe_load(run.stdout)["spec"]["data"][0]["stepParms"] for run in (printed, clean)
    )
    assert found["alpha"] == pytest.approx(expected["alpha"], rel=0.01)
    assert found["delta"] == pytest.approx(expected["delta"], rel=0.01)
    assert printed.stderr.decode().startswith(f"warning: {file}:5: is far from what fits the other")
    assert printed.stderr.count(b"\n") == 1


def test_what_calibrate_prints_draws_no_warning_of_memory() -> None:
    printed = inferno("calibrate", H100 / "closed-all.csv", *NAMES)
    (data,) = yaml.safe_load(printed.stdout)["spec"]["data"]

    kept = data["maxBatchSize"] * (884 + 134)  # the mean lengths of the runs
    assert kept <= data["maxTokens"]


def answer_for(
    printed: bytes, folder: Path, inputs: int, outputs: int
) -> subprocess.CompletedProcess[bytes]:
    """What is explained of a server with the printed Model and requests of these lengths."""
    (model,) = yaml.safe_load_all(printed)
    load = {"arrivalRate": 60, "avgInTokens": inputs, "avgOutTokens": outputs}
    current = {"accelerator": "", "numReplicas": 0, "maxBatch": 0, "cost": 0, "load": load}
    name = model["spec"]["name"]
    specs = {
        "Accelerator": {"name": "H100", "type": "H100", "cost": 100},
        "Capacity": {"count": [{"type": "H100", "count": 1000}]},
        "ServiceClass": {
            "name": "c",
            "priority": 1,
            "data": [{"model": name, "slo-itl": 200, "slo-ttft": 9000}],
        },
        "Server": {"name": "s", "class": "c", "model": name, "currentAlloc": current},
    }
    objects = [
        {"apiVersion": model["apiVersion"], "kind": k, "metadata": {"name": "x"}, "spec": spec}
        for k, spec in specs.items()
    ]
    (folder / "fleet.yaml").write_text(yaml.safe_dump_all([model, *objects]))
    done = inferno("explain", folder / "fleet.yaml", "s")
    assert done.returncode == 0, done.stderr
    return done


RUNS = [H100 / "closed-512-128.csv", H100 / "closed-all.csv", DATA / "llama-8b-h100.csv"]


@pytest.mark.parametrize("file", RUNS, ids=lambda file: file.name)
def test_what_is_printed_draws_no_warning_at_the_lengths_of_the_runs(
    file: Path, tmp_path: Path
) -> None:
    printed = inferno("calibrate", file, *NAMES).stdout
    (length,) = re.findall(rb"(\d+) input and (\d+) output tokens.\n# Median", printed)

    for factor in (0.6, 1.0, 1.7):
        found = answer_for(printed, tmp_path, *(round(factor * int(tokens)) for tokens in length))
        assert b"warning" not in found.stdout


def test_lengths_beyond_the_runs_are_warned_of_in_one_line(tmp_path: Path) -> None:
    printed = inferno("calibrate", H100 / "closed-512-128.csv", *NAMES).stdout

    found = answer_for(printed, tmp_path, 6000, 1000)

    (line,) = [line for line in found.stdout.decode().splitlines() if "warning" in line]
    assert line == (
        "warning: the load (6000 in, 1000 out) is outside the range in which stepParms of model"
        " 'meta-llama/Llama-3.1-8B' on H100 were measured (250 to 1150 in, 58 to 267 out):"
        " calibrate with such requests"
    )


def test_the_plot_has_every_run_and_the_lines(tmp_path: Path) -> None:
    file = tmp_path / "fit.svg"

    inferno("calibrate", DATA / "llama-8b-h100.csv", *NAMES, "--plot", file)

    picture = ET.fromstring(file.read_text())  # noqa: S314 - written by the program
    marks = [element.get("class") for element in picture.iter() if element.get("class")]
    assert marks.count("used") == 14  # seven runs, in two panels
    assert marks.count("line") == marks.count("band") == 2


def test_a_plot_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "missing" / "fit.svg"

    printed = inferno("calibrate", DATA / "llama-8b-h100.csv", *NAMES, "--plot", file)

    assert printed.returncode == 2
    assert printed.stderr.decode() == f"inferno: {file}: No such file or directory\n"


REPLICAS = ("--labels", "namespace=prod,model_name=llama-8b")
NOWHERE = ("--prometheus", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "what was measured? Give files, or --prometheus and --labels"),
        (NOWHERE, "what was measured? Give files, or --prometheus and --labels"),
        (REPLICAS, "where is Prometheus? Give --prometheus URL"),
        ((*REPLICAS, *NOWHERE, "runs.csv"), "give either files, or --prometheus and --labels"),
        ((*NOWHERE, "runs.csv"), "give either files, or --prometheus and --labels"),
        ((*NOWHERE, "--labels", "llama"), "--labels 'llama': expected NAME=VALUE,NAME=VALUE"),
        ((*NOWHERE, "--labels", "a b=c"), "--labels: 'a b' is not a name of a label"),
        ((*REPLICAS, "--prometheus", "prometheus:9090"), "--prometheus: 'prometheus:9090'"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    printed = inferno("calibrate", *arguments, *NAMES)

    assert (printed.returncode, printed.stdout) == (2, b"")
    assert message in printed.stderr.decode()
    assert printed.stderr.count(b"\n") == 1


def test_a_prometheus_that_does_not_answer_is_one_line() -> None:
    printed = inferno("calibrate", *REPLICAS, *NOWHERE, *NAMES)

    assert (printed.returncode, printed.stdout) == (1, b"")
    assert printed.stderr.decode().startswith("inferno: http://127.0.0.1:1: Prometheus does not ")
    assert printed.stderr.count(b"\n") == 1


def test_the_picture_of_the_guide_is_what_is_drawn(tmp_path: Path) -> None:
    file = tmp_path / "fit.svg"

    inferno("calibrate", DATA / "llama-8b-h100.csv", *NAMES, "--plot", file)

    assert (ROOT / "docs/pictures/calibration.svg").read_text() == file.read_text()
