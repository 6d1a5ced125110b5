"""The reference has everything that users can meet, and is as the code has it."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferno_operator.adapters.http.metrics import METRICS
from inferno_operator.cli.inferno import main as inferno
from inferno_operator.cli.kubectl import main as kubectl
from tests.in_process import called
from tests.reference import commands
from tests.reference.chart import values
from tests.reference.commands import contexts
from tests.reference.pages import DOCS, PARTS, page, renewed
from tests.reference.reasons import reasons
from tests.reference.shown import pages
from tests.reference.troubleshooting import alerts, chapters

ROOT = DOCS.parent
ALERTS = ROOT / "manifests" / "kustomize" / "components" / "monitoring" / "prometheus-rule.yaml"
RENEW = "make it anew: make reference"


def text(part: str) -> str:
    return page(part).read_text(encoding="utf-8")


@pytest.mark.parametrize("part", PARTS)
def test_a_generated_page_is_as_the_code_has_it(part: str) -> None:
    assert text(part) == renewed(part), RENEW


def test_every_reason_has_its_place_in_troubleshooting() -> None:
    explained = [reason for chapter in chapters() for reason in chapter.reasons]

    assert sorted(explained) == sorted(reasons())


def test_every_alert_links_to_its_place_in_troubleshooting_and_no_other_is_there() -> None:
    (group,) = yaml.safe_load(ALERTS.read_text())["spec"]["groups"]

    links = {rule["alert"]: rule["annotations"].get("runbook_url") for rule in group["rules"]}

    assert links == {name: f"docs/troubleshooting/alerts.md#{name.lower()}" for name in alerts()}


def test_every_variable_that_the_sources_name_is_explained() -> None:
    sources = (path.read_text() for path in (ROOT / "operator").rglob("*.py"))
    named = {name for source in sources for name in re.findall(r"\bINFERNO_[A-Z_]+\b", source)}
    explained = set(re.findall(r"`(INFERNO_[A-Z_]+)`", text("environment")))

    assert {name for name in named if not name.endswith("_")} <= explained


@pytest.mark.parametrize("program", [inferno.main, kubectl.main], ids=["program0", "program1"])
def test_every_option_that_help_shows_is_explained(program: Callable[[], None]) -> None:
    explained = set(re.findall(r"--[a-z][a-z-]+", command_line()))

    for command in ("", *commands_of(program)):
        shown = help_of(program, *command.split())
        assert set(re.findall(r"--[a-z][a-z-]+", shown)) <= explained


def command_line() -> str:
    return "\n".join(map(text, commands.PARTS))


def help_of(program: Callable[[], None], *command: str) -> str:
    wide = {**os.environ, "COLUMNS": "200"}
    return called(program, [*command, "--help"], environment=wide).stdout.decode()


def commands_of(program: Callable[[], None]) -> list[str]:
    listed = help_of(program).partition("Commands:\n")[2].partition("\n\n")[0]
    return [line.split()[0] for line in listed.splitlines()]


def test_every_value_of_the_chart_is_explained() -> None:
    assert [value for value, _, meaning in values() if not meaning] == []


def test_every_command_has_its_section() -> None:
    sections = re.findall(r"^## (.+)$", command_line(), re.MULTILINE)

    assert sorted(sections) == sorted(context.command_path for context in contexts())


def test_every_metric_is_explained() -> None:
    explained = set(re.findall(r"`((?:inferno|wva)_\w+)`", text("metrics")))

    assert {metric.name for metric in METRICS} <= explained


def test_pages_name_no_metric_and_no_variable_that_is_not_there() -> None:
    known = set(re.findall(r"^\| `(inferno_\w+|INFERNO_\w+)` \|", reference(), re.MULTILINE))
    named = {
        name
        for path in pages()
        for name in re.findall(r"\b(?:inferno|INFERNO)_[A-Za-z_]*[A-Za-z]\b", path.read_text())
    }

    assert named - known - {"inferno_operator", "inferno_optimizer"} == set()


def reference() -> str:
    return "\n".join(map(text, ("environment", "metrics")))


@pytest.mark.parametrize("file", sorted((ROOT / "crds").glob("*s.yaml")), ids=lambda f: f.stem)
def test_every_field_of_a_definition_is_explained(file: Path) -> None:
    definition = yaml.safe_load(file.read_text())["spec"]
    root = definition["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    page_of_kind = text(f"crds/{definition['names']['singular']}")

    explained = {
        field
        for part in (page_of_kind, text("crds"))
        for field in re.findall(r"^\| `([\w.\[\]-]+)` \|", part, re.MULTILINE)
    }
    alike = re.findall(
        r"^\| `(.+?)` \| (.+?) \|.*those of `([^`]+)`(?:, but ([^:]+?))?(?:\.|, and:) \|$",
        page_of_kind,
        re.MULTILINE,
    )
    for path, kind, other, but in alike:
        part = f"{path}[]" if kind.startswith("list") else path
        without = re.findall(r"`(.+?)`", but)
        inner = [e.removeprefix(f"{other}.") for e in explained if e.startswith(f"{other}.")]
        explained |= {f"{part}.{e}" for e in inner if re.split(r"[.\[]", e)[0] not in without}

    assert explained == {*paths("spec", root["spec"]), *paths("status", root["status"])}


def paths(path: str, schema: dict[str, Any]) -> set[str]:
    """Every field below a path."""
    found = {f"{path}.{name}" for name in schema.get("properties", {})}
    for name, field in schema.get("properties", {}).items():
        found |= paths(f"{path}.{name}", field) | paths(f"{path}.{name}[]", field.get("items", {}))
    return found
