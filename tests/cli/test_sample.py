"""`inferno sample`: what can be optimized right after the installation."""

from pathlib import Path

import pytest
import yaml

from tests.cli.program import ROOT, SAMPLE, inferno


@pytest.mark.parametrize(
    ("options", "folder"), [([], SAMPLE), (["--fleet"], ROOT / "samples/fleet")]
)
def test_a_sample_is_the_one_of_the_pages(options: list[str], folder: Path) -> None:
    order = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    files = [yaml.safe_load_all((folder / name).read_text()) for name in order]

    printed = inferno("sample", *options).stdout.decode()

    objects = [found for found in yaml.safe_load_all(printed) if found]
    assert objects == [found for file in files for found in file if found]


def test_the_load_is_the_one_of_the_pages() -> None:
    file = ROOT / "samples/traces/servegen-m-large.csv"

    assert inferno("sample", "--trace").stdout == file.read_bytes()
    assert inferno("sample", "--trace", "--fleet").returncode == 2


def test_what_is_printed_can_be_optimized() -> None:
    printed = inferno("sample").stdout

    planned = inferno("plan", "-", stdin=printed)

    assert planned.returncode == 0, planned.stderr
    table, *_ = planned.stdout.split(b"\n\n")
    assert inferno("plan", SAMPLE).stdout.startswith(table)
