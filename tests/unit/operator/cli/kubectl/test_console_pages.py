"""The pages of the console on cards, models, history and data, of a fleet with a past.

What they show is computed here again from the objects themselves.
"""

import base64
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from html import escape
from math import ceil
from statistics import median
from urllib.parse import parse_qsl, urlencode

import numpy as np
import pytest

from inferno_operator.cli.kubectl.choices import DryRun, decide, sort_plans
from inferno_operator.cli.kubectl.console.data import SeenLeader, view_data
from inferno_operator.cli.kubectl.console.fleet import view_capacity, view_fleet
from inferno_operator.cli.kubectl.console.html import (
    ROWS,
    PageQuery,
    Pages,
)
from inferno_operator.cli.kubectl.console.models import (
    draw_agreements,
    view_model,
    view_models,
    with_current,
)
from inferno_operator.cli.kubectl.console.page import ConsolePage, SeenNamespace
from inferno_operator.cli.kubectl.console.plans import (
    PlanLoads,
    is_move,
    view_history,
    view_next_plan,
    view_plan,
    view_plans,
)
from inferno_operator.cli.kubectl.console.server import list_affordable, view_server
from inferno_operator.cli.options import CENTS, Money, parse_currency
from inferno_operator.cli.tables.html import COSTS, MILLISECONDS, ROWS_BESIDE, list_meanings
from inferno_operator.cli.tables.table import TextTable, find_main_table, format_duration, name_of
from inferno_operator.controllers.planning.proposal import pack
from inferno_operator.controllers.planning.status import describe_answers
from inferno_operator.pages.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Chart
from inferno_operator.resources import (
    Accelerator,
    Model,
    Optimizer,
    Placement,
    Plan,
    PlanStep,
    Server,
)
from inferno_operator.resources.observation import Observation
from inferno_operator.runtime.leader_election import Lease
from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.options import Option, explain
from inferno_optimizer.wire.codec import decode_system
from tests.past import LEADER, NAMESPACE, NOW, failing_world, phases_world, world

View = Callable[[Sequence[Observation]], ConsolePage]


def at(objects: Sequence[Observation], money: Money = CENTS) -> SeenNamespace:
    """The namespace with these objects."""
    return SeenNamespace(objects, NAMESPACE, NOW, money)


VIEWS: dict[str, View] = {
    "/capacity": lambda seen: view_capacity(at(seen)),
    "/models": lambda seen: view_models(at(seen)),
    "/models/mistral-7b": lambda seen: view_model(at(seen), "mistral-7b"),
    "/history": lambda seen: view_history(at(seen)),
    "/data": lambda seen: view_data(at(seen), LEADER),
}

EUR = parse_currency("EUR")

PRICED: dict[str, Callable[[Sequence[Observation], Money], ConsolePage]] = {
    "/": lambda seen, money: view_fleet(at(seen, money)),
    "/next": lambda seen, money: view_next_plan(at(seen, money), decided(seen), ()),
    "/plans": lambda seen, money: view_plans(at(seen, money)),
    "/plans/fleet-8": lambda seen, money: view_plan(at(seen, money), "fleet-8"),
    "/plans/fleet-7": lambda seen, money: view_plan(at(seen, money), "fleet-7", "fleet-8"),
    "/servers/premium-mistral-7b": lambda seen, money: view_server(
        at(seen, money), decided(seen), "premium-mistral-7b"
    ),
    "/capacity": lambda seen, money: view_capacity(at(seen, money)),
    "/models": lambda seen, money: view_models(at(seen, money)),
    "/models/mistral-7b": lambda seen, money: view_model(at(seen, money), "mistral-7b"),
    "/history": lambda seen, money: view_history(at(seen, money)),
}


def decided(seen: Sequence[Observation]) -> DryRun:
    return decide(seen, NAMESPACE, None, ["server.*.load.arrivalRate*=1.5"])


def costs(page: ConsolePage) -> list[float]:
    """The values of all columns of costs."""
    return [
        float(row[place])
        for table in page.parts
        if isinstance(table, TextTable)
        for place, heading in enumerate(table.headings)
        if name_of(heading).split()[-1] in COSTS
        for row in table.rows
        if re.fullmatch(r"[+-]?\d+\.\d+", row[place])
    ]


@pytest.mark.parametrize("path", PRICED)
def test_a_page_in_another_currency_has_a_hundredth_of_each_cost(
    seen: list[Observation], path: str
) -> None:
    in_cents, page = PRICED[path](seen, CENTS), PRICED[path](seen, EUR)

    assert len(costs(in_cents)) > 0 or path == "/capacity"
    assert costs(page) == pytest.approx([cost / 100 for cost in costs(in_cents)], abs=0.0051)
    shown = Pages(NAMESPACE, str.upper, EUR).render(page, path, PageQuery())
    assert "EUR/hour" in shown
    assert "cents" not in shown


PLAIN = frozenset(
    {
        *("ACCELERATOR", "ACCELERATORS", "AGE", "CARDS", "CHANGE", "CLASS", "CONDITION", "EXAMPLE"),
        *("FROM", "HEALTH OF", "IN USE", "LAST", "MEASURED", "MAX BATCH", "MESSAGE", "MODEL"),
        *("NAME", "NOT USED BECAUSE", "OF ALL", "OLDEST", "OPTIMIZER", "PLAN", "QUANTITY"),
        *("REPLICAS", "REQUESTS", "SERVER", "SERVERS", "SOURCE", "STATE", "STATUS", "TO", "TYPE"),
        *("USED", "WHAT IS KNOWN", "WHEN", "CURRENT COST", "DESIRED COST", "PLANNED COST"),
        *("fleet-7 TO", "fleet-7 CHANGE", "fleet-8 TO", "fleet-8 CHANGE"),
    }
)
"""Columns whose name says what they have."""


@pytest.mark.parametrize("path", [*PRICED, "/data"])
def test_each_column_says_what_it_has_or_is_explained(seen: list[Observation], path: str) -> None:
    page = PRICED[path](seen, CENTS) if path in PRICED else VIEWS[path](seen)
    tables = [part for part in (*page.before, *page.parts) if isinstance(part, TextTable)]

    unexplained = {
        name
        for table in tables
        for name in (name_of(heading).removesuffix(MILLISECONDS) for heading in table.headings)
        if name not in dict(list_meanings(table))
    }

    assert unexplained <= PLAIN
    words = " ".join(part for part in page.parts if isinstance(part, str))
    assert ("objective " not in words) or "Objective: the change of cost and a penalty" in words
    text = html(page)
    assert text.count("What the columns mean") == sum(bool(list_meanings(t)) for t in tables)


@pytest.mark.parametrize("first", ["CONDITION", "OPTIMIZER"])
def test_the_reason_of_a_condition_is_not_explained_as_that_of_a_decision(first: str) -> None:
    meanings = dict(list_meanings(TextTable((first, "STATUS", "REASON"), [])))

    assert "condition" in meanings["REASON"]
    assert "Allocated" in dict(list_meanings(TextTable(("SERVER", "REASON"), [])))["REASON"]


