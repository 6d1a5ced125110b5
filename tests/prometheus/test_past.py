"""What a real Prometheus has of the past: replayed, and as the guide shows it."""

import csv
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.program import inferno
from tests.controlplane.processes import Processes
from tests.engines.engine import Engine
from tests.engines.fleet import Fleet, Scrapes, Settings
from tests.engines.history import SCRAPE_INTERVAL_S, Change, in_turn, scraped
from tests.engines.prometheus import Prometheus
from tests.engines.sglang import SGLANG
from tests.engines.workload import Fixed, Workload
from tests.measured import NUMBER, answering, commands, printed, shorten, words
from tests.reference.shown import Shown

ENGINE = Engine(alpha=8.0, beta=0.1, gamma=20.0, delta=0.0008, max_batch_size=64)
WORKLOAD = Workload(Fixed(400), Fixed(150))
RATES = (4.0, 10.0, 6.0)
"""Requests/s of the Server, for 40 minutes each."""

PHASE_S = 2400
AWAY = 20 * 60, 26 * 60
"""When Prometheus has nothing of the second Server, since the begin [s]."""


@pytest.fixture(scope="module")
def past(processes: Processes, prometheus_program: Path, promtool: Path) -> Iterator[Prometheus]:
    """Two hours of a Server whose load changes, and of another one with a gap."""

    def populate(fleet: Fleet) -> Change:
        settings = Settings(ENGINE, WORKLOAD, "granite", labels={"namespace": "prod"})
        chat = fleet.add("chat", settings, replicas=2, rate=RATES[0])
        sglang = Settings(ENGINE, WORKLOAD, "qwen", SGLANG, {"namespace": "prod"})
        code = fleet.add("code", sglang, replicas=1, rate=3.0)
        change_rate = in_turn(chat, RATES, PHASE_S)

        def change(now: float) -> None:
            change_rate(now)
            if AWAY[0] <= now < AWAY[0] + SCRAPE_INTERVAL_S:
                code.set_scrapes(Scrapes.REFUSED, "code-0")
            if AWAY[1] <= now < AWAY[1] + SCRAPE_INTERVAL_S:
                code.set_scrapes(Scrapes.ANSWERED, "code-0")

        return change

    programs, seconds = (prometheus_program, promtool), len(RATES) * PHASE_S
    with scraped(processes, programs, seconds, populate, buckets=False, name="replay") as server:
        yield server


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Two measured Servers without a load, and all that they need."""
    measured = yaml.safe_load_all("\n---\n".join(p.read_text() for p in sample()))
    objects = [each for each in measured if each["kind"] != "Kustomization"]
    (chat,) = (each for each in objects if each["kind"] == "Server")
    chat["spec"]["measure"]["labels"]["model_name"] = "granite"
    code: dict[str, Any] = json.loads(json.dumps(chat))
    code["metadata"]["name"] = code["spec"]["name"] = "code"
    code["spec"]["measure"] = {
        "source": "SGLang",
        "labels": {"namespace": "prod", "model_name": "qwen"},
    }
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump_all([*objects, code]))
    return file


def sample() -> list[Path]:
    folder = Path(__file__).parents[2] / "samples/measured"
    return [path for path in folder.iterdir() if path.name != "kustomization.yaml"]


def replayed(fleet: Path, *options: str | Path) -> tuple[dict[str, Any], list[str]]:
    done = inferno("replay", fleet, "--policy", "inferno", "-o", "json", *options)
    assert done.returncode == 0, done.stderr.decode()
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("warning")]
    return json.loads(done.stdout), lines


def test_the_past_is_replayed_and_kept_to_be_replayed_again(
    past: Prometheus, fleet: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "past.csv.gz"
    where = ("--prometheus", past.url, "--from", "110m", "--to", "5m", "--keep", kept)

    online, warnings = replayed(fleet, *where)
    offline, _ = replayed(fleet, "--trace", kept)

    assert online == offline
    assert online["hours"] == pytest.approx(1.75)
    gaps = [line for line in warnings if "code: nothing from" in line]
    assert len(gaps) == 1
    assert gaps[0].endswith("the load before it is taken")


def test_what_is_read_is_what_was_sent(past: Prometheus, fleet: Path, tmp_path: Path) -> None:
    kept = tmp_path / "past.csv"
    where = ("--prometheus", past.url, "--from", "115m", "--to", "2m", "--keep", kept)

    replayed(fleet, *where)

    begin = time.time() - len(RATES) * PHASE_S
    rows = [row for row in csv.DictReader(kept.read_text().splitlines()) if row["client"] == "chat"]
    for number, rate in enumerate(RATES):
        first, last = (begin + number * PHASE_S + edge for edge in (300, PHASE_S - 300))
        phase = [row for row in rows if first <= float(row["start_s"]) <= last]
        mean = sum(float(row["rate_per_s"]) for row in phase) / len(phase)
        assert mean == pytest.approx(rate, rel=0.05)
        assert {round(float(row["input_mean"])) for row in phase} == {400}
        assert {round(float(row["output_mean"])) for row in phase} == {150}


def test_a_time_without_any_server_is_told(past: Prometheus, fleet: Path) -> None:
    done = inferno(
        *("replay", fleet, "--policy", "hpa", "--prometheus", past.url),
        *("--from", "2026-01-01", "--to", "2026-01-02"),
    )

    assert done.returncode == 2
    assert b"nothing to replay: chat: left out: nothing from 2026-01-01T00:00:00Z" in done.stderr


# What the guides to measuring and replays show is what a real Prometheus answers


@pytest.fixture(scope="module")
def prometheus(
    processes: Processes, prometheus_program: Path, promtool: Path
) -> Iterator[Prometheus]:
    """It knows the replicas of the guides."""
    with answering(processes, (prometheus_program, promtool)) as server:
        yield server


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("command", commands(), ids=str)
def test_the_guide_shows_what_is_printed_but_for_the_seconds_that_pass(
    command: Shown, prometheus: Prometheus
) -> None:
    output = printed(command, prometheus)

    page = replace(command, output=words(command.output))
    assert page.fits(words(output)), "make it anew: python -m tests.measured"
    shown = [float(number) for number in NUMBER.findall(command.output)]
    now = [float(number) for number in NUMBER.findall(shorten(output, command.output))]
    assert now == pytest.approx(shown, rel=0.2, abs=3)
