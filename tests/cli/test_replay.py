"""`inferno replay` and `inferno floor`, as their users run them."""

import csv
import io
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.models import performing
from tests.cli.program import PROGRAM, ROOT, inferno
from tests.controlplane.waiting import PATIENCE_S, wait_until
from tests.generate import fleet as generated

EPISODE = ROOT / "samples/episode"
LOAD = ROOT / "samples/traces/slo-aware.csv"

OWN = """\
import numpy as np


class OnePerRequest:
    def __init__(self, setting):
        self.least = setting.fleet.least

    def __call__(self, seen):
        return np.maximum(np.ceil(seen.load.rate), self.least).astype(int)
"""


def replay(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    common = ("--trace", LOAD, "--step", "30", "--lead-time", "100")
    return inferno("replay", EPISODE, *common, *arguments, cwd=cwd)


def test_the_table_has_a_row_for_each_policy() -> None:
    done = replay("--policy", "hpa", "--policy", "inferno", "--policy", "hpa@best")
    lines = done.stdout.decode().splitlines()

    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in lines[:4]] == ["POLICY", "hpa", "inferno", "hpa@best"]


def test_json_and_csv_say_the_same() -> None:
    document = json.loads(replay("--policy", "hpa", "-o", "json").stdout)
    rows = list(csv.DictReader(io.StringIO(replay("--policy", "hpa", "-o", "csv").stdout.decode())))

    (policy,) = document["policies"]
    assert [row["server"] for row in rows] == ["", "qwen3-32b"]
    assert float(rows[0]["cost"]) == policy["cost"] == policy["servers"][0]["cost"]
    assert float(rows[0]["within"]) == policy["within"]
    assert policy["regret"] > 0
    assert 0 < policy["shareOfOptimum"] < 1
    assert policy["cardHours"]["H100"] > 0


def test_the_worst_times_of_a_policy_are_told_with_their_cause() -> None:
    (policy,) = json.loads(replay("--policy", "hpa", "-o", "json").stdout)["policies"]

    worst = policy["worst"]
    assert 0 < len(worst) <= 10
    assert worst == sorted(worst, key=lambda one: -one["outside"])
    assert {one["cause"] for one in worst} <= {
        "NoCards",
        "Starting",
        "TooFew",
        "Backlog",
        "TooFull",
    }
    assert sum(one["outside"] for one in worst) <= policy["requests"] * (1 - policy["within"])


def test_a_changed_copy_of_a_sample_is_replayed_beside_the_original(tmp_path: Path) -> None:
    sample = (ROOT / "samples/policies/llm_d.py").read_text()
    (tmp_path / "llm_d.py").write_text(sample.replace("RUNNING = 16.0", "RUNNING = 4.0"))
    (tmp_path / "same.py").write_text(sample)

    done = replay(
        *("--policy", "keda-queue", "--policy", "same:KedaQueue", "--policy", "llm_d:KedaQueue"),
        *("-o", "json"),
        cwd=tmp_path,
    )

    original, same, changed = (each["cost"] for each in json.loads(done.stdout)["policies"])
    assert original == same < changed


def test_each_class_has_an_account_of_its_own() -> None:
    fleet, load = ROOT / "samples/fleet", ROOT / "samples/traces/servegen-m-large.csv"
    done = inferno(
        *("replay", fleet, "--trace", load, "--hours", "0.5", "--policy", "static-peak"),
        *("-o", "json"),
    )

    (policy,) = json.loads(done.stdout)["policies"]
    assert [row["class"] for row in policy["classes"]] == ["Bronze", "Free", "Premium"]
    for column in ("cost", "requests", "replicas", "started"):
        assert sum(row[column] for row in policy["classes"]) == pytest.approx(policy[column])