def test_quantities_have_their_units(server_page: ConsolePage) -> None:
    text = html(server_page)

    units = {"ITL": "ms", "WAIT": "ms", "TTFT": "ms"}
    for name, unit in units.items():
        assert f'<th scope="row">{name} <span class="quiet">{unit}</span>' in text


def test_arrows_and_quantities_are_whole_but_not_in_what_a_person_typed(
    seen: list[Observation],
) -> None:
    text = html(view_fleet(at(seen)), "q=1->2")

    assert "2,927.00 \N{RIGHTWARDS ARROW}\N{NO-BREAK SPACE}2,329.00" in text
    assert "greedy: Feasible, gap not known, 0.012\N{NO-BREAK SPACE}s</p>" in text
    assert re.findall(r".*-&gt;.*", text) == [
        '<label>Filter <input type="search" name="q" value="1-&gt;2" autocomplete="off"></label>'
    ]


@pytest.fixture(scope="module")
def seen() -> list[Observation]:
    return world()


def html(page: ConsolePage, query: str = "") -> str:
    asked = [(name, value) for name, _, value in (p.partition("=") for p in query.split("&") if p)]
    return Pages(NAMESPACE, str.upper).render(page, "/", PageQuery(asked))


def column(page: ConsolePage, name: str) -> list[str]:
    table = find_main_table(page.parts)
    assert table is not None
    place = [heading.removeprefix(">") for heading in table.headings].index(name)
    return [row[place] for row in table.rows]


def figures(page: ConsolePage) -> dict[str, str]:
    return {figure.title: figure.value for figure in page.figures}


def objects(seen: Sequence[Observation], kind: type) -> Iterator:  # type: ignore[type-arg]  # of any kind
    return (o.resource for o in seen if isinstance(o.resource, kind))


def cards_in_use(seen: Sequence[Observation]) -> Counter[str]:
    """Replicas, accelerators of each, and cards of these, from the objects alone."""
    kinds = {a.spec.name: a.spec for a in objects(seen, Accelerator)}
    per_replica = {
        (model.spec.name, data.acc): data.acc_count
        for model in objects(seen, Model)
        for data in model.spec.data
    }
    found: Counter[str] = Counter()
    for server in objects(seen, Server):
        current = server.spec.current_alloc
        kind = kinds[current.accelerator]
        each = per_replica[server.spec.model, current.accelerator] * kind.multiplicity
        found[kind.type] += current.num_replicas * each
    return found


@pytest.mark.parametrize("path", VIEWS)
def test_every_page_is_json_and_its_table_is_on_the_page(
    path: str, seen: list[Observation]
) -> None:
    page = VIEWS[path](seen)
    table = find_main_table(page.parts)
    assert table is not None

    assert json.loads(json.dumps(page.document()))
    text = html(page)
    assert len(table.rows) > 0
    assert text.count("<tr>") >= min(len(table.rows), ROWS)
    assert page.title in text


def test_a_column_that_says_nothing_of_any_row_is_not_shown() -> None:
    rows = [("a", "-", "", "-", "0", "-"), ("b", "-", "", "1", "0", "-")]
    table = TextTable(("CARDS", "X", "Y", "Z", ">HELD", ">ONE MORE CARD"), rows)

    shown = re.findall(r">(\w[ \w]*)</a>", html(ConsolePage("Cards", (table,), dict)))

    assert shown[-5:] == ["CARDS", "Z", "ONE MORE CARD", "try it", "try it"]


def test_the_first_page_begins_with_what_is_wrong(failing: list[Observation]) -> None:
    page = view_fleet(at(failing))

    shown = html(page).replace("\xa0", " ")
    places = [shown.index(text) for text in (
        "<h1>Servers in llm</h1>", "20 Servers; cards in use: ", UNAVAILABLE,
        NO_CAPACITY, "No Plan waits", '<dl class="figures">', "<table>",
    )]  # fmt: skip
    assert places == sorted(places)


def test_the_first_page_counts_one_server_as_one(seen: list[Observation]) -> None:
    (server, *_) = (o for o in seen if o.kind is Server)
    alone = [server, *(o for o in seen if o.kind not in (Server, Plan))]

    text = html(view_fleet(at(alone)))

    assert "<p>1 Server; cards in use: 2 of 214; the last plan is 3m old.</p>" in text
    assert "of 1 Server (latency known for all)" in text


def test_an_empty_namespace_has_a_line_on_each_page_and_no_numbers() -> None:
    for page in (view_fleet(at([])), view_capacity(at([])), view_history(at([]))):
        assert "<dl" not in html(page)
        assert html(page).count("<p>") == 1


def test_a_phone_sorts_by_one_list(seen: list[Observation]) -> None:
    page = view_fleet(at(seen))
    query = PageQuery([("sort", "LOAD"), ("order", "falling"), ("set", "x")])

    text = Pages(NAMESPACE, str.upper).render(page, "/", query)

    offered = re.findall(r'<option value="([^"]*)"( selected)?>', text)
    table = find_main_table(page.parts)
    assert table is not None
    assert offered == [
        ("", ""),
        *((name, " selected" if name == "LOAD" else "") for name in map(name_of, table.headings)),
    ]
    assert 'value="falling" autocomplete="off" checked>' in text
    assert re.findall(r'type="hidden" name="(\w+)"', text) == ["set"]


@pytest.mark.parametrize("path", ["/next", "/servers/premium-mistral-7b"])
def test_latencies_are_in_ms_not_in_megasiemens(path: str, seen: list[Observation]) -> None:
    shown = html(PRICED[path](seen, CENTS))

    assert re.findall(r">[^<]* MS\b", shown) == []
    assert len(re.findall(r'>(?:ITL|WAIT)</a><br><span class="quiet">ms<', shown)) == 2


def test_cards_are_those_of_the_replicas_that_run(seen: list[Observation]) -> None:
    page = view_capacity(at(seen))

    shown = dict(zip(column(page, "CARDS"), column(page, "IN USE/THERE"), strict=True))

    used = {name: int(text.partition("/")[0]) for name, text in shown.items()}
    assert {name: count for name, count in used.items() if count} == dict(cards_in_use(seen))
    assert figures(page)["In use"] == str(cards_in_use(seen).total())
    assert shown["H100"].endswith("/22")  # as the sample declares
    assert '<a href="/next?set=capacity.H100%2B%3D1">try it</a>' in html(page)


def test_what_runs_is_apart_from_what_is_planned(seen: list[Observation]) -> None:
    more = [with_replicas(o, 3) if o.kind is Server else o for o in seen]

    before, after = (view_capacity(at(objects)) for objects in (seen, more))

    assert column(after, "PLANNED/THERE") == column(before, "PLANNED/THERE")
    used = {t: int(n.partition("/")[0]) for t, n in cells(after, "CARDS", "IN USE/THERE")}
    assert {name: count for name, count in used.items() if count} == dict(cards_in_use(more))
    assert cards_in_use(more) != cards_in_use(seen)


def with_replicas(observation: Observation, more: int) -> Observation:
    """A Server that runs more replicas than before."""
    server = observation.resource
    assert isinstance(server, Server)
    assert server.spec.current_alloc is not None
    replicas = server.spec.current_alloc.num_replicas + more
    current = server.spec.current_alloc.model_copy(update={"num_replicas": replicas})
    spec = server.spec.model_copy(update={"current_alloc": current})
    return replace(observation, resource=server.model_copy(update={"spec": spec}))


