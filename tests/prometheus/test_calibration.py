"""Calibration from the past of replicas with known parameters, through a real Prometheus."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.cli.program import inferno
from tests.controlplane.processes import Processes
from tests.engines.engine import Engine
from tests.engines.fleet import Fleet, Settings
from tests.engines.history import Change, in_turn, scraped
from tests.engines.prometheus import Prometheus
from tests.engines.sglang import SGLANG
from tests.engines.vllm import VLLM
from tests.engines.workload import Uniform, Workload

ENGINE = Engine(alpha=8.0, beta=0.1, gamma=20.0, delta=0.0008, max_batch_size=64)
TRUTH = (8.0, 0.1, 20.0, 0.0008)
WORKLOAD = Workload(Uniform(200, 800), Uniform(50, 350))
HOURS = 1
RATES = (2.0, 12.0, 4.0, 20.0, 8.0, 24.0)
"""Requests/s that are sent to the replicas of one server, for ten minutes each."""

PREFIXED = replace(
    VLLM,
    families=tuple(
        replace(family, name=family.name.replace("vllm:", "own_vllm_")) for family in VLLM.families
    ),
)
"""vLLM as Ray tells of it."""

WARM_UP_S = 300
"""Windows of replicas that have just started are not used."""


@pytest.fixture(scope="module")
def past(processes: Processes, prometheus_program: Path, promtool: Path) -> Iterator[Prometheus]:
    """An hour of servers with changing load, with the same load all the time, and of SGLang."""

    def populate(fleet: Fleet) -> Change:
        chat = fleet.add("chat", settings("granite"), replicas=2, rate=RATES[0])
        fleet.add("steady", settings("steady"), replicas=1, rate=3.0)
        mine = Settings(ENGINE, WORKLOAD, "mine", PREFIXED, {"namespace": "prod"})
        own = fleet.add("own", mine, replicas=1, rate=RATES[0] / 2)
        sglang = Settings(ENGINE, WORKLOAD, "qwen", SGLANG, {"namespace": "prod"})
        fleet.add("code", sglang, replicas=1, rate=3.0)
        turns = in_turn(chat, RATES, 600), in_turn(own, [rate / 2 for rate in RATES], 600)

        def change(now: float) -> None:
            for turn in turns:
                turn(now)

        return change

    programs, seconds = (prometheus_program, promtool), HOURS * 3600 + WARM_UP_S
    with scraped(processes, programs, seconds, populate, buckets=False) as prometheus:
        yield prometheus


def settings(model: str) -> Settings:
    return Settings(ENGINE, WORKLOAD, model, labels={"namespace": "prod"})


def calibrate(
    prometheus: Prometheus, model: str, *more: str | Path
) -> subprocess.CompletedProcess[bytes]:
    """The command on what the replicas of a model did."""
    labels = f"namespace=prod,model_name={model}"
    where = ("--prometheus", prometheus.url, "--labels", labels, "--hours", str(HOURS))
    return inferno("calibrate", *where, "--model", model, "--accelerator", "H100", *more)


def test_the_parameters_are_those_of_the_replicas(past: Prometheus) -> None:
    printed = calibrate(past, "granite")

    assert printed.returncode == 0, printed.stderr.decode()
    found = re.findall(r"(?:alpha|beta|gamma|delta) ([\d.e-]+) ±", printed.stdout.decode())
    assert [float(value) for value in found] == pytest.approx(TRUTH, rel=0.05)
    (model,) = yaml.safe_load_all(printed.stdout)
    assert model["spec"]["name"] == "granite"
    assert "60 of 60 minutes" in printed.stderr.decode()


def test_a_source_of_ones_own_may_have_the_metrics_of_vllm_under_another_prefix(
    past: Prometheus, tmp_path: Path
) -> None:
    file = tmp_path / "sources.yaml"
    file.write_text(
        "Mine: {heartbeat: [own_vllm_num_requests_running],"
        " arrivals: [[{rate: [own_vllm_request_success_total]}]]}"
    )

    unknown = calibrate(past, "mine")
    printed = calibrate(past, "mine", "--measure-sources", file)

    assert "no vLLM replica has reported" in unknown.stderr.decode()
    assert printed.returncode == 0, printed.stderr.decode()
    found = re.findall(r"(?:alpha|beta|gamma|delta) ([\d.e-]+) ±", printed.stdout.decode())
    assert [float(value) for value in found] == pytest.approx(TRUTH, rel=0.05)


def test_the_plot_has_the_windows(past: Prometheus, tmp_path: Path) -> None:
    file = tmp_path / "fit.svg"

    calibrate(past, "granite", "--plot", file)

    picture = ET.fromstring(file.read_text())  # noqa: S314 - written by the program
    marks = [element.get("class") for element in picture.iter()]
    assert marks.count("used") > 150  # two replicas, an hour, two panels
    assert marks.count("line") == 2


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("steady", "NoSpread: "),
        ("qwen", 'no vLLM replica has reported with {namespace="prod", model_name="qwen"}'),
        ("granit", "correct --labels"),
    ],
)
def test_what_does_not_determine_the_parameters_is_refused(
    past: Prometheus, model: str, words: str
) -> None:
    printed = calibrate(past, model)

    assert (printed.returncode, printed.stdout) == (1, b"")
    assert words in printed.stderr.decode().splitlines()[-1]
