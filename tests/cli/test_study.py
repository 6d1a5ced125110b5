"""`inferno study`, as its users run it: the same result wherever it is computed, nothing twice."""

import csv
import io
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.cli.models import performing
from tests.cli.program import PROGRAM, ROOT, inferno
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.reference.shown import shown

PAGE = ROOT / "docs/guides/studies.md"

STUDY = {
    "fleets": [{"name": "episode", "paths": [str(ROOT / "samples/episode")]}],
    "traces": [{"name": "load", "file": str(ROOT / "samples/traces/slo-aware.csv")}],
    "settings": [
        {"name": "believed", "stepSeconds": 30},
        {"name": "slower", "stepSeconds": 30, "slower": 1.2},
    ],
    "policies": ["hpa", "keda-slo", "hpa@best"],
}
UNCHANGED: Mapping[str, object] = {}
REPLAYS = 8
"""Two settings with three policies and the bound."""


def study(
    folder: Path, *arguments: str, changes: Mapping[str, object] = UNCHANGED
) -> subprocess.CompletedProcess[bytes]:
    """Write and run the study with some changes."""
    (folder / "study.yaml").write_text(json.dumps({**STUDY, **changes}))
    return inferno("study", "study.yaml", *arguments, cwd=folder)


def study_on(
    scheduler: str, folder: Path, *arguments: str, path: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """The study on a Dask cluster, in a process of its own; modules of a path come first."""
    (folder / "study.yaml").write_text(json.dumps(STUDY))
    return subprocess.run(
        [PROGRAM, "study", "study.yaml", "--scheduler", scheduler, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        check=False,
    )


def told(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    """What it prints beside its progress."""
    lines = done.stderr.decode().splitlines()
    return [line for line in lines if not line.startswith("repla")]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The result as CSV from one process."""
    done = study(tmp_path_factory.mktemp("one"), "-o", "csv")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_study_has_the_figures_of_its_replays(expected: bytes) -> None:
    rows = list(csv.DictReader(io.StringIO(expected.decode())))
    replayed = inferno(
        *("replay", ROOT / "samples/episode", "--trace", ROOT / "samples/traces/slo-aware.csv"),
        *("--step", "30", "--slower", "1.2", "-o", "json"),
        *(word for name in ("hpa", "keda-slo", "hpa@best") for word in ("--policy", name)),
    )

    policies = json.loads(replayed.stdout)["policies"]
    assert len(rows) == 6
    for row, policy in zip(rows[3:], policies, strict=True):
        hours = json.loads(replayed.stdout)["hours"]
        assert row["SETTING"] == "slower"
        assert row["POLICY"] == policy["policy"]
        assert row["COST/H"] == f"{policy['cost'] / hours:.2f}"
        assert row["REGRET/H"] == f"{policy['regret'] / hours:+.2f}"
        assert row["WITHIN"] == f"{policy['within']:.2%}"
        assert row["CARDS"] == f"{policy['cardHours']['H100'] / hours:.2f}"


@pytest.mark.extended
def test_the_page_shows_what_the_study_prints(tmp_path: Path) -> None:
    done = inferno("study", ROOT / "samples/studies/slower.yaml", "--jobs", "2", cwd=tmp_path)

    (command,) = (each for each in shown(PAGE) if each.text.startswith("inferno study"))
    assert command.fits(done.stdout.decode())


@pytest.mark.extended
def test_any_number_of_processes_has_the_same_result(expected: bytes, tmp_path: Path) -> None:
    assert study(tmp_path, "-o", "csv", "--jobs", "3").stdout == expected


@pytest.fixture
def scheduler() -> Iterator[str]:
    """The address of a Dask cluster of two processes on this machine."""
    distributed = pytest.importorskip("distributed", reason="needs the extra study")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.mark.extended
def test_a_dask_cluster_has_the_same_result(
    expected: bytes, tmp_path: Path, scheduler: str
) -> None:
    done = study_on(scheduler, tmp_path, "-o", "csv")

    assert done.returncode == 0, done.stderr
    assert done.stdout == expected
    assert len((tmp_path / "study.jsonl").read_text().splitlines()) == REPLAYS


def test_what_is_known_is_not_computed_again(expected: bytes, tmp_path: Path) -> None:
    study(tmp_path)
    kept = tmp_path / "study.jsonl"
    first, *others = kept.read_text().splitlines(keepends=True)
    kept.write_text(first + "".join(others[:4]) + others[4][:20])  # a crash in the sixth

    again = study(tmp_path, "-o", "csv")

    assert again.stdout == expected
    assert sum(line.startswith("replayed") for line in again.stderr.decode().splitlines()) == 3
    assert kept.read_text().splitlines(keepends=True)[:5] == [first, *others[:4]]
    assert told(study(tmp_path)) == []


@pytest.mark.extended
def test_what_changes_is_computed_anew(tmp_path: Path) -> None:
    study(tmp_path)
    settings = [STUDY["settings"][0], {**STUDY["settings"][1], "slower": 1.3}]  # type: ignore[index]

    again = study(tmp_path, changes={"settings": settings})

    lines = [line for line in again.stderr.decode().splitlines() if line.startswith("replayed")]
    assert len(lines) == REPLAYS // 2
    assert all("slower" in line for line in lines)


@pytest.mark.extended
def test_a_policy_that_changes_is_replayed_anew(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text((ROOT / "samples/policies/melange.py").read_text())
    changes = {"policies": ["hpa", "own:Melange"]}
    study(tmp_path, changes=changes)
    own.write_text(own.read_text() + "# changed\n")

    again = study(tmp_path, changes=changes)

    lines = [line for line in again.stderr.decode().splitlines() if line.startswith("replayed")]
    assert len(lines) == len(STUDY["settings"])  # type: ignore[arg-type]
    assert all("own:Melange" in line for line in lines)


@pytest.mark.extended
def test_policies_of_a_setting_may_see_random_counts(tmp_path: Path) -> None:
    settings = [{"name": "believed", "stepSeconds": 30, "poisson": True}]
    done = study(tmp_path, "-o", "csv", changes={"settings": settings, "policies": ["inferno"]})
    replayed = inferno(
        *("replay", ROOT / "samples/episode", "--trace", ROOT / "samples/traces/slo-aware.csv"),
        *("--step", "30", "--policy", "inferno", "-o", "json"),
    )

    (row,) = csv.DictReader(io.StringIO(done.stdout.decode()))
    (exact,) = json.loads(replayed.stdout)["policies"]
    assert float(row["WITHIN"].rstrip("%")) != pytest.approx(100 * exact["within"], abs=0.005)


@pytest.mark.extended
def test_a_file_may_say_how_replicas_really_perform(expected: bytes, tmp_path: Path) -> None:
    settings = [{"name": "slower", "stepSeconds": 30, "truth": "models.json"}]
    slower = [row for row in expected.decode().splitlines() if ",believed," not in row]
    performing(tmp_path / "models.json", slower=1.2)
    found = study(tmp_path, "-o", "csv", changes={"settings": settings})

    performing(tmp_path / "models.json", slower=1.3)
    other = study(tmp_path, "-o", "csv", changes={"settings": settings})

    assert found.stdout.decode().splitlines() == slower
    assert other.stdout != found.stdout


STUCK = """\
import pathlib
import threading


class Stuck:
    def __init__(self, setting):
        pathlib.Path("stuck").touch()

    def __call__(self, seen):
        threading.Event().wait()
"""


def test_an_interrupt_keeps_what_is_done(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(STUCK)
    (tmp_path / "study.yaml").write_text(json.dumps({**STUDY, "policies": ["hpa", "mine:Stuck"]}))
    studying = subprocess.Popen(
        [PROGRAM, "study", "study.yaml"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until((tmp_path / "stuck").exists, bool, "a policy that waits")

    os.killpg(studying.pid, signal.SIGINT)
    printed, news = studying.communicate(timeout=PATIENCE_S)

    assert (studying.returncode, printed) == (130, "")
    assert news.splitlines()[-1] == (
        "warning: interrupted: 2 of 6 replays are done and kept in study.jsonl; "
        "the same command goes on"
    )
    assert len((tmp_path / "study.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policies": ["hpaa"]}, "no policy is named 'hpaa'; did you mean hpa"),
        ({"policies": []}, "study.yaml:1: policies must not be empty, not []"),
        ({"policies": ["hpa", "hpa"]}, "study.yaml:1: policies: 'hpa' is there twice"),
        ({"traces": [{"name": "a"}]}, "study.yaml:1: traces[0].file is missing"),
        ({"traces": [{"name": "a", "file": "none.csv"}]}, "none.csv: No such file or directory"),
        (
            {"settings": [{"name": "a", "slowr": 2}]},
            "study.yaml:1: settings[0].slowr is unknown; did you mean slower",
        ),
        (
            {"settings": [{"name": "a", "truth": "none.yaml"}]},
            "none.yaml: No such file or directory",
        ),
        ({"fleets": [{"name": "a", "paths": ["none"]}]}, "none: No such file or directory"),
    ],
)
def test_a_study_that_is_wrong_is_one_line(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    done = study(tmp_path, changes=changes)

    (line,) = told(done)
    assert (done.returncode, line.startswith("inferno: ")) == (2, True)
    assert message in line


def test_a_file_that_has_no_results_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "study.jsonl").write_text("mine\n")

    done = study(tmp_path)

    assert (done.returncode, told(done)) == (
        2,
        ["inferno: study.jsonl:1: is not a result of a study; name another file"],
    )
    assert (tmp_path / "study.jsonl").read_text() == "mine\n"


def test_without_dask_a_scheduler_is_one_line(tmp_path: Path) -> None:
    absent = tmp_path / "absent" / "distributed"
    absent.mkdir(parents=True)
    (absent / "__init__.py").write_text("raise ImportError('absent')\n")

    done = study_on("tcp://127.0.0.1:1", tmp_path, path=str(absent.parent))

    assert (done.returncode, told(done)) == (
        2,
        ["inferno: --scheduler needs Dask: pip install 'inferno-operator[study]'"],
    )