def test_replicas_may_perform_otherwise_than_the_models_say() -> None:
    def within(*options: str) -> float:
        done = replay("--policy", "static-peak", "-o", "json", *options)
        return float(json.loads(done.stdout)["policies"][0]["within"])

    seeds = {within("--error", "0.2", "--seed", str(seed)) for seed in range(4)}

    assert within("--error", "0") == within()
    assert within("--error", "0.2", "--seed", "1") == within("--error", "0.2", "--seed", "1")
    assert len(seeds) > 1


def test_a_file_may_say_how_replicas_really_perform(tmp_path: Path) -> None:
    truth = performing(tmp_path / "models.json", slower=1.2)

    told, computed, believed = (
        json.loads(replay("--policy", "hpa", "-o", "json", *options).stdout)
        for options in (("--truth", truth), ("--slower", "1.2"), ())
    )

    assert told == computed != believed


def test_a_file_of_settings_says_what_options_say_and_they_go_before_it(tmp_path: Path) -> None:
    performing(tmp_path / "models.json", slower=1.2)
    file = tmp_path / "settings.yaml"
    file.write_text("stepSeconds: 30\nleadTimeSeconds: 100\ntruth: models.json\nseed: 4\n")

    def computed(*options: str | Path) -> object:
        common = (EPISODE, "--trace", LOAD, "--policy", "hpa", "-o", "json")
        return json.loads(inferno("replay", *common, *options).stdout)

    told = computed("--settings", file)
    assert told == computed("--step", "30", "--lead-time", "100", "--slower", "1.2")
    assert computed("--settings", file, "--step", "60") != told


def test_a_field_of_settings_that_is_wrong_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("stepSeconds: 30\nslowr: 2\n")

    done = replay("--policy", "hpa", "--settings", file)

    assert done.returncode == 2
    assert done.stderr.decode().startswith(
        f"inferno: {file}:2: slowr is unknown; did you mean slower? (known: stepSeconds,"
    )
    assert done.stderr.count(b"\n") == 1


def test_the_help_shows_what_a_user_needs() -> None:
    shown = inferno("replay", "--help").stdout.decode().splitlines()

    assert sum(line.startswith("  -") for line in shown) <= 16


def test_a_truth_about_what_the_fleet_has_not_is_refused(tmp_path: Path) -> None:
    truth = performing(tmp_path / "models.json", slower=1.2, accelerator="2xH200")

    done = replay("--policy", "hpa", "--truth", truth)

    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert (
        b"models.json: model 'qwen3-32b' has no performance data for '2xH200' (known: 2xH100)"
        in (done.stderr)
    )


