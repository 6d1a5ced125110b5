"""The page of a replay: what it shows, what it never does, and how large it is."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from inferno_operator.cli.replay import Replayed, replay_policies
from inferno_operator.cli.report import build_replay_page
from inferno_operator.cli.tables.html import Cell, Table
from inferno_operator.pages.html import render_file
from inferno_optimizer.replay.plant import LeadTime
from inferno_optimizer.replay.replay import Scenario
from tests.unit.optimizer.replay.fleets import fleet, trace

Page = dict[str, Any]

LARGEST = 1_000_000
"""Bytes of a page of twelve policies."""

BURST = [0.2] * 5 + [8.0] * 5 + [0.2] * 20


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    """A load that grows much faster than replicas start."""
    of = fleet()
    return Scenario(of, of, trace(BURST), LeadTime(120.0))


@pytest.fixture(scope="module")
def found(scenario: Scenario) -> list[Replayed]:
    """The replays of two policies."""
    return replay_policies(scenario, ["hpa", "static-peak"], lambda _: None)


@pytest.fixture(scope="module")
def page(scenario: Scenario, found: list[Replayed]) -> Page:
    """Their page."""
    return build_replay_page("Replay", scenario, found)


def test_a_policy_has_what_its_account_says(page: Page, found: list[Replayed]) -> None:
    html = render_file("replay.html", page)
    for row, section, one in zip(page["totals"].rows, page["policies"], found, strict=True):
        account, cells = one.account, rows_by_heading(page["totals"], row)
        assert cells["POLICY"] == section["name"] == one.policy
        assert float(cells["COST"]) == pytest.approx(account.total_cost / account.hours, abs=0.01)
        assert cells["WITHIN TARGETS"] == f"{account.attainment:.2%}"
        assert cells["COST"] in html
        assert cells["WITHIN TARGETS"] in html
        (bar,) = (cell.bar for cell in row if cell.bar)
        assert bar.share == pytest.approx(account.attainment, abs=1e-4)
        assert bar.met == (account.attainment >= 0.95)


def rows_by_heading(table: Table, row: Sequence[Cell]) -> dict[str, str]:
    """The texts of a row by the headings of their columns."""
    return {head.text: cell.text for head, cell in zip(table.headings, row, strict=True)}


def test_the_worst_time_says_what_was_decided_and_why_it_was_too_little(page: Page) -> None:
    hpa, _ = page["policies"]

    worst = rows_by_heading(hpa["worst"], hpa["worst"].rows[0])
    decided = worst["DECIDED BEFORE"]
    assert (worst["FROM"], worst["SERVER"]) == ("0:05:00", "s0")
    assert re.fullmatch(r"replicas \d+ to \d+ at 0:\d\d:00|replicas \d+ from .*", decided)
    assert re.search("starting|could be served|no cards", worst["CAUSE"])
    assert len(hpa["worst"].rows) <= 10


def test_the_page_of_the_same_replays_is_the_same(
    scenario: Scenario, found: list[Replayed], page: Page
) -> None:
    assert render_file("replay.html", build_replay_page("Replay", scenario, found)) == render_file(
        "replay.html", page
    )


def test_the_name_of_a_long_file_breaks_between_its_folders(page: Page) -> None:
    html = render_file("replay.html", {**page, "title": "Replay of samples/traces/a.csv"})

    assert "<h1>Replay of samples/<wbr>traces/<wbr>a.csv</h1>" in html


def test_the_page_loads_nothing_and_runs_nothing(page: Page) -> None:
    html = render_file("replay.html", {**page, "title": "<script>alert('x')</script>"})

    pattern = r"(?:src|href|action)=|url\(|@import|https?:|<script| style=| on\w+="
    assert re.findall(pattern, html) == []
    assert "default-src 'none'; style-src 'sha256-" in html


def test_a_long_replay_of_many_policies_is_a_small_page() -> None:
    of = fleet()
    rates = 2.0 + np.random.default_rng(1).random(3000)
    shown = Scenario(of, of, trace(rates.tolist()), LeadTime(120.0))
    (one,) = replay_policies(shown, ["hpa"], lambda _: None)

    html = render_file("replay.html", build_replay_page("Replay", shown, [one] * 12))

    assert len(html.encode()) < LARGEST


def test_a_cost_has_its_unit_and_policies_are_apart(page: Page) -> None:
    cheapest = next(figure for figure in page["figures"] if figure.title == "Cheapest")
    names = "|".join(section["name"] for section in page["policies"])

    assert re.fullmatch(rf"cents/hour, ({names})", cheapest.note)
    assert page["front"].words.count("; ") == len(page["policies"]) - 1