def cells(page: ConsolePage, *names: str) -> Iterator[tuple[str, ...]]:
    return zip(*(column(page, name) for name in names), strict=True)


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        ("A2", "B1", True),
        ("A2", "A3", False),
        ("", "A1", False),
        ("A2", "", False),
        ("A2", "A1 B1", False),
        ("A2 B1", "B1", False),
        ("A1 B1", "A1 C1", True),
        ("A0 B1", "B2", False),
    ],
)
def test_a_move_leaves_an_accelerator_for_another(before: str, after: str, moves: bool) -> None:
    placed = [
        tuple(Placement(accelerator=word[0], replicas=int(word[1])) for word in text.split())
        for text in (before, after)
    ]
    step = PlanStep(server="s", before=placed[0], after=placed[1], reason="Allocated")

    assert is_move(step) is moves


def test_cards_over_time_end_at_the_last_plan_that_took_effect(seen: list[Observation]) -> None:
    done = [plan for plan in objects(seen, Plan) if plan.status.phase == "Done"]
    newest = max(done, key=lambda plan: plan.metadata.creation_timestamp)
    expected = {cards.type: cards.count for cards in newest.spec.totals.cards}

    page = view_capacity(at(seen))

    trends = {name: page.trend(name) for name in column(page, "CARDS")}
    told = {name: trend.points[-1] for name, trend in trends.items() if trend}
    assert {name: count for name, (_, count) in told.items() if count} == expected
    assert {time for time, _ in told.values()} == {NOW.timestamp()}
    assert html(page).count('class="spark"') == len(told)


def test_history_has_each_change_and_counts_moves(seen: list[Observation]) -> None:
    plans = list(objects(seen, Plan))
    moves = 0
    for plan in plans:
        for step in plan.spec.steps if plan.status.phase == "Done" else ():
            (before,), (after,) = step.before or (None,), step.after or (None,)
            moves += bool(before and after and before.accelerator != after.accelerator)
    page = view_history(at(seen))

    assert len(column(page, "SERVER")) == sum(len(plan.spec.steps) for plan in plans)
    assert figures(page)["Moves"] == str(moves)
    assert moves > 10
    done = [plan for plan in plans if plan.status.phase == "Done"]
    assert figures(page)["Changes of Servers"] == str(sum(len(plan.spec.steps) for plan in done))
    assert figures(page)["Plans"] == "8"
    whens = column(page, "WHEN")
    assert whens == sorted(whens, reverse=True)


def test_history_counts_changes_of_plans_that_took_effect(failing: list[Observation]) -> None:
    page = view_history(at(failing))

    (changes,) = (figure for figure in page.figures if figure.title == "Changes of Servers")
    assert (changes.value, changes.note) == ("0", "by Plans that took effect")


def test_a_namespace_without_a_past_has_a_history_that_says_so(seen: list[Observation]) -> None:
    young = [o for o in seen if o.kind is not Plan and o.kind is not Server]

    page = view_history(at(young))

    assert page.parts[0] == "No Plans in this namespace: nothing was changed yet."
    assert not page.charts


def test_data_has_the_quality_and_the_age_of_each_server(seen: list[Observation]) -> None:
    page = view_data(at(seen), LEADER)

    of = dict(zip(column(page, "SERVER"), column(page, "QUALITY"), strict=True))
    measured = {s.metadata.name: s.status.measured for s in objects(seen, Server)}
    assert of == {name: found.quality if found else "-" for name, found in measured.items()}
    bad = [name for name, quality in of.items() if quality in ("Stale", "Missing")]
    assert len(bad) == 2
    assert figures(page)["Stale"] == "2"
    assert figures(page)["Oldest measurement"] == "7m"
    assert "correct spec.measure.labels" in html(page)


def test_a_model_shows_the_time_of_a_step_alone_and_with_a_full_batch(
    seen: list[Observation],
) -> None:
    page = view_model(at(seen), "mistral-7b")

    accelerators = column(page, "ACCELERATOR")
    a100 = accelerators.index("A100")  # alpha 12.32, beta 0.41, batch 64 in the sample
    assert float(column(page, "ALONE:STEP")[a100]) == pytest.approx(12.32 + 0.41, rel=5e-3)
    assert float(column(page, "FULL:STEP")[a100]) == pytest.approx(12.32 + 64 * 0.41, rel=5e-3)
    assert [chart.words.split(":")[0] for chart in page.charts][:6] == [
        f"{what} on {name}" for name in ("G2", "MI250", "MI300X") for what in ("Step", "Prefill")
    ]


def test_a_model_says_which_windows_were_not_used_and_why(seen: list[Observation]) -> None:
    model = next(m for m in objects(seen, Model) if m.metadata.name == "mistral-7b")
    expected = [
        (part.reason, data.acc, str(part.rows), f"{round(100 * part.rows / total)}%")
        for data in model.status.calibration
        for part in data.rejected
        for total in [data.rows + sum(other.rows for other in data.rejected)]
        if part.rows
    ]

    page = view_model(at(seen), "mistral-7b")

    tables = [part for part in page.parts if isinstance(part, TextTable)]
    rows = next(table.rows for table in tables if "NOT USED BECAUSE" in table.headings)
    assert list(rows) == expected
    assert len(expected) > len(model.status.calibration)
    drifts = {name: drift for name, drift in cells(page, "ACCELERATOR", "DRIFT") if drift}
    assert drifts == {"G2": "-", "MI250": "+12%", "MI300X": "-"}


def test_a_model_shows_measured_latencies_against_predicted_ones(seen: list[Observation]) -> None:
    """The dots lie where the numbers of the objects say, on axes that are equally long."""
    servers = [s for s in objects(seen, Server) if s.spec.model == "mistral_7b"]
    known = [s for s in servers if s.status.measured and s.status.measured.itl_average]
    predicted = [s.spec.desired_alloc.itl_average for s in known]
    measured = [s.status.measured.itl_average for s in known]
    assert len(known) > 1

    (chart,) = [c for c in draw_agreements(servers) if c.words.startswith("ITL")]

    dots = [(float(x), float(y)) for x, y in re.findall(r'cx="(.*?)" cy="(.*?)"', chart.svg)]
    across = sorted(x for x, _ in dots)
    most = max(*predicted, *measured) * 1.05
    scale = (WIDTH - LEFT - RIGHT) / most
    assert across == pytest.approx([LEFT + scale * p for p in sorted(predicted)], abs=0.06)
    errors = [abs(m - p) / p for p, m in zip(predicted, measured, strict=True)]
    assert f"Servers: {len(known)};" in chart.words
    assert chart.words.endswith(f"{median(errors):.0%}")