def test_a_policy_of_the_user_is_found_where_the_command_runs(tmp_path: Path) -> None:
    (tmp_path / "own_policy.py").write_text(OWN)

    done = replay("--policy", "own_policy:OnePerRequest", "-o", "json", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["policies"][0]["replicas"] > 3


@pytest.mark.extended
def test_any_number_of_jobs_has_the_same_result(tmp_path: Path) -> None:
    (tmp_path / "own_policy.py").write_text(OWN)
    names = ("hpa", "hpa@best", "clairvoyant", "own_policy:OnePerRequest", "hpa")
    options = [option for name in names for option in ("--policy", name)]

    one, several = (
        replay(*options, "-o", "json", "--jobs", jobs, cwd=tmp_path) for jobs in ("1", "3")
    )

    assert several.returncode == 0, several.stderr
    assert one.stdout == several.stdout


def test_system_data_is_replayed_side_by_side(tmp_path: Path) -> None:
    """What is sent to other processes has to be pickled, such as the cards."""
    fleet = tmp_path / "fleet.json"
    fleet.write_text(json.dumps(generated(2, 2, seed=1, demand=0.7)))
    options = ("--trace", LOAD, "--step", "60", "--policy", "hpa", "-o", "json")

    one, several = (inferno("replay", fleet, *options, "--jobs", jobs) for jobs in ("1", "2"))

    assert several.returncode == 0, several.stderr
    assert one.stdout == several.stdout


STUCK = """\
import os
import pathlib
import threading


class Stuck:
    def __init__(self, setting):
        pathlib.Path(f"{os.getpid()}.stuck").touch()

    def __call__(self, seen):
        threading.Event().wait()


class Failing(Stuck):
    def __call__(self, seen):
        return seen.load.rate[7]
"""


def own_replay(folder: Path, policies: tuple[str, ...], jobs: int) -> subprocess.Popen[str]:
    """A replay in a session of its own, with the policies above."""
    (folder / "mine.py").write_text(STUCK)
    options = [option for name in policies for option in ("--policy", name)]
    return subprocess.Popen(
        [PROGRAM, "replay", EPISODE, "--trace", LOAD, "--jobs", str(jobs), *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def told_at_the_end(replaying: subprocess.Popen[str]) -> list[str]:
    """What a replay prints beside its progress."""
    printed, told = replaying.communicate(timeout=PATIENCE_S)
    return [line for line in (printed + told).splitlines() if not line.startswith("replay")]


@pytest.mark.parametrize(
    ("jobs", "policies"),
    [
        (1, ("mine:Failing", "hpa")),
        pytest.param(3, ("mine:Stuck", "mine:Failing", "hpa"), marks=pytest.mark.extended),
    ],
)
def test_a_policy_that_fails_ends_the_others_with_one_line(
    jobs: int, policies: tuple[str, ...], tmp_path: Path
) -> None:
    replaying = own_replay(tmp_path, policies, jobs)

    (told,) = told_at_the_end(replaying)
    assert told == (
        "inferno: policy 'mine:Failing' failed: IndexError: index 7 is out of bounds for axis 0 "
        "with size 1 (mine.py:16)"
    )
    assert replaying.returncode == 2


@pytest.mark.extended
def test_an_interrupt_ends_all_processes(tmp_path: Path) -> None:
    replaying = own_replay(tmp_path, ("mine:Stuck", "mine:Stuck@best", "hpa"), jobs=3)
    wait_until(lambda: [*map(str, tmp_path.glob("*.stuck"))], lambda found: len(found) == 2, "two")

    os.killpg(replaying.pid, signal.SIGINT)

    assert told_at_the_end(replaying) == ["warning: interrupted, so there is no result"]
    assert replaying.returncode == 130
    for file in tmp_path.glob("*.stuck"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.stem), 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:Policy", "policy 'no_such_module:Policy': No module named"),
        ("math:nothing", "policy 'math:nothing': module 'math' has no attribute 'nothing'"),
    ],
)
def test_an_unknown_policy_is_refused(name: str, message: str) -> None:
    done = replay("--policy", name)

    assert done.returncode == 2
    assert message in done.stderr.decode()


def test_a_bad_trace_is_one_line_with_status_2(tmp_path: Path) -> None:
    load = tmp_path / "load.csv"
    load.write_text("client,start_s,rate_per_s,input_mean,output_mean\na,0,-1,1,1\n")

    for command, *options in (("replay", "--policy", "hpa"), ("floor",)):
        done = inferno(command, EPISODE, "--trace", load, *options)

        assert done.returncode == 2
        assert done.stderr.decode().count("\n") == 1
        assert b"load.csv:2: rate_per_s: must be" in done.stderr


def test_the_floor_is_not_above_the_bound() -> None:
    floor = json.loads(
        inferno("floor", EPISODE, "--trace", LOAD, "--step", "30", "-o", "json").stdout
    )
    document = json.loads(replay("--policy", "clairvoyant", "-o", "json").stdout)

    assert 0 < floor["cost"] <= document["policies"][0]["cost"]
    assert floor["cards"]["H100"]["most"] <= 16


@pytest.mark.parametrize("options", [("--trace", LOAD, "--from", "7d"), ("--to", "1h")])
def test_a_replay_has_one_load(options: tuple[str | Path, ...]) -> None:
    done = inferno("replay", EPISODE, "--policy", "hpa", *options)

    assert done.returncode == 2
    assert done.stderr.startswith(b"inferno: which load? Give either --trace FILE, or --prometheus")
