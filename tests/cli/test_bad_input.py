"""Whatever a hurried person gives the program: one readable line, status 2, no traceback."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import PROGRAM, SAMPLE, SMALL, inferno
from tests.controlplane.waiting import PATIENCE_S
from tests.full_disk import room_for


def small(**changes: object) -> str:
    """The small system with other values in the current allocation of its first server."""
    document: Any = json.loads(SMALL.read_text())
    document["system"]["serverData"]["servers"][0]["currentAlloc"] |= changes
    return json.dumps(document)


BAD_FILES = {
    "malformed.json": ('{"system": {\n  "serverData": }', "malformed.json:2:17: not valid JSON: "),
    "negative.json": (
        small(load={"arrivalRate": -1, "avgLength": 10}),
        "server 'Premium-granite-13b': currentAlloc.load.arrivalRate: -1 is negative",
    ),
    "nan.json": (
        small(cost=float("nan")),
        "server 'Premium-granite-13b': currentAlloc.cost: expected a finite number, not NaN",
    ),
    "wrong-type.json": (
        small(numReplicas="4"),
        "server 'Premium-granite-13b': currentAlloc.numReplicas: expected an integer, not \"4\"",
    ),
    "later.json": (
        '{"modelData": {"models": [{"name": "m", "acc": "A", "perfParms": {"alpha": "1"}}]}}',
        "later.json: performance data 'm/A': perfParms.alpha: expected a number, not ",
    ),
    "repeated.json": ('{"a": 1, "a": 2}', "repeated.json: not valid JSON: key 'a' occurs twice"),
    "unknown-field.json": (
        small(loda={}),
        "server 'Premium-granite-13b': currentAlloc.loda: is unknown; did you mean load?",
    ),
    "garbage.json": ("\x00\x01", "garbage.json:1:1: not valid JSON: "),
}


def assert_refused(result: subprocess.CompletedProcess[bytes], *words: str) -> None:
    """One line on standard error that has these words, and nothing else."""
    stderr = result.stderr.decode()
    assert result.returncode == 2, stderr
    assert result.stdout == b""
    assert len(stderr.splitlines()) == 1, stderr
    assert stderr.startswith("inferno: ")
    assert "Traceback" not in stderr
    for word in words:
        assert word in stderr


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_line(name: str, tmp_path: Path) -> None:
    text, message = BAD_FILES[name]
    (tmp_path / name).write_text(text)

    assert_refused(inferno("plan", name, cwd=tmp_path), message)


def test_each_invalid_object_is_a_line(tmp_path: Path) -> None:
    sample = inferno("sample").stdout
    (tmp_path / "a.yaml").write_bytes(
        sample.replace(b"cost: 320", b"cost: 32O").replace(b"cost: 399", b"cost: 3S9")
    )

    refused = inferno("plan", "a.yaml", cwd=tmp_path)

    assert refused.returncode == 2
    assert refused.stderr.decode().splitlines() == [
        "inferno: a.yaml:13: Accelerator h100: spec.cost must be a valid number, not '32O'",
        "inferno: a.yaml:22: Accelerator h200: spec.cost must be a valid number, not '3S9'",
    ]


@pytest.mark.parametrize("stdin", [b"", b"{", b"a: b: c"])
def test_bad_standard_input_is_one_line(stdin: bytes) -> None:
    assert_refused(inferno("plan", "-", stdin=stdin), "standard input")


def test_system_data_beside_manifests_is_one_line() -> None:
    assert_refused(inferno("plan", SMALL, SAMPLE), "small.json: SystemData stands alone")


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("class: premum", "class: no service class is named 'premum'; did you mean Premium?"),
        ("class: PREMIUM", "class: no service class is named 'PREMIUM'; did you mean Premium?"),
        ("class: xyz", "class: no service class is named 'xyz'; correct it or add the class"),
    ],
)
def test_a_name_that_no_object_has_gets_the_nearest_one(
    typed: str, message: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(SAMPLE, tmp_path / "fleet")
    servers = folder / "servers.yaml"
    servers.write_text(servers.read_text().replace("class: Premium", typed))

    assert message in inferno("plan", folder).stdout.decode()


def test_an_equal_note_of_two_servers_is_one_line(tmp_path: Path) -> None:
    folder = shutil.copytree(SAMPLE, tmp_path / "fleet")
    servers = folder / "servers.yaml"
    servers.write_text(servers.read_text().replace("model: granite-13b", "model: granit-13b"))

    lines = inferno("plan", folder).stdout.decode().splitlines()

    named = "named 'granit-13b'; did you mean granite-13b?"
    assert [line for line in lines if "is named" in line] == [
        f"Free-granite-13b, Premium-granite-13b: model: no model with performance data is {named}"
    ]


@pytest.mark.parametrize(
    ("condition", "line"),
    [
        ("unserved", "1 of 2 servers get less than they need: Premium-granite-13b"),
        ("invalid", "1 of 2 servers have mistakes: Premium-granite-13b"),
    ],
)
def test_a_pipeline_can_fail_on_a_plan(condition: str, line: str, tmp_path: Path) -> None:
    folder = shutil.copytree(SAMPLE, tmp_path / "fleet")
    servers = folder / "servers.yaml"

    well = inferno("plan", folder, "--fail-on", condition, "--fail-on", "gap>0.5")
    servers.write_text(servers.read_text().replace("class: Premium", "class: Premum"))
    badly = inferno("plan", folder, "--fail-on", condition)

    assert (well.returncode, well.stderr) == (0, b"")
    assert badly.returncode == 3
    assert badly.stdout.startswith(b"SERVER ")
    warning, failure = badly.stderr.decode().splitlines()
    assert warning.startswith(f"warning: {servers}:10: ")
    assert failure == f"--fail-on {condition}: {line}"


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_full_disk_is_one_line(output: str) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [PROGRAM, "plan", SAMPLE, "--output", output],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )

    assert (ran.returncode, ran.stderr) == (
        1,
        b"inferno: standard output: No space left on device\n",
    )


def test_a_page_that_finds_no_room_leaves_the_one_of_before(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    page.write_text("of before")

    with room_for(1000):
        ran = inferno("report", SAMPLE, "--html", page)

    assert ran.stderr.decode().splitlines()[-1] == f"inferno: {page}: File too large"
    assert ran.returncode == 2
    assert page.read_text() == "of before"
    assert list(tmp_path.iterdir()) == [page]


@pytest.mark.parametrize("condition", ["served", "gap", "gap>", "gap>1-", "gap>e"])
def test_an_unknown_condition_is_one_line(condition: str) -> None:
    refused = inferno("plan", SAMPLE, "--fail-on", condition)

    assert_refused(refused, f"--fail-on {condition}: give unserved, invalid or gap>X")


@pytest.mark.parametrize("arguments", [["plan"], ["explain", "Premium-granite-13b"]])
def test_an_unknown_field_is_refused_unless_leniency_is_asked_for(
    arguments: list[str], tmp_path: Path
) -> None:
    classes = (SAMPLE / "serviceclasses.yaml").read_text()
    assert "slo-itl:" in classes
    folder = shutil.copytree(SAMPLE, tmp_path / "small")
    (folder / "serviceclasses.yaml").write_text(classes.replace("slo-itl:", "slo-tpot:", 1))
    command, *server = arguments

    refused = inferno(command, folder, *server)
    lenient = inferno(command, folder, *server, "--lenient")

    message = "spec.data[0].slo-tpot is unknown; did you mean slo-itl?"
    assert_refused(refused, message, "; to ignore it: --lenient")
    assert lenient.returncode == 0
    assert lenient.stdout
    (warning,) = lenient.stderr.decode().splitlines()
    assert warning.startswith("warning: ")
    assert message in warning


def test_an_interrupt_is_quiet(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.yaml"
    os.mkfifo(fifo)
    with subprocess.Popen(
        [PROGRAM, "plan", fifo], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        with fifo.open("wb"):  # returns when the program has opened it and waits for more
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=PATIENCE_S)

        assert (process.returncode, stdout, stderr) == (130, b"", b"")


@pytest.mark.parametrize("module", ["typer", "numpy"])
def test_an_interrupt_waits_for_the_end_of_an_import_that_would_lose_it(
    module: str, tmp_path: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / f"{module}.py").write_text(
        "import sys\n"
        f"try:\n    open({str(fifo)!r}).read()\nexcept KeyboardInterrupt:\n    pass\n"
        f"sys.path.remove({str(tmp_path)!r})\ndel sys.modules[__name__]\nimport {module}\n"
    )
    with subprocess.Popen(
        [PROGRAM, "plan", "-"],  # its input does not end, so nothing else ends it
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        with fifo.open("wb"):  # returns when the module has opened it
            process.send_signal(signal.SIGINT)
        process.wait(timeout=PATIENCE_S)
        stdout, stderr = process.communicate()

        assert (process.returncode, stdout, stderr) == (130, b"", b"")


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_a_reader_that_goes_away_is_no_reason_for_noise(output: str) -> None:
    with subprocess.Popen(
        [PROGRAM, "plan", SMALL, "-o", output], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()

        assert process.stderr.read() == b""