def test_a_model_shows_the_servers_among_its_calibrations(seen: list[Observation]) -> None:
    """A dot for each Server that runs on the accelerator alone: its batch, and its latency."""
    servers = [s for s in objects(seen, Server) if s.spec.model == "mistral_7b"]
    on_g2 = {
        s.metadata.name: (m.running / m.replicas.reporting, m.itl_average, m.ttft_average)
        for s in servers
        if (m := s.status.measured) and m.running and s.spec.current_alloc.accelerator == "G2"
    }
    assert len(on_g2) == 2

    page = view_model(at(seen), "mistral-7b")

    step, prefill = (c for c in page.charts if "on G2" in c.words)
    assert dots(step) == {name: (f"{n:.9g}", f"{itl:.9g}") for name, (n, itl, _) in on_g2.items()}
    assert set(dots(prefill)) == set(on_g2)
    assert "dots: ITL of Servers now" in step.words
    (on_mi250,) = (c for c in page.charts if c.words.startswith("Step on MI250"))
    assert (dots(on_mi250), "dots" in on_mi250.words) == ({}, False)


def dots(chart: Chart) -> dict[str, tuple[str, str]]:
    """The points of a chart by their names."""
    found = re.findall(r"<title>(.*?): (.*?); (.*?)</title>", chart.svg)
    return {name: (x, y) for name, x, y in found}


def test_what_runs_of_a_model_is_on_its_page(seen: list[Observation]) -> None:
    page = view_model(at(seen), "mistral_7b")  # by the name in its spec
    running = [s for s in objects(seen, Server) if s.spec.model == "mistral_7b"]

    replicas = sum(map(int, column(page, "REPLICAS")))

    assert replicas == sum(s.spec.current_alloc.num_replicas for s in running)
    assert all(f'href="/servers/{s.metadata.name}"' in html(page) for s in running)


def test_a_model_that_does_not_exist_is_told_with_those_like_it(seen: list[Observation]) -> None:
    with pytest.raises(InputError, match=r"Model llm/mistral-7: there is none.*mistral-7b"):
        view_model(at(seen), "mistral-7")


def rows_of(text: str) -> list[str]:
    return re.findall(r'<th scope="row">(n\d+)</th>', text)


def long_page(count: int) -> ConsolePage:
    rows = [(f"n{number}", "even" if number % 2 == 0 else "odd") for number in range(count)]
    return ConsolePage("Long", (TextTable(("NAME", "KIND"), rows),), dict)


def test_a_long_table_is_shown_in_pages_that_have_each_row_once() -> None:
    page = long_page(2 * ROWS + 1)
    shown, address, visited = list[str](), "", 0

    while True:
        text = html(page, address)
        shown += rows_of(text)
        visited += 1
        after = re.search(r'href="\?([^"]*)">After</a>', text)
        if after is None:
            break
        address = after[1].replace("&amp;", "&")

    assert shown == [f"n{number}" for number in range(2 * ROWS + 1)]
    assert visited == ceil((2 * ROWS + 1) / ROWS)
    assert f"Rows {2 * ROWS + 1} to {2 * ROWS + 1} of {2 * ROWS + 1}" in text


def test_a_filter_finds_rows_of_every_page() -> None:
    text = html(long_page(2 * ROWS + 1), "q=odd&from=0")

    assert rows_of(text) == [f"n{number}" for number in range(1, 2 * ROWS, 2)]


@pytest.mark.parametrize("start", ["-1", "x", "99999999", "1e3", "9" * 40])
def test_a_strange_beginning_is_no_failure(start: str) -> None:
    assert rows_of(html(long_page(ROWS + 1), f"from={start}"))


def test_a_value_beside_its_limit_has_a_bar_which_is_red_beyond() -> None:
    table = TextTable(("SERVER", ">ITL/SLO"), [("a", "20.0/80"), ("b", "90.0/80"), ("c", "5/0")])

    bars = re.findall(r'aria-label="(\d+ %[^"]*)".*?class="(fill|over)" width="([\d.]+)"', html(
        ConsolePage("Bars", (table,), dict)), re.DOTALL)  # fmt: skip

    assert bars == [("25 % of 80", "fill", "25.0"), ("112 % of 80", "over", "100.0")]


def test_many_notes_are_folded() -> None:
    page = ConsolePage("Notes", [f"note {number}" for number in range(8)], dict)

    before, _, folded = html(page).partition("<details>")

    assert "note 4" in before
    assert "note 5" not in before
    assert "3 more notes" in folded


def test_a_remedy_leads_to_the_plan_with_it() -> None:
    remedy = "- 2 more cards of G2 would serve it (+46.00 cents/hour): --set capacity.G2+=2"
    page = ConsolePage("Remedies", (remedy, "- a line that is no remedy"), dict)

    text = html(page)

    assert "<p>- a line that is no remedy</p>" in text
    assert "--set" not in text
    link = re.search(r'would serve it.*cents/hour\) <a href="/next\?([^"]*)">', text)
    assert link is not None
    assert parse_qsl(link[1]) == [("set", "capacity.G2+=2")]


@pytest.mark.parametrize("count", [ROWS_BESIDE, ROWS_BESIDE + 1])
def test_a_long_table_beside_the_main_one_does_not_hide_what_comes_after_it(count: int) -> None:
    rows = [(f"n{number}", "1.00") for number in range(count)]
    beside = TextTable(("NAME", ">PAID"), rows)
    page = ConsolePage("Long", (TextTable(("KIND",), [("a",)]), beside, "what was saved"), dict)

    text = html(page)

    assert rows_of(text) == [name for name, _ in rows]
    folded = f"<summary>{count} rows with name, paid</summary>" in text
    assert folded == (count > ROWS_BESIDE)
    assert "what was saved" in text.rpartition("</details>")[2]


def test_a_page_that_does_not_work_is_still_marked_among_the_others() -> None:
    text = Pages(NAMESPACE, str.upper).render_problem(
        "This does not work", "no Optimizer", path="/next"
    )

    assert 'aria-current="page">Next plan</a>' in text
    assert text.count("aria-current") == 1


@pytest.mark.parametrize(
    ("path", "section"),
    [("/plans/fleet-1", "Plans"), ("/servers/s", "Fleet"), ("/models/m", "Models")],
)
def test_the_page_of_an_object_is_marked_as_one_of_its_section(path: str, section: str) -> None:
    text = Pages(NAMESPACE, str.upper).render_problem(
        "This does not work", "no Optimizer", path=path
    )

    assert f'aria-current="true">{section}</a>' in text
    assert text.count("aria-current") == 1


def test_a_page_without_objects_says_what_makes_the_first() -> None:
    for page in (view_plans(at([])), view_models(at([])), view_fleet(at([]))):
        assert any("in this namespace: " in str(part) for part in page.parts), page.title


def test_a_plan_is_compared_with_any_other_one(seen: list[Observation]) -> None:
    names = [plan.metadata.name for plan in objects(seen, Plan)]

    alone = view_plan(at(seen), "fleet-8")
    page = view_plan(at(seen), "fleet-8", "fleet-2")

    assert set(alone.others) == {*names} - {"fleet-8"}
    assert page.form is None  # what two Plans would do is no Plan to approve
    document = json.loads(json.dumps(page.document()))
    assert [item["metadata"]["name"] for item in document] == ["fleet-8", "fleet-2"]
    assert "<option selected>fleet-2</option>" in html(page, "with=fleet-2")
    with pytest.raises(InputError, match="Plan llm/fleet-99"):
        view_plan(at(seen), "fleet-8", "fleet-99")


