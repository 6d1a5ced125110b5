"""The page of a plan: what it shows, what it never does, and how large it is."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from inferno_operator.cli.inferno.main import app
from inferno_operator.cli.offline.system import read_system
from inferno_operator.cli.report import EXPLAINED, build_fleet_page
from inferno_operator.pages.html import render_file
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import Reason
from inferno_optimizer.system import System
from inferno_optimizer.wire.codec import decode_system
from tests.generate import fleet

SAMPLE = Path(__file__).parents[4] / "samples" / "small"
LARGEST = 1_000_000
"""Bytes of a page with 1,000 servers."""

HOSTILE = "<script>alert('x')</script>"


@pytest.fixture
def small() -> System:
    """The small sample."""
    return read_system([str(SAMPLE)])


def html_of(system: System) -> str:
    """Optimize, and return the page."""
    return render_file("fleet.html", build_fleet_page("Plan", system, optimize(system)))


def test_the_page_shows_each_server_with_its_plan_and_the_total_cost(small: System) -> None:
    solution = optimize(small)
    html = render_file("fleet.html", build_fleet_page("Plan", small, solution)).replace("\xa0", " ")
    for server in small.servers:
        assert server.name in html
    for allocation in solution.allocations.values():
        assert allocation.placement in html or "as now" in html
    assert f"{solution.cost:.2f}" in html


def test_the_page_is_the_same_each_time(small: System) -> None:
    assert html_of(small) == html_of(small)


def test_a_hostile_name_is_text(small: System) -> None:
    first, *others = small.servers
    hostile = replace(small, servers=(replace(first, name=HOSTILE), *others))
    html = html_of(hostile)
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_the_page_loads_nothing_and_runs_nothing(small: System) -> None:
    html = html_of(small)
    assert (
        re.findall(r"(?:src|href|action)=|url\(|@import|https?:|<script| style=| on\w+=", html)
        == []
    )
    assert "default-src 'none'; style-src 'sha256-" in html


def test_servers_that_get_less_are_shown_with_what_would_serve_them(small: System) -> None:
    scarce = replace(small.options, unlimited=False)
    none = replace(small, capacity=dict.fromkeys(small.capacity, 1), options=scarce)
    solution = optimize(none)
    page = build_fleet_page("Plan", none, solution)
    assert page["shortfalls"]
    assert len(page["shortfalls"]) + page["more_shortfalls"] == sum(
        decision.reason is not Reason.ALLOCATED for decision in solution.decisions
    )
    assert len(page["shortfalls"]) <= EXPLAINED
    assert any(shortfall["remedies"] for shortfall in page["shortfalls"])
    for shortfall in page["shortfalls"]:
        assert shortfall["server"] in render_file("fleet.html", page)


def test_a_page_of_a_thousand_servers_is_small() -> None:
    system = decode_system(fleet(1000, 20, seed=1, demand=1.0))
    system = replace(system, options=replace(system.options, unlimited=True))
    assert len(html_of(system).encode()) < LARGEST


def test_the_command_writes_the_page_or_names_the_file_that_it_cannot_write(
    tmp_path: Path,
) -> None:
    page = tmp_path / "plan.html"
    result = CliRunner().invoke(app, ["report", str(SAMPLE), "--html", str(page)])
    assert (result.exit_code, page.read_text(encoding="utf-8")[:15]) == (0, "<!DOCTYPE html>")
    nowhere = tmp_path / "nowhere" / "plan.html"
    failed = CliRunner().invoke(app, ["report", str(SAMPLE), "--html", str(nowhere)])
    assert str(failed.exception) == f"{nowhere}: No such file or directory"


def test_the_page_says_how_many_servers_have_a_single_replica(small: System) -> None:
    solution = optimize(small)
    alone = [a for a in solution.allocations.values() if a.replicas == 1]
    html = html_of(small)
    of_two = tuple(replace(c, min_replicas=2) for c in small.classes)
    safer = replace(small, classes=of_two)

    assert len(alone) == 1
    assert f"1 server has a single replica; 2 would cost {alone[0].cost:.2f} more" in html
    assert "single replica" not in html_of(safer)
    assert {a.replicas for a in optimize(safer).allocations.values()} == {2}
