"""What `make demo` says before it does anything."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.conftest import ROOT
from tests.controlplane.binaries import Binaries

GO = """#!/bin/bash
echo 'go: downloading example.org/a v1.2.3' >&2
until [ -e {folder}/loaded ] || ((SECONDS > 60)); do :; done
echo example.org/a/b >&2
until [ -e {folder}/compiled ] || ((SECONDS > 60)); do :; done
previous=
for argument in "$@"; do
  [ "$previous" = -o ] && echo built > "$argument"
  previous=$argument
done
"""
"""Stands for Go: loads and compiles until the test has heard of it."""


def test_without_go_the_demo_says_so_first_and_offers_what_needs_none(
    tmp_path: Path,
) -> None:
    for name in ("make", "sed", "ls"):
        program = shutil.which(name)
        assert program is not None
        (tmp_path / name).symlink_to(program)
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path)}

    ended = subprocess.run(
        ["make", "demo"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )

    first, *offered = ended.stdout.splitlines()[:3]
    assert ended.returncode != 0
    assert first.startswith("There is no Go (https://go.dev/dl)")
    assert [line.strip() for line in offered] == [
        ".venv/bin/inferno size Qwen3-32B --rate 7/s",
        ".venv/bin/inferno sample --fleet | .venv/bin/inferno plan -",
    ]


def test_the_demo_says_what_it_takes_before_it_sets_anything_up(tmp_path: Path) -> None:
    # No Python: what comes first ends here. Nothing of the make that runs the tests is passed on.
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    ended = subprocess.run(
        ["make", "demo", f"VENV={tmp_path / 'none'}", "PYTHON=false"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    *told, setup = ended.stdout.splitlines()[:4]
    assert ended.returncode != 0
    assert told[0].startswith("Needs .venv (once; about a minute), and etcd")
    assert told[2] == "The demo then runs for about 20 s and needs 0.7 GiB of memory."
    assert setup.startswith("Setting up ")


def test_a_build_of_the_control_plane_says_how_far_it_is(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text(GO.replace("{folder}", str(tmp_path)))
    go.chmod(0o755)
    environment = {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    said: list[str] = []

    def hear(line: str) -> None:
        said.append(line.partition(" s, ")[2])
        if said[-1] == "1 modules loaded":
            (tmp_path / "loaded").touch()
        if said[-1] == "1 packages compiled, now example.org/a/b":
            (tmp_path / "compiled").touch()

    built = Binaries(environment, hear, progress_s=0.01).find("helm")

    assert built.read_text() == "built\n"
    assert {"1 modules loaded", "1 packages compiled, now example.org/a/b"} <= {*said}