@pytest.fixture(scope="module")
def in_phases() -> list[Observation]:
    return phases_world()


@pytest.mark.parametrize("number", range(1, 9))
def test_a_plan_says_where_it_is_above_its_changes(
    number: int, in_phases: list[Observation]
) -> None:
    name = f"fleet-{number}"
    (plan,) = (plan for plan in objects(in_phases, Plan) if plan.metadata.name == name)

    page = view_plan(at(in_phases), name)

    said, text = page.state or page.troubles[0], html(page)
    assert said.startswith(plan.status.phase)
    assert said.lower().endswith(plan.status.conditions[0].message.lower())
    assert said.lower().count(plan.status.phase.lower()) == 1
    assert bool(page.troubles) == (plan.status.phase == "Failed")
    assert text.index(plan.status.phase) < text.index("Servers that change")
    assert plan.status.phase in dict(list_meanings(TextTable(("PLAN", "PHASE"), [])))["PHASE"]


def test_only_a_plan_that_nobody_answered_can_be_approved(in_phases: list[Observation]) -> None:
    names = {plan.status.phase: plan.metadata.name for plan in objects(in_phases, Plan)}

    shown = {
        phase: re.findall(
            r"<button[^>]*>(Approve this plan|Reject)",
            html(view_plan(at(in_phases), name)),
        )
        for phase, name in names.items()
    }

    assert shown.pop("Proposed") == ["Approve this plan", "Reject"]
    assert shown.pop("Approved") == ["Reject"]
    assert not any(shown.values())


def test_a_comparison_says_where_both_plans_are(in_phases: list[Observation]) -> None:
    page = view_plan(at(in_phases), "fleet-1", "fleet-5")

    assert figures(page) == {"fleet-1": "Done", "fleet-5": "Superseded"}
    assert '<dl class="figures">' in html(page)


def test_the_fleet_counts_the_servers_of_each_class_that_miss_a_target(
    seen: list[Observation],
) -> None:
    slow = [with_measured_itl(o, 1e6) if o.kind is Server else o for o in seen]
    of_class: dict[str, list[Server]] = {}
    for server in objects(slow, Server):
        of_class.setdefault(server.spec.service_class, []).append(server)

    page = view_fleet(at(slow))

    table = find_main_table(page.before)
    assert table is not None
    rows = [dict(zip(map(name_of, table.headings), row, strict=True)) for row in table.rows]
    assert [row["CLASS"] for row in rows] == ["Premium", "Bronze", "Free"]  # by priority
    for row in rows:
        servers = of_class[row["CLASS"]]
        measured = [s for s in servers if s.status.measured and s.status.measured.itl_average]
        running = [s.spec.current_alloc for s in servers]
        cost = sum(found.cost or 0.0 for found in running if found)
        assert row["SERVERS"] == str(len(servers))
        assert row["MISS A TARGET"].split(" of ")[0] == str(len(measured))
        assert float(row["COST"]) == pytest.approx(cost, abs=0.01)


def with_measured_itl(observation: Observation, itl_ms: float) -> Observation:
    """A Server that is measured to need so long for a token."""
    server = observation.resource
    assert isinstance(server, Server)
    found = server.status.measured
    if found is None or not found.itl_average:
        return observation
    measured = found.model_copy(update={"itl_average": itl_ms})
    status = server.status.model_copy(update={"measured": measured})
    return replace(observation, resource=server.model_copy(update={"status": status}))


@pytest.mark.parametrize(
    ("objective", "bound", "shown"),
    [(-10.0, -12.5, "2.50"), (-10.0, None, "-"), (5.0, 5.0, "0.00")],
)
def test_the_fleet_says_how_much_less_any_plan_can_cost(
    seen: list[Observation], objective: float, bound: float | None, shown: str
) -> None:
    proven = [with_proof(o, objective, bound) if o.kind is Optimizer else o for o in seen]

    assert figures(view_fleet(at(proven)))["Could cost less by"] == shown


def with_proof(observation: Observation, objective: float, bound: float | None) -> Observation:
    """An Optimizer whose last plan has such a certificate."""
    optimizer = observation.resource
    assert isinstance(optimizer, Optimizer)
    last = optimizer.status.last_optimization
    assert last is not None
    assert last.certificate is not None
    proof = last.certificate.model_copy(update={"objective": objective, "bound": bound})
    result = last.model_copy(update={"certificate": proof})
    status = optimizer.status.model_copy(update={"last_optimization": result})
    return replace(observation, resource=optimizer.model_copy(update={"status": status}))


def test_the_fleet_leads_to_the_newest_plan_that_waits_or_to_the_next_one(
    seen: list[Observation],
) -> None:
    waits = view_fleet(at(seen))
    quiet = view_fleet(at([o for o in seen if o.kind is not Plan]))

    assert '<a class="primary" href="/plans/fleet-8">' in html(waits)
    assert "fleet-8 waits for approval: 8 Servers change" in html(waits)
    assert '<a class="primary" href="/next">' in html(quiet)
    assert json.loads(json.dumps(waits.document()))["waiting"] == ["fleet-8"]


SERVER = "premium-mistral-7b"


@pytest.fixture(scope="module")
def server_page(seen: list[Observation]) -> ConsolePage:
    outcome = decide(seen, NAMESPACE, None)
    past = PlanLoads().loads(sort_plans(seen))
    return view_server(at(seen), outcome, SERVER, past=past)


def charts_of(page: ConsolePage, title: str) -> list[Chart]:
    return [chart for chart in page.charts if f">{title}</text>" in chart.svg]


def test_a_server_shows_the_load_that_each_plan_was_made_for(
    seen: list[Observation], server_page: ConsolePage
) -> None:
    plans = list(objects(seen, Plan))
    server = next(s for s in objects(seen, Server) if s.metadata.name == SERVER)
    made_for = [
        next(
            item["currentAlloc"]["load"]["arrivalRate"]
            for item in json.loads(gunzipped(plan.spec.inputs))["system"]["serverData"]["servers"]
            if item["name"] == server.spec.name
        )
        for plan in plans
    ]

    loads = json.loads(json.dumps(server_page.document()))["loads"]
    assert [rate for _, rate in loads][:-1] == made_for
    assert loads[-1] == ["2026-11-24T12:00:00Z", server.spec.current_alloc.load.arrival_rate]
    (chart,) = charts_of(server_page, "Load")
    changed = [p for p in plans if any(s.server == SERVER for s in p.spec.steps)]
    took_effect = [p.metadata.name for p in changed if p.status.phase == "Done"]
    assert sorted(re.findall(r"<title>(fleet-\d)", chart.svg)) == took_effect
    assert len(charts_of(server_page, "Replicas decided")) == 1


