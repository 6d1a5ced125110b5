"""`inferno sample`: what can be optimized right after the installation."""

import yaml

from tests.cli.program import SAMPLE, inferno


def test_the_sample_of_the_package_is_the_one_of_the_pages() -> None:
    order = yaml.safe_load((SAMPLE / "kustomization.yaml").read_text())["resources"]
    files = [yaml.safe_load_all((SAMPLE / name).read_text()) for name in order]

    printed = inferno("sample").stdout.decode()

    objects = [found for found in yaml.safe_load_all(printed) if found]
    assert objects == [found for file in files for found in file if found]


def test_what_is_printed_can_be_optimized() -> None:
    printed = inferno("sample").stdout

    planned = inferno("plan", "-", stdin=printed)

    assert planned.returncode == 0, planned.stderr
    table, *_ = planned.stdout.split(b"\n\n")
    assert inferno("plan", SAMPLE).stdout.startswith(table)
