"""How the Servers of a namespace do, on terminals that may be small."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from scipy.stats import expon

from inferno_operator.cli.kubectl.choices import decide
from inferno_operator.cli.tables.servers import (
    MISSES_NOTE,
    UNDECIDED_NOTE,
    Headroom,
    Screen,
    build_overview,
    describe_overview,
    encode_overview,
    estimate_headrooms,
    measure_headrooms,
    tabulate_servers,
)
from inferno_operator.cli.tables.solution import tabulate_cards
from inferno_operator.cli.tables.table import RowOrder, format_age, format_csv, style_parts
from inferno_operator.controllers.planning.status import report_result
from inferno_operator.resources import Allocation, Measured, Percentiles, Target
from tests.unit.operator.objects import (
    NOW,
    Manifest,
    accelerator,
    capacity,
    condition,
    manifest,
    model,
    observed,
    optimizer,
    performance,
    running,
    server,
    service_class,
    system,
)

RUNNING = Allocation(
    accelerator="A", num_replicas=1, itl_average=20, wait_average=100, ttft_average=130
)


def shares(target: Target, running: Allocation | None = RUNNING) -> dict[str, float]:
    return {item.latency: round(item.share, 4) for item in estimate_headrooms(running, target)}


def test_a_mean_latency_takes_its_share_of_the_target() -> None:
    target = Target.model_validate({"model": "M", "slo-itl": 80, "slo-ttft": 100})

    assert shares(target) == {"itl": 0.75, "ttft": -0.3}


def test_measured_percentiles_of_inter_token_latencies_take_their_share_of_the_target() -> None:
    measured = Measured(
        time=datetime(2026, 1, 1, tzinfo=UTC),
        quality="Fresh",
        itl_average=20,
        itl_of_requests=Percentiles(p50=19, p95=30, p99=40),
    )
    target = Target(model="M", slo_itl=50, slo_itl_percentile=95)

    assert measure_headrooms(measured, target) == (Headroom("itl", 30, 50),)


@pytest.mark.parametrize("percentile", [None, 90.0, 99.0])
def test_waits_are_compared_at_the_percentile_of_their_target(percentile: float | None) -> None:
    target = Target.model_validate(
        {"model": "M", "slo-ttw": 1000, "slo-ttw-percentile": percentile}
    )

    waited = expon(scale=100).ppf((percentile or 95) / 100)
    assert shares(target) == {"wait": round(1 - waited / 1000, 4)}


def test_only_the_wait_in_a_time_to_first_token_has_a_tail() -> None:
    target = Target.model_validate({"model": "M", "slo-ttft": 500, "slo-ttft-percentile": 99})

    (found,) = estimate_headrooms(RUNNING, target)

    assert found.value_ms == pytest.approx(30 + expon(scale=100).ppf(0.99))


@pytest.mark.parametrize(
    "running",
    [
        None,
        Allocation(accelerator="", num_replicas=0, itl_average=20),
        Allocation(accelerator="A", num_replicas=1),
    ],
)
def test_without_measurements_nothing_is_told(running: Allocation | None) -> None:
    target = Target.model_validate({"model": "M", "slo-itl": 80, "slo-ttw": 1000, "slo-ttft": 100})

    assert shares(target, running) == {}


def test_without_targets_nothing_is_told() -> None:
    assert estimate_headrooms(RUNNING, None) == ()
    assert shares(Target(model="M", slo_itl=0)) == {}


PROMISES = manifest(
    "ServiceClass",
    {"name": "C", "priority": 1, "data": [{"model": "M", "slo-itl": 40, "slo-ttft": 200}]},
    name="c",
)


def measured(
    name: str, itl: float, reason: str = "", status: str = "True", message: str = ""
) -> Manifest:
    """A Server that runs on two cards; with a reason, its condition Ready."""
    current = {**running(2, 2), "itlAverage": itl, "ttftAverage": 100}
    found = server(name, spec={"currentAlloc": current})
    if reason:
        ready = condition("Ready", reason, status=status, message=message)
        found["status"] = {"conditions": [ready]}
    return found


def lines(*manifests: Manifest) -> list[str]:
    parts = list(describe_overview(build_overview([observed(m) for m in manifests]), NOW))
    return [" ".join(line.split()) for line in "\n".join(map(str, parts)).splitlines()]


def table(*manifests: Manifest) -> list[str]:
    """The lines from the table of Servers on."""
    shown = lines(*manifests)
    return shown[next(i for i, line in enumerate(shown) if line.startswith("SERVER ")) :]


def test_a_cost_that_is_not_told_is_worked_out() -> None:
    here = measured("S", 30)
    del here["spec"]["currentAlloc"]["cost"]

    shown = lines(here, accelerator(), model())

    assert "cost 20.00 now" in "".join(shown)


def test_a_desired_cost_says_for_how_many_servers_it_is() -> None:
    decided = measured("S", 30)
    decided["spec"]["desiredAlloc"] = running(1, 1)

    shown = lines(decided, measured("T", 30), accelerator(), model())

    assert "cost 40.00 now, 10.00 desired for 1 of them (cents/hour)" in "\n".join(shown)


def test_cards_are_counted_in_the_same_way_in_every_view() -> None:
    lost = server("Lost", spec={"class": "gone", "currentAlloc": running(2, 2)})
    mute = server("Mute", spec={"currentAlloc": {"accelerator": "A", "numReplicas": 1}})
    torn = server("Torn", spec={"currentAlloc": running(1, 1), "minNumReplicas": "1"})
    served = server(wanted=2)
    scene = [*system(9), served, lost, mute, torn]
    asking = optimizer()
    observations = [observed(item) for item in (*scene, asking)]
    solution = decide(observations, "default", None).solution
    written = report_result(observations[-1], solution, NOW).extra_status

    planned = str(tabulate_cards(solution.capacity))
    top = lines(*scene, {**asking, "status": dict(written)})

    # Two of the nine cards are for S; Lost, Mute and Torn hold two, one and one.
    assert planned.splitlines()[1].split() == ["T", "2", "4", "9"]
    assert written["lastOptimization"]["capacity"] == [
        {"type": "T", "used": 2, "available": 9, "held": 4}
    ]
    place = top.index("CARDS IN USE PLANNED HELD AVAILABLE PRICE")
    assert top[place + 1] == "T 4 2 4 9 -"


def test_warnings_are_told_above_the_servers() -> None:
    warned = measured("S", 30, status="True", reason="Allocated", message="2 x A")
    told = condition("Warnings", "Implausible", message="a large one")
    warned["status"]["conditions"].append(told)
    known, unknown = performance(), performance("Gone")

    shown = lines(warned, PROMISES, accelerator(), model(data=[known, unknown]), optimizer())

    assert shown[:2] == [
        "s: warning: a large one",
        "warning: model 'M' (Gone): acc: no accelerator is named 'Gone'; correct it or add one",
    ]


def test_what_corrects_a_plan_is_told_with_the_servers() -> None:
    corrected = measured("S", 30, status="True", reason="Allocated", message="2 x A")
    told = condition("Corrected", "TargetsMissed", message="planned for 1.25 times the load")
    corrected["status"]["conditions"].append(told)

    shown = lines(corrected, PROMISES, *system(9), optimizer())

    assert "s: planned for 1.25 times the load" in shown


def test_servers_stand_beside_their_targets_and_cards() -> None:
    missing = measured(
        "S", 50, status="False", reason="NoCapacity", message="not enough cards: it takes 2"
    )

    assert lines(missing, PROMISES, accelerator(), model(), capacity(5), optimizer()) == [
        "s: not enough cards: it takes 2",
        "",
        "SERVER CLASS CURRENT DESIRED LOAD REQ/MIN ITL/SLO LEFT TTFT/SLO LEFT COST READY",
        "s C 2 x A - 90 50.0/40 -25% 100.0/200 50% 20.00 NoCapacity",
        "",
        "1 of 1 servers miss a target now; cost 20.00 now, no desired allocation (cents/hour)",
        "",
        "CARDS IN USE PLANNED HELD AVAILABLE PRICE",
        "T 2 - - 5 -",
        "",
        "Optimizer inferno: not optimized yet",
    ]


@pytest.mark.parametrize(
    ("itl_ms", "left"), [(38, "5%"), (439, "-998%"), (440, "<-999%"), (300_000, "<-999%")]
)
def test_how_much_a_target_is_missed_has_three_digits_at_most(itl_ms: float, left: str) -> None:
    slow = measured("S", itl_ms, status="True", reason="Allocated", message="2 x A")

    shown = table(slow, PROMISES, accelerator(), model(), optimizer())

    assert shown[1].split()[7] == f"{itl_ms:.1f}/40"
    assert shown[1].split()[8] == left


def test_of_counted_cards_those_of_others_and_the_limit_are_shown() -> None:
    numbers = {"total": 16, "others": 3, "ours": 2, "free": 11, "available": 9}
    counts = {"counted": [{"type": "T", **numbers, "boundBy": "ResourceQuota team"}]}
    counting = {**manifest("Capacity", {"fromNodes": True}, name="cards"), "status": counts}

    shown = lines(accelerator(), counting)

    place = shown.index("CARDS IN USE PLANNED HELD AVAILABLE PRICE TOTAL OTHERS LIMITED BY")
    assert shown[place + 1] == "T 0 - - 9 - 16 3 ResourceQuota team"


def test_cards_that_are_not_counted_yet_are_told_and_do_not_hide_the_rest() -> None:
    told = condition("Counted", "Rejected", status="False", message="no right")
    counting = manifest("Capacity", {"fromNodes": True}, name="cards")

    found = build_overview([observed({**counting, "status": {"conditions": [told]}})])

    assert found.troubles == ("Capacity cards: Rejected: no right",)
    assert found.cards == ()


def test_a_server_that_cannot_be_read_is_there_with_the_field() -> None:
    broken = server("Broken")
    del broken["spec"]["model"]

    seen = build_overview([observed(broken)])

    assert "broken: spec.model is missing" in [str(part) for part in describe_overview(seen, NOW)]
    assert tabulate_servers(seen.servers).rows[0][:4] == ("broken", "-", "-", "-")
    assert encode_overview(seen)["servers"][0]["reason"] == "InvalidSpec"


def test_the_prices_are_those_of_the_newest_plan() -> None:
    def planned(name: str, minute: int, price: float) -> Manifest:
        last = {
            "time": f"2026-01-01T00:{minute:02}:00Z",
            "requestedGeneration": 1,
            "servers": 1,
            "allocated": 1,
            "cost": 20,
            "capacity": [{"type": "T", "used": 1, "available": 5, "price": price}],
        }
        return {**optimizer(name), "status": {"lastOptimization": last}}

    found = build_overview([observed(planned("a", 2, 7.5)), observed(planned("b", 1, 9.5))])

    (cards,) = [cards.to_json() for cards in found.cards]
    assert (cards["type"], cards["planned"], cards["price"]) == ("T", 1, 7.5)


def test_load_that_one_more_card_serves_stands_in_place_of_its_price() -> None:
    use = {"type": "T", "used": 1, "available": 5, "gain": {"priority": 2, "load": 30.5}}
    last = {
        "time": "2026-01-01T00:00:00Z",
        "requestedGeneration": 1,
        "servers": 1,
        "allocated": 1,
        "cost": 20,
        "capacity": [use],
    }

    subject = {**optimizer("a"), "status": {"lastOptimization": last}}

    assert "T 0 1 0 0 +30.50 req/min of priority 2" in lines(subject)
    capacity = encode_overview(build_overview([observed(subject)]))["capacity"]
    assert capacity[0]["gain"] == {"priority": 2, "load": 30.5}


def test_a_note_that_several_servers_have_is_one_sentence() -> None:
    troubled = {"status": "False", "reason": "UnknownModel", "message": "there is no such model"}

    shown = lines(*(measured(name, 30, **troubled) for name in "abcdefg"))

    assert [line for line in shown if "no such model" in line] == [
        "a, b, c, d, e and 2 more: there is no such model"
    ]


def test_servers_that_no_optimization_has_seen_are_told() -> None:
    last = {"time": "2026-03-01T11:59:00Z", "servers": 1, "allocated": 1, "cost": 20}
    last |= {"observedGeneration": 1, "requestedGeneration": 1}
    optimized = {**optimizer("a"), "status": {"lastOptimization": last}}
    decided = measured("old", 30, status="True", reason="Allocated", message="")

    shown = lines(server("new"), server("other"), decided, optimized)

    told = [line for line in shown if "new since" in line]
    assert told == [f"new, other: {UNDECIDED_NOTE}"]
    assert not [line for line in lines(server("new"), optimizer("a")) if "new since" in line]


def test_nothing_at_all_is_told_too() -> None:
    assert lines() == ["No Servers in this namespace. Use -n to choose another."]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-5, "0s"), (59, "59s"), (60, "1m"), (7200, "2h"), (200_000, "2d")]
)
def test_ages_are_in_one_unit(seconds: int, shown: str) -> None:
    assert format_age(NOW, NOW + timedelta(seconds=seconds)) == shown


WIDE = 200
"""Width of a terminal that has room for all columns."""


def test_a_terminal_shows_the_same_text() -> None:
    parts = list(
        describe_overview(build_overview([observed(measured("S", 50)), observed(PROMISES)]), NOW)
    )

    shown = [line.rstrip() for line in style_parts(parts, WIDE).plain.splitlines()]
    assert shown == "\n".join(map(str, parts)).splitlines()


@pytest.mark.parametrize(("itl", "style"), [(50, "red"), (10, "")])
def test_missed_targets_stand_out(itl: float, style: str) -> None:
    text = style_parts(
        describe_overview(build_overview([observed(measured("S", itl)), observed(PROMISES)]), NOW),
        WIDE,
    )

    styles = {str(span.style) for span in text.spans} - {"", "bold"}
    assert styles == ({style} if style else set())


MEASURE = {"source": "vLLM", "labels": {"model_name": "m"}}


def by_prometheus(name: str, **numbers: object) -> Manifest:
    """A Server that is measured; without numbers, nothing is known of it yet."""
    found = measured(name, 30, status="True", reason="Allocated", message="")
    found["spec"]["measure"] = MEASURE
    if numbers:
        status = {"time": "2026-01-01T00:00:00Z", "quality": "Fresh", **numbers}
        found["status"]["measured"] = status
    return found


def test_measured_latencies_are_shown_instead_of_those_in_the_spec() -> None:
    shown = lines(by_prometheus("S", arrivalRate=120, itlAverage=36, avgOutTokens=10), PROMISES)

    assert shown[0] == "SERVER CLASS CURRENT DESIRED LOAD REQ/MIN ITL/SLO LEFT COST MEASURED READY"
    assert shown[1] == "s C 2 x A - 120 36.0/40 10% 20.00 Fresh Allocated"


def test_a_server_that_misses_a_target_now_is_not_shown_as_fine() -> None:
    shown = lines(by_prometheus("S", arrivalRate=120, itlAverage=60, avgOutTokens=10), PROMISES)

    assert shown[0] == f"s: {MISSES_NOTE}"
    assert shown[3].endswith("60.0/40 -50% 20.00 Fresh MissesTarget")
    assert "1 of 1 servers miss a target now" in "".join(shown)


def test_what_is_not_measured_is_unknown_and_not_what_the_spec_has() -> None:
    shown = lines(by_prometheus("S"), measured("T", 30), PROMISES)

    assert shown[1] == "s C 2 x A - 90 unknown unknown 20.00 unknown Allocated"
    told = "".join(shown)
    assert "0 of 1 servers with measured latencies miss a target now; unknown: 1" in told
    assert "(1 not measured yet); cost" in told


def test_where_nothing_is_known_no_server_is_said_to_hold_its_targets() -> None:
    shown = lines(server("S", spec={"currentAlloc": running(1, 1)}), PROMISES)

    assert "no measured latencies yet; cost" in "".join(shown)
    assert "miss" not in "".join(shown)


def test_a_server_under_load_without_a_replica_misses_its_targets() -> None:
    shown = lines(server("S"), server("T"), measured("U", 30), PROMISES)

    assert "2 of 3 servers miss a target now" in "".join(shown)


def test_a_measurement_that_is_not_fresh_says_what_to_do() -> None:
    shown = lines(by_prometheus("S", quality="Partial", message="2 of 4 replicas report"))

    assert "s: Partial: 2 of 4 replicas report" in shown


def test_csv_of_no_servers_has_their_headings() -> None:
    assert format_csv([tabulate_servers(build_overview([]).servers)]).startswith(
        "SERVER,CLASS,CURRENT,"
    )


def test_it_is_said_which_replicas_of_a_server_have_prompts_in_their_caches() -> None:
    warm = measured("S", 30)
    current = warm["spec"]["currentAlloc"]
    current["coldReplicas"] = 1
    current["load"] = {
        "arrivalRate": 60, "avgInTokens": 2000, "avgOutTokens": 128, "cachedTokens": 1200
    }  # fmt: skip

    shown = "\n".join(lines(warm))

    said = "1200 of 2000 input tokens are in the prefix caches of 1 of 2 replicas"
    assert f"{said}; others compute whole prompts" in shown


def test_an_optimizer_says_why_it_has_no_plan_yet_although_nobody_asks_for_one() -> None:
    told = condition("Optimized", "Unavailable", status="False", message="nobody answers")
    at_rest = optimizer()
    at_rest["spec"] = {**at_rest["spec"], "optimize": False}
    failing = {**at_rest, "status": {"conditions": [told]}}
    waiting = {**at_rest, "status": {"conditions": [{**told, "status": "Unknown"}]}}

    assert lines(failing)[0] == "Optimizer inferno: Unavailable: nobody answers"
    assert lines(waiting)[0] == "Optimizer inferno: waiting: kubectl inferno optimize"
    assert lines(failing)[-1] == lines(waiting)[-1] == "Optimizer inferno: not optimized yet"


def test_servers_wait_where_nothing_was_asked_for() -> None:
    at_rest = optimizer(optimize=False)

    shown = lines(server("S"), at_rest)

    assert shown[0] == "Optimizer inferno: waiting: kubectl inferno optimize"
    assert shown[3].endswith(" waiting")


def test_every_placement_shows_the_cards_of_a_replica() -> None:
    eight = model()
    eight["spec"]["data"][0]["accCount"] = 8
    here = server("S", spec={"currentAlloc": running(3, 2), "desiredAlloc": running(1, 2)})

    row = table(here, accelerator(), eight)[1]

    assert row.startswith("s C 3 x 8xA 1 x 8xA ")


def test_more_cards_in_use_than_there_are_are_marked() -> None:
    here = server("S", spec={"currentAlloc": running(36, 2)})

    shown = lines(here, accelerator(), model(), capacity(32))

    assert (
        "! 36 cards of T in use, and only 32 available: correct Capacity or currentAlloc" in shown
    )
    assert any(line.startswith("T 36! ") for line in shown)


def test_a_narrow_terminal_keeps_the_target_that_is_missed() -> None:
    targets = {"model": "M", "slo-itl": 100, "slo-ttw": 10}
    promises = manifest("ServiceClass", {"name": "C", "priority": 1, "data": [targets]}, name="c")
    current = {**running(2, 2), "itlAverage": 7, "waitAverage": 18.77}
    here = server("S", spec={"currentAlloc": current})
    table = tabulate_servers(build_overview([observed(m) for m in (here, promises)]).servers)
    names = [heading.removeprefix(">").replace(":", " ") for heading in table.headings]

    places = [names.index(name) for name in ("ITL/SLO LEFT", "WAIT/SLO LEFT")]
    narrow, left_out = table.fit(table.width() // 2)

    assert [table.rows[0][place] for place in places] == ["93%", "-462%"]
    assert "ITL/SLO LEFT" in left_out or "WAIT/SLO LEFT" not in left_out
    assert list(table.optional)[-1] == "WAIT/SLO LEFT"
    assert narrow.width() < table.width()


HIGH, LOW = service_class("High", priority=1), service_class("Low", priority=9)


def placed(name: str, class_name: str, message: str = "") -> Manifest:
    """A Server of a class; with a message there are no cards for it."""
    found = server(name, spec={"class": class_name, "currentAlloc": running(2, 2)})
    refused = condition("Ready", "NoCapacity", status="False", message=message)
    return {**found, "status": {"conditions": [refused] if message else []}}


def shown(
    manifests: Sequence[Manifest], height: int, order: RowOrder | None = None, trouble: str = ""
) -> list[str]:
    """Lines of a screen."""
    seen = build_overview([observed(m) for m in (HIGH, LOW, *manifests)])
    heading = [trouble, ""] if trouble else []
    text = Screen(160, height).draw(seen, NOW, order or RowOrder(), heading)
    return text.plain.split("\n")


def names(lines: Sequence[str]) -> list[str]:
    """First words of the rows of servers."""
    return [line.split()[0] for line in lines if " x A " in line]


CALM = [placed(f"s{number:02}", "Low") for number in range(40)]
IMPORTANT = placed("z-important", "High")
TROUBLED = [placed("y-low", "Low", "no cards are left"), placed("x-high", "High", "none at all")]


def test_a_screen_with_room_for_all_shows_them_by_name() -> None:
    lines = shown([*CALM, IMPORTANT, *TROUBLED], 60)

    assert names(lines) == [*(f"s{n:02}" for n in range(40)), "x-high", "y-low", "z-important"]
    assert not any("no room" in line for line in lines)


def test_problems_come_first_then_important_classes_and_the_last_line_counts_the_others() -> None:
    lines = shown([*CALM, IMPORTANT, *TROUBLED], 16)

    assert names(lines) == ["x-high", "y-low", "z-important", *(f"s{n:02}" for n in range(6))]
    assert len(lines) == 16
    assert lines[-2].endswith("cost 860.00 now, no desired allocation (cents/hour)")
    assert lines[-1] == "no room for 34 of 43 servers; --once shows all"


def test_a_remark_on_a_fresh_measurement_is_no_problem() -> None:
    known = {"time": "2026-11-25T12:00:00Z", "quality": "Fresh", "arrivalRate": 60}
    lengths = {"avgInTokens": 500, "avgOutTokens": 200}
    copied = {**known, **lengths, "message": "each target has 2 copies, they differ in replica"}
    lacking = {**known, "message": "plans lack the mean lengths of requests"}
    first, last = placed("a-copied", "Low"), placed("z-lacking", "Low")
    for found, measured in ((first, copied), (last, lacking)):
        found["spec"]["measure"] = {"source": "vLLM", "labels": {"app": "a"}}
        found["status"]["measured"] = measured

    assert names(shown([first, *CALM, last], 16))[:2] == ["z-lacking", "a-copied"]


def test_notes_leave_most_lines_to_the_rows() -> None:
    lines = shown([placed(f"s{n:02}", "Low", f"too few: {n}") for n in range(40)], 20)

    notes = [line for line in lines if "too few" in line]
    assert (len(names(lines)), len(notes), len(lines)) == (10, 5, 20)
    assert lines[-1] == "no room for 30 of 40 servers and 35 of 40 notes; --once shows all"


def test_the_chosen_order_stays() -> None:
    order = RowOrder.parse("", "-server")

    assert names(shown([*CALM, *TROUBLED], 16, order))[:2] == ["y-low", "x-high"]
    assert names(shown([*CALM, IMPORTANT], 16, order))[:2] == ["z-important", "s39"]


def test_a_line_above_takes_room_too_and_the_smallest_screen_says_what_is_missing() -> None:
    lines = shown(CALM, 8, trouble="what is shown may be old")

    assert lines[0] == "what is shown may be old"
    assert names(lines) == ["s00", "s01"]
    assert lines[-1] == "no room for 38 of 40 servers; --once shows all"