def test_a_server_shows_the_latencies_that_were_measured_when_plans_were_made(
    seen: list[Observation], server_page: ConsolePage
) -> None:
    plans = sorted(objects(seen, Plan), key=lambda plan: plan.metadata.creation_timestamp)
    server = next(s for s in objects(seen, Server) if s.metadata.name == SERVER)
    inputs = [json.loads(gunzipped(plan.spec.inputs))["system"]["serverData"] for plan in plans]
    before = [
        item["currentAlloc"]["itlAverage"]
        for system in inputs
        for item in system["servers"]
        if item["name"] == server.spec.name
    ]

    found = json.loads(json.dumps(server_page.document()))["latencies"]

    assert [item["itl"] for item in found] == [*before, server.status.measured.itl_average]
    assert found[-1]["time"] == "2026-11-24T11:59:46Z"
    (chart,) = charts_of(server_page, "ITL measured")
    most = max(40.0, *before) * 1.1
    (line,) = re.findall(r'class="line" points="([^"]*)"', chart.svg)
    heights = [float(point.split(",")[1]) for point in line.split()]
    scale = HEIGHT - TOP - BOTTOM
    assert heights == pytest.approx(
        [TOP + scale * (1 - item["itl"] / most) for item in found], abs=0.06
    )
    assert "dashed: the target, 40 ms" in chart.words


def test_a_server_that_is_not_measured_shows_no_latencies_over_time(
    seen: list[Observation],
) -> None:
    typed = next(s for s in objects(seen, Server) if s.spec.measure is None)
    past = PlanLoads().loads(sort_plans(seen))
    name = typed.metadata.name

    page = view_server(at(seen), decide(seen, NAMESPACE, None), name, past=past)

    assert json.loads(json.dumps(page.document()))["latencies"] == []
    assert charts_of(page, "ITL measured") == []


@pytest.mark.parametrize(("edge", "taken"), [(0, "expected"), (1, "decode_parms")])
def test_the_band_of_a_server_is_what_plans_would_take_of_its_calibration(
    seen: list[Observation], server_page: ConsolePage, edge: int, taken: str
) -> None:
    """A Model that plans take the calibration of has the curve that is the edge of the band."""
    used = [calibrated(o, taken) if isinstance(o.resource, Model) else o for o in seen]
    document = json.loads(json.dumps(server_page.document()))["curve"]

    outcome = decide(used, NAMESPACE, None)
    page = view_server(at(used), outcome, SERVER)

    curve = json.loads(json.dumps(page.document()))["curve"]
    band = document["confidence"][edge]["itl"]
    shared = [rate for rate in curve["rates"] if rate <= document["rates"][-1]]
    at_edge = np.interp(shared, document["rates"], band)
    assert curve["itl"][: len(shared)] == pytest.approx(at_edge, rel=0.03)
    assert len(shared) > len(curve["rates"]) / 2
    (chart,) = charts_of(server_page, "ITL and load of one replica")
    assert 'class="band"' in chart.svg
    assert "shaded: from the calibrated parameters to their upper confidence" in chart.words


def calibrated(observation: Observation, taken: str) -> Observation:
    """A Model of whose calibration plans take these parameters."""
    document = observation.resource.to_json()  # type: ignore[union-attr]  # it is a Model
    document["spec"]["calibrate"] = "Use"
    model = Model.model_validate(document)
    rows = [
        row.model_copy(update={"decode_parms": getattr(row, taken)})
        for row in model.status.calibration
    ]
    status = model.status.model_copy(update={"calibration": rows})
    return replace(observation, resource=model.model_copy(update={"status": status}))


def gunzipped(packed: str) -> bytes:
    return gzip.decompress(base64.b64decode(packed))


def test_a_server_shows_how_latencies_grow_until_a_target_is_missed(
    server_page: ConsolePage,
) -> None:
    """At the highest rate the mean ITL, the only latency that counts here, is its target."""
    document = json.loads(json.dumps(server_page.document()))
    curve = document["curve"]
    best = next(o for o in document["options"] if o["accelerator"] == curve["accelerator"])

    assert curve["maxRate"] == pytest.approx(best["maxRate"])
    at_most = np.interp(curve["maxRate"], curve["rates"], curve["itl"])
    assert at_most == pytest.approx(40.0, rel=0.05)  # slo-itl of Premium for this model
    (chart,) = charts_of(server_page, "ITL and load of one replica")
    assert f"the most that keeps all targets, {curve['maxRate']:.0f} requests/min" in chart.words
    assert "target, 40 ms" in chart.words


def test_plans_whose_inputs_cannot_be_read_are_no_part_of_the_past(
    seen: list[Observation],
) -> None:
    plans = sort_plans(seen)
    broken = [
        plan.model_copy(
            update={"spec": plan.spec.model_copy(update={"inputs": text, "digest": text})}
        )
        for plan, text in zip(plans, ("", "x", "H4sIAAAAAAAA", pack([1])), strict=False)
    ]

    assert PlanLoads().loads(broken) == []
    assert len(PlanLoads().loads(plans)) == len(plans)


def test_a_plan_is_unpacked_once() -> None:
    plans, past = sort_plans(world()), PlanLoads()
    before = past.loads(plans)
    emptied = [
        plan.model_copy(update={"spec": plan.spec.model_copy(update={"inputs": ""})})
        for plan in plans
    ]

    assert past.loads(emptied) == before  # of the same digests
    assert past.loads([]) == []
    assert past.loads(emptied) == []


def test_a_plan_says_what_else_each_server_could_get_and_its_price(seen: list[Observation]) -> None:
    """Of the options of a Server, the best one on another accelerator, as its own page has them."""
    plan = next(p for p in objects(seen, Plan) if p.metadata.name == "fleet-7")
    system = decode_system(json.loads(gunzipped(plan.spec.inputs)))
    names = {s.metadata.name: s.spec.name for s in objects(seen, Server)}
    prices = {a.spec.name: a.spec.cost for a in objects(seen, Accelerator)}
    counts = {(p.model, p.accelerator): max(p.accelerator_count, 1) for p in system.profiles}
    models = {s.name: s.model for s in system.servers}

    page = view_plan(at(seen), "fleet-7")

    rows = dict(
        zip(
            column(page, "SERVER"),
            cells(page, "BEST ELSEWHERE", "BEST ELSEWHERE:PRICE"),
            strict=True,
        )
    )
    assert len(rows) == len(plan.spec.steps) > 3
    for step in plan.spec.steps:
        (after,), name = step.after, names[step.server]
        usable = (o for o in explain(system, name) if not o.reason)
        best = next(o for o in usable if o.accelerator != after.accelerator)
        each = prices[after.accelerator] * counts[models[name], after.accelerator]
        placement, price = rows[step.server]
        assert placement == f"{best.replicas} x {best.accelerator}"
        assert float(price) == pytest.approx(best.cost - after.replicas * each, abs=0.006)
    document = json.loads(json.dumps(page.document()))
    assert document["alternatives"].keys() == rows.keys()


def test_who_sees_plans_only_gets_a_plan_without_other_options(seen: list[Observation]) -> None:
    page = view_plan(at([o for o in seen if o.kind is Plan]), "fleet-7")

    table = find_main_table(page.parts)
    assert table is not None
    assert list(table.headings) == ["SERVER", "FROM", "TO", ">CHANGE", "REASON"]


