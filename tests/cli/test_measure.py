"""`inferno measure` without a Prometheus that answers: one line and a status."""

import shutil
from pathlib import Path

import pytest
import yaml

from tests.cli.program import ROOT, SAMPLE, inferno
from tests.unit.operator.adapters.prometheus.serving import serving, vector

MEASURED = ROOT / "samples/measured"
NOWHERE = ("--prometheus", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((MEASURED,), "where is Prometheus? Give --prometheus URL"),
        ((SAMPLE, *NOWHERE), "nothing to measure: no Server has spec.measure"),
        ((MEASURED, "--prometheus", "prometheus:9090"), "inferno: --prometheus: 'prometheus:9090'"),
        (("nowhere.yaml", *NOWHERE), "nowhere.yaml: No such file or directory"),
        (
            (SAMPLE, *NOWHERE, "--labels", "job=x"),
            "--labels are those of one Server, and 2 have no spec.measure",
        ),
        (
            (MEASURED, *NOWHERE, "--labels", "job=x"),
            "--labels are those of one Server, and 0 have no spec.measure",
        ),
        ((SAMPLE, *NOWHERE, "--labels", "job"), "--labels 'job': expected NAME=VALUE,NAME=VALUE"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str | Path, ...], message: str) -> None:
    printed = inferno("measure", *arguments)

    assert (printed.returncode, printed.stdout) == (2, b"")
    assert message in printed.stderr.decode()
    assert printed.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "inferno: http://127.0.0.1:1: Prometheus does not answer: connection refused\n"),
        (("--token-file", "no-such-file"), "credentials cannot be used: "),
    ],
)
def test_a_prometheus_that_cannot_be_asked_is_one_line(
    options: tuple[str, ...], message: str
) -> None:
    printed = inferno("measure", MEASURED, *NOWHERE, *options)

    assert (printed.returncode, printed.stdout) == (1, b"")
    assert message in printed.stderr.decode()
    assert printed.stderr.count(b"\n") == 1


def test_a_prometheus_that_does_not_answer_is_told_once() -> None:
    """The program itself: where the tests are, they take what is logged."""
    printed = inferno("measure", MEASURED, *NOWHERE, stdin=b"")

    assert printed.returncode == 1
    assert printed.stderr.decode() == (
        "inferno: http://127.0.0.1:1: Prometheus does not answer: connection refused\n"
    )


OWN = """
Mine:
  heartbeat: [mine_alive]
  arrivals: [[{rate: [mine_requests_total]}]]
"""


@pytest.mark.parametrize("by_option", [True, False])
@pytest.mark.parametrize("command", [("measure",), ("replay", "--from", "1h", "--step", "60")])
def test_sources_of_ones_own_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], *, by_option: bool
) -> None:
    folder = shutil.copytree(MEASURED, tmp_path / "measured")
    servers = folder / "servers.yaml"
    servers.write_text(servers.read_text().replace("source: vLLM", "source: Mine"))
    file = tmp_path / "sources.yaml"
    file.write_text(OWN)
    name, *options = command
    given = ("--measure-sources", file) if by_option else ()

    with serving() as prometheus:
        prometheus.usual = lambda _: vector()
        where = ("--prometheus", prometheus.url, *options)
        unknown = inferno(name, folder, *where)
        if not by_option:
            monkeypatch.setenv("INFERNO_MEASURE_SOURCES", str(file))
        known = inferno(name, folder, *where, *given)
        asked = "".join(map(str, prometheus.asked))

    assert b"'Mine' is unknown" in unknown.stdout + unknown.stderr
    assert b"is unknown" not in known.stdout + known.stderr
    assert "mine_alive" in asked


def test_a_file_with_sources_that_is_not_valid_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "sources.yaml"
    file.write_text("Mine: {heartbeat: []}")

    printed = inferno("measure", MEASURED, *NOWHERE, "--measure-sources", file)

    assert (printed.returncode, printed.stdout) == (2, b"")
    assert printed.stderr.decode().startswith(f"inferno: {file}: Mine.heartbeat: ")
    assert printed.stderr.count(b"\n") == 1


def test_a_server_without_a_label_is_named(tmp_path: Path) -> None:
    folder = shutil.copytree(MEASURED, tmp_path / "measured")
    servers = folder / "servers.yaml"
    text = servers.read_text()
    servers.write_text(text.replace("namespace: prod", "").replace("model_name: meta", "# meta"))

    printed = inferno("measure", folder, *NOWHERE)

    assert printed.returncode == 2
    assert "name at least one label" in printed.stderr.decode()
    assert printed.stderr.count(b"\n") == 1


def test_labels_are_those_of_the_server_that_has_no_measure(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_bytes(inferno("size", "Qwen3-8B", "--accelerator", "H100", "-o", "yaml").stdout)
    labels = ("--labels", "namespace=prod,model_name=qwen")

    with serving() as prometheus:
        prometheus.usual = lambda _: vector()
        printed = inferno("measure", file, "--prometheus", prometheus.url, *labels, "-o", "yaml")
        asked = "".join(map(str, prometheus.asked))

    objects = yaml.safe_load(printed.stdout)["items"]
    (spec,) = (each["spec"] for each in objects if each["kind"] == "Server")
    assert spec["measure"] == {
        "source": "vLLM",
        "labels": {"namespace": "prod", "model_name": "qwen"},
    }
    assert 'namespace="prod"' in asked


def test_a_load_that_is_not_known_is_a_warning_beside_the_manifests() -> None:
    with serving() as server:
        server.usual = lambda _: vector()
        printed = inferno("measure", MEASURED, "--prometheus", server.url, "-o", "yaml")
    planned = inferno("plan", "-", stdin=printed.stdout)

    assert (printed.returncode, planned.returncode) == (0, 2)
    assert b"warning: chat: no series of vllm:num_requests_running has {" in printed.stderr
    assert b"currentAlloc.load: is not measured yet; the condition Measured or `inferno" in (
        planned.stderr
    )