def test_the_fleet_draws_the_load_of_each_server_over_time(seen: list[Observation]) -> None:
    """Each point is as far to the right as its time, and as far up as its load."""
    past = PlanLoads().loads(sort_plans(seen))
    servers = list(objects(seen, Server))

    page = view_fleet(at(seen), past=past)

    now = dict(zip(column(page, "SERVER"), column(page, "LOAD"), strict=True))
    text = html(page)
    drawn = re.findall(r'class="spark".*?aria-label="([^"]*)"><polyline points="([^"]*)"', text)
    assert len(drawn) == len(servers)
    for server, (words, points) in zip(sorted(servers, key=name_of_object), drawn, strict=True):
        loads = [(item.time, item.servers[server.spec.name].rate) for item in past]
        loads.append((NOW, float(now[server.metadata.name])))
        rates = [rate for _, rate in loads]
        length = (NOW - loads[0][0]).total_seconds()
        assert words.endswith(f"from {min(rates):g} to {max(rates):g} requests/min")
        placed = [tuple(map(float, point.split(","))) for point in points.split()]
        assert placed == [
            pytest.approx(
                (100 * (1 - (NOW - time).total_seconds() / length), 19 - 18 * rate / max(rates)),
                abs=0.06,
            )
            for time, rate in loads
        ]


def name_of_object(server: Server) -> str:
    return server.metadata.name


def test_without_plans_nothing_is_known_of_loads_over_time(seen: list[Observation]) -> None:
    page = view_fleet(at([o for o in seen if o.kind is not Plan]))

    assert 'class="spark"' not in html(page)
    assert json.loads(json.dumps(page.document()))["past"] == []


def health(page: ConsolePage) -> dict[str, Sequence[str]]:
    table = find_main_table(page.before)
    assert table is not None
    return {row[0]: row[1:] for row in table.rows}


@pytest.mark.parametrize(
    ("interval", "ago", "state"),
    [(600, 1700, "Optimized"), (600, 1900, "Overdue"), (None, 9000, "Optimized")],
)
def test_data_says_when_no_operator_makes_the_plans_that_are_due(
    seen: list[Observation], interval: int | None, ago: int, state: str
) -> None:
    later = [planned_ago(o, interval, ago) if o.kind is Optimizer else o for o in seen]

    found, last, _ = health(view_data(at(later), LEADER))["Optimizer fleet"]

    assert (found, last) == (state, format_duration(ago))


def planned_ago(observation: Observation, interval: int | None, ago_s: int) -> Observation:
    """An Optimizer that plans so often, whose last plan is so old."""
    optimizer = observation.resource
    assert isinstance(optimizer, Optimizer)
    last = optimizer.status.last_optimization
    assert last is not None
    result = last.model_copy(update={"time": NOW - timedelta(seconds=ago_s)})
    update = {
        "spec": optimizer.spec.model_copy(update={"interval": interval}),
        "status": optimizer.status.model_copy(update={"last_optimization": result}),
    }
    return replace(observation, resource=optimizer.model_copy(update=update))


def test_data_says_whether_prometheus_answers(seen: list[Observation]) -> None:
    measured = [s for s in objects(seen, Server) if s.status.measured]
    usable = [s for s in measured if s.status.measured.quality == "Fresh"]
    newest = min((NOW - s.status.measured.time).total_seconds() for s in usable)

    state, last, told = health(view_data(at(seen), LEADER))["Prometheus"]

    assert (state, last) == ("answers", f"{newest:.0f}s")
    assert told == f"{len(usable)} of {len(measured)} measured Servers have new numbers"
    typed = [o for o in seen if not isinstance(o.resource, Server) or not o.resource.spec.measure]
    assert health(view_data(at(typed), LEADER))["Prometheus"][0] == "not asked"


@pytest.mark.parametrize(
    ("ago_s", "holder", "row"),
    [
        (4, "pod-a_uid", ("leads", "4s", "pod-a leads since 2026-11-24 09:00 UTC")),
        (44, "pod-a_uid", ("leads", "44s", "pod-a leads since 2026-11-24 09:00 UTC")),
        (46, "pod-a_uid", ("Overdue", "46s", "pod-a leads since 2026-11-24 09:00 UTC")),
        (4, "", ("none", "4s", "no operator holds the Lease")),
    ],
)
def test_data_says_who_leads_since_when_and_whether_it_is_late(
    seen: list[Observation], ago_s: int, holder: str, row: tuple[str, str, str]
) -> None:
    renewed, acquired = NOW - timedelta(seconds=ago_s), NOW - timedelta(hours=3)
    page = view_data(at(seen), SeenLeader(Lease(holder, 15.0, acquired, renewed, 1)))

    state, last, known = health(page)["Leader"]

    assert (state, last, known.partition(";")[0]) == row
    document = page.document()
    assert isinstance(document, dict)
    assert document["leader"] == {
        "holder": holder,
        "since": acquired.isoformat(),
        "renewed": renewed.isoformat(),
        "transitions": 1,
    }


def test_data_says_why_the_leader_is_not_known(seen: list[Observation]) -> None:
    page = view_data(at(seen), SeenLeader(unknown="Lease a/b: HTTP 403"))

    assert health(page)["Leader"] == ("not known", "-", "Lease a/b: HTTP 403")


def test_what_if_says_what_the_change_makes_different(seen: list[Observation]) -> None:
    changes = ["server.*.load.arrivalRate*=1.5"]
    without, outcome = decide(seen, NAMESPACE, None), decide(seen, NAMESPACE, None, changes)
    before, after = ({d.server: d for d in r.solution.decisions} for r in (without, outcome))
    more = sum(d.allocation.cost for d in after.values() if d.allocation) - sum(
        d.allocation.cost for d in before.values() if d.allocation
    )
    placed = {
        name: [d.allocation.placement if d.allocation else "" for d in (before[name], after[name])]
        for name in before
    }

    page = view_next_plan(at(seen), outcome, changes, without=without)

    shown = figures(page)
    assert float(shown["What if: cost"]) == pytest.approx(more, abs=0.006)
    assert float(shown["Cost planned"]) == pytest.approx(outcome.solution.cost, abs=0.006)
    document = json.loads(json.dumps(page.document()))
    moved = {name for name, (old, new) in placed.items() if old != new}
    assert moved
    assert moved <= set(document["withoutChanges"]["different"])
    assert "What if: cost" not in figures(view_next_plan(at(seen), without, ()))
    (change,) = changes
    address = "/next?" + urlencode({"set": change})
    assert f'href="{address}&amp;set=capacity.' in html(page, f"set={change}")


@pytest.fixture(scope="module")
def failing() -> list[Observation]:
    return failing_world()


UNAVAILABLE = (
    "Optimizer fleet: Unavailable: the optimizer at http://inferno-optimizer:3302 does not answer:"
    " timed out after 60 s"
)
NO_CAPACITY = "needs 4 cards of H100, A100, MI300X or MI250, and all of these are in use"


@pytest.mark.parametrize(
    ("view", "trouble"),
    [
        (lambda seen: view_fleet(at(seen)), UNAVAILABLE),
        (lambda seen: view_plan(at(seen), "fleet-8"), f"Failed: {NO_CAPACITY}"),
        (
            lambda seen: view_server(at(seen), decide(seen, NAMESPACE, None), SERVER),
            f"NoCapacity: {NO_CAPACITY}",
        ),
    ],
)
def test_what_is_wrong_stands_above_all_numbers(
    failing: list[Observation], seen: list[Observation], view: View, trouble: str
) -> None:
    page = view(failing)

    assert page.troubles[0].startswith(trouble)
    shown = html(page)
    assert shown.index('<p class="notice trouble">') < shown.index('<dl class="figures">')
    assert shown.replace("\xa0", " ").count(escape(trouble)) == 1
    assert not any(trouble in told for told in view(seen).troubles)


def test_what_is_not_known_of_cards_is_not_told_as_0(
    failing: list[Observation], seen: list[Observation]
) -> None:
    shown, planned = (figures(view_capacity(at(found))) for found in (failing, seen))

    assert shown.keys() == {"Cards", "In use"}
    assert planned.keys() > shown.keys()


def test_times_have_their_zone(seen: list[Observation]) -> None:
    page = view_history(at(seen))

    changes = find_main_table(page.parts)
    assert changes is not None
    assert changes.rows
    assert all(re.fullmatch(r"2026-11-2\d \d\d:57 UTC", row[0]) for row in changes.rows)


def test_a_chart_of_a_load_speaks_of_dots_where_there_are_some(
    failing: list[Observation], server_page: ConsolePage
) -> None:
    past = PlanLoads().loads(sort_plans(failing))
    outcome = decide(failing, NAMESPACE, None)
    page = view_server(at(failing), outcome, SERVER, past=past)

    (without,), (marked,) = charts_of(page, "Load"), charts_of(server_page, "Load")
    assert "dots" not in without.words
    assert marked.words.endswith("; dots: Plans that changed the Server")


def test_data_says_which_servers_it_leaves_out_and_how_good_numbers_are(
    failing: list[Observation],
) -> None:
    page = view_data(at(failing), LEADER)
    notes = [part for part in page.before if isinstance(part, str)]

    left_out = "bronze-granite-13b, free-granite-34b, free-mistral-7b, premium-llama-70b"
    wrong = "InvalidSpec: spec.currentAlloc.load.arrivalRate is not a number: 'a lot'"
    assert notes == [f"{left_out}, premium-mistral-7b-long: {wrong}"]
    told = {figure.title: (figure.value, figure.note) for figure in page.figures}
    assert told["Fresh"] == ("12", "12 Partial")
    assert told["Stale"] == ("0", "of those that are measured")


def test_a_filter_says_how_many_rows_it_leaves_and_leads_back_to_all(
    seen: list[Observation],
) -> None:
    page = view_fleet(at(seen))

    def shown(**asked: str) -> str:
        return Pages(NAMESPACE, str.upper).render(page, "/", PageQuery(list(asked.items())))

    assert "5 of 20 rows" in shown(q="mistral-7b", sort="LOAD")
    assert '<a href="?sort=LOAD">All rows</a>' in shown(q="mistral-7b", sort="LOAD")
    assert "0 of 20 rows" in shown(q="no such words")
    assert "of 20 rows" not in shown(sort="LOAD")


def test_the_heading_says_how_rows_are_sorted(seen: list[Observation]) -> None:
    page = view_fleet(at(seen))

    def marked(*asked: tuple[str, str]) -> list[tuple[str, str]]:
        text = Pages(NAMESPACE, str.upper).render(page, "/", PageQuery(asked))
        return re.findall(r'aria-sort="(\w+)"><a [^>]+>([^<]+)', text)

    assert marked() == []
    assert marked(("sort", "LOAD")) == [("ascending", "LOAD")]
    assert marked(("sort", "LOAD"), ("order", "falling")) == [("descending", "LOAD")]


def test_a_plan_that_waits_has_buttons_and_no_commands(seen: list[Observation]) -> None:
    def waiting(observation: Observation) -> Observation:
        plan = observation.resource
        if not isinstance(plan, Plan) or plan.metadata.name != "fleet-8":
            return observation
        (told,) = plan.status.conditions
        message = f"{told.message}; {describe_answers('fleet-8')}"
        said = told.model_copy(update={"message": message})
        status = plan.status.model_copy(update={"conditions": (said,)})
        return replace(observation, resource=plan.model_copy(update={"status": status}))

    waits = [*map(waiting, seen)]

    assert view_plan(at(waits), "fleet-8").state == "Proposed: the Optimizer has mode Approve"
    assert "kubectl" not in str(view_plans(at(waits)).parts)


def test_a_chart_leaves_out_the_options_that_would_hide_the_others() -> None:
    named = [Option("a", cost=10.0), Option("b", cost=100.0), Option("c", cost=100.1)]

    assert [option.accelerator for option in list_affordable(named)] == ["a", "b"]
    assert len(list_affordable([Option("free", cost=0.0), *named])) == 4
    assert list_affordable([]) == []


def test_the_first_page_says_how_many_servers_have_a_single_replica() -> None:
    seen = world()
    specs = [o.resource.spec for o in seen if isinstance(o.resource, Server)]
    planned = [spec.desired_alloc or spec.current_alloc for spec in specs]
    alone = [a for a in planned if a and a.num_replicas == 1]
    price = sum(a.cost or 0 for a in alone)

    told = [part for part in view_fleet(at(seen)).before if isinstance(part, str)]

    assert len(alone) > 1
    assert any(
        line.startswith(
            f"{len(alone)} servers have a single replica; 2 each would cost {price:.2f}"
        )
        for line in told
    )


def test_a_proof_of_other_inputs_is_not_proven_now(seen: list[Observation]) -> None:
    (first, *_) = (o for o in seen if o.kind is Accelerator)
    assert first.resource is not None
    later = first.resource.metadata.model_copy(update={"creation_timestamp": NOW})
    added = replace(first, resource=first.resource.model_copy(update={"metadata": later}))
    proven = [with_proof(o, -10.0, -12.5) if o.kind is Optimizer else o for o in seen]
    edited = [replace(o, generation=2) if o is first else o for o in proven]

    for changed in ([*proven, added], edited):
        assert figures(view_fleet(at(changed)))["Could cost less by"] == "-"


def test_what_runs_costs_what_its_cards_cost_where_nobody_wrote_it(
    seen: list[Observation],
) -> None:
    (server,) = (o for o in seen if o.reference.key.name == "premium-llama3-8b")
    assert isinstance(server.resource, Server)
    current = server.resource.spec.current_alloc
    assert current is not None
    without = current.model_copy(update={"cost": None})
    unpriced = replace(server, resource=with_current(server.resource, without))
    objects_ = [unpriced if o is server else o for o in seen]
    outcome = decide(objects_, NAMESPACE, None)

    page = view_server(at(objects_), outcome, "premium-llama3-8b")
    now = next(figure for figure in page.figures if figure.title == "Now")

    assert now.note.startswith(f"{current.cost:.2f} ")


def test_the_cards_of_a_replica_count_those_of_its_accelerator(seen: list[Observation]) -> None:
    page = view_model(at(seen), "granite-34b")
    cards = dict(zip(column(page, "ACCELERATOR"), column(page, "CARDS"), strict=True))

    assert {name: cards[name] for name in cards if name.startswith(("2x", "4x"))} == {
        name: name[0] for name in cards if name.startswith(("2x", "4x"))
    }
    assert cards
