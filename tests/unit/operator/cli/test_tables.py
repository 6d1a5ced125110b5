"""Tables: what is shown of them, in which order, and as CSV."""

from dataclasses import replace

import pytest

from inferno_operator.cli.options import CENTS, Money
from inferno_operator.cli.tables.calibration import warn_of_weak_data
from inferno_operator.cli.tables.solution import (
    SCORE,
    describe_options,
    describe_saved_work,
    describe_solution,
    tabulate_cards,
)
from inferno_operator.cli.tables.table import (
    RowOrder,
    ServerPart,
    ServerParts,
    TextTable,
    format_csv,
    order_rows,
    style_parts,
)
from inferno_operator.resources import API_VERSION, Model, parse
from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.options import explain
from inferno_optimizer.optimize import optimize
from inferno_optimizer.solution import CapacityUse, Gain
from inferno_optimizer.system import (
    Allocation,
    DecodeParameters,
    Load,
    PerformanceProfile,
    Role,
    Server,
)
from inferno_optimizer.wire.codec import decode_system
from tests.generate import fleet
from tests.unit.optimizer.systems import one_server

PROFILE = PerformanceProfile("llm", "G2", DecodeParameters(17.15, 0.34), 38, 512)
SERVER = Server("chat", "Premium", "llm", Allocation(load=Load(60, 512)), max_batch_size=64)
SYSTEM = one_server(SERVER, PROFILE)

WARNING = (
    "warning: a batch of 64 on G2 keeps 32768 tokens in memory (512 of each request), more than"
    " the 19456 that follow from maxBatchSize and atTokens of model 'llm'; give maxTokens of the"
    " model, or a smaller maxBatchSize of the server"
)


def test_a_plan_is_followed_by_its_warnings() -> None:
    shown = [*map(str, describe_solution(SYSTEM, optimize(SYSTEM)))]

    assert shown[2] == f"chat: {WARNING}"


def test_an_estimated_price_has_a_tilde() -> None:
    uses = (
        CapacityUse("A", 1, 1, price=98.4, estimated=True),
        CapacityUse("B", 1, 1, price=315.0),
        CapacityUse("C", 1, 1, gain=Gain(2, 30.0), estimated=True),
    )

    cells = [line.split(maxsplit=4)[-1] for line in str(tabulate_cards(uses)).splitlines()]

    assert cells == ["PRICE", "~98.40", "315.00", "~+30.00 req/min of priority 2"]


def test_a_step_of_the_solver_that_failed_is_warned_of_below_the_proof() -> None:
    solution = optimize(SYSTEM)
    failed = replace(solution.certificate, failures=("value: ValueError: no good",))

    shown = [*map(str, describe_solution(SYSTEM, replace(solution, certificate=failed)))]

    assert shown[-1] == (
        "warning: the solver failed at value: ValueError: no good; the plan is the best one found"
        " without it"
    )


def test_an_explanation_is_followed_by_its_warnings() -> None:
    shown = [*map(str, describe_options(explain(SYSTEM, "chat")))]

    assert shown[1:] == [SCORE, "", WARNING]


def test_what_is_held_is_shown_with_its_cost() -> None:
    """3 G2 at 25 run under an unknown class: they stay, and cost what they do now."""
    current = replace(SERVER.current, accelerator="G2", replicas=3, cost=75)
    held = replace(SERVER, name="held", service_class="gone", current=current)
    system = replace(SYSTEM, servers=(*SYSTEM.servers, held))

    shown = [*map(str, describe_solution(system, optimize(system)))]

    row = shown[0].splitlines()[2].split()
    runs = ("3", "x", "G2", "75.00")
    assert row == ["held", "gone", "llm", "60", *runs, *runs, "UnknownClass"]
    assert "1 of 2 servers have an allocation; cost 75.00 -> 85.00 cents/hour" in shown


PLACED = TextTable(
    ("SERVER", "CLASS", "CURRENT", ">CURRENT:COST", "REASON"),
    [("chat", "Premium", "2 x A", "20.00", "Allocated")],
    ("CLASS", "CURRENT", "CURRENT COST"),
)


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (80, "SERVER CLASS CURRENT COST REASON"),
        (40, "SERVER CURRENT COST REASON"),
        (33, "SERVER CURRENT COST REASON"),  # of the column that is gone
        (20, "SERVER REASON"),
        (1, "SERVER REASON"),
    ],
)
def test_a_narrow_terminal_shows_fewer_columns(width: int, titles: str) -> None:
    table, left_out = PLACED.fit(width)

    assert " ".join(table.lines()[0]).split() == titles.split()
    assert len(left_out) + len(table.headings) == len(PLACED.headings)
    assert table.width() <= max(width, 17)


def test_a_terminal_tells_which_columns_it_has_no_room_for() -> None:
    assert style_parts([PLACED], 20).plain.splitlines()[-1] == (
        "hidden (terminal too narrow): CLASS, CURRENT, CURRENT COST; -o csv has all"
    )


def test_csv_is_named_only_below_the_table_that_it_has() -> None:
    other = replace(PLACED, headings=("CARDS", *PLACED.headings[1:]))

    shown = style_parts([PLACED, "", other], 20).plain.splitlines()

    assert [line for line in shown if line.startswith("hidden")] == [
        "hidden (terminal too narrow): CLASS, CURRENT, CURRENT COST; -o csv has all",
        "hidden (terminal too narrow): CLASS, CURRENT, CURRENT COST",
    ]


def test_csv_is_named_nowhere_where_its_table_has_no_rows() -> None:
    cards = replace(PLACED, headings=("CARDS", *PLACED.headings[1:]))

    shown = style_parts([cards], 20, like=PLACED).plain.splitlines()

    assert shown[-1] == "hidden (terminal too narrow): CLASS, CURRENT, CURRENT COST"


def test_a_fleet_of_200_servers_fits_every_terminal() -> None:
    system = decode_system(fleet(200, 13, seed=1, demand=1.3))
    servers = next(iter(describe_solution(system, optimize(system))))
    assert isinstance(servers, TextTable)

    widths = [servers.fit(width)[0].width() for width in (80, 120, 200)]

    assert all(have <= most for have, most in zip(widths, (80, 120, 200), strict=True))


def test_the_options_of_a_server_fit_a_narrow_terminal_but_for_a_sentence() -> None:
    system = decode_system(fleet(20, 13, seed=1, demand=1.3))
    options = next(iter(describe_options(explain(system, system.servers[0].name))))
    assert isinstance(options, TextTable)

    table, left_out = options.fit(80)

    assert options.without("WHY NOT").width() > 80 >= table.without("WHY NOT").width()
    assert "COST" not in left_out


def test_csv_has_every_column_of_the_first_table_with_a_name_of_its_own() -> None:
    assert format_csv(["a sentence", PLACED, PLACED]).splitlines() == [
        "SERVER,CLASS,CURRENT,CURRENT COST,REASON",
        "chat,Premium,2 x A,20.00,Allocated",
    ]


def test_csv_has_a_column_for_each_thing_that_a_server_gets_and_totals() -> None:
    two = [
        ServerPart("Premium", "B prefill", "B", 1, 2, 10.0),
        ServerPart("Premium", "A", "A", 2, 2, 20.0),
    ]
    one = [ServerPart("Free", "A", "A", 1, 1, 10.0)]
    rows = [("chat", "3 on A and B", "30.00"), ("code", "1 x A", "10.00"), ("idle", "-", "")]
    headings = ("SERVER", "DESIRED", ">DESIRED:COST")
    parts = ServerParts({"chat": two, "code": one, "idle": []}.__getitem__, Money("USD", 100.0), 3)

    assert format_csv([TextTable(headings, rows, (), parts)]).splitlines() == [
        "SERVER,DESIRED,DESIRED COST,ACCELERATOR,TYPE,REPLICAS,CARDS,COST USD/HOUR,COST USD/MONTH",
        "chat,3 on A and B,30.00,B prefill,B,1,2,0.10,73.00",
        "chat,3 on A and B,,A,A,2,2,0.20,146.00",
        "code,1 x A,10.00,A,A,1,1,0.10,73.00",
        "idle,-,,,,,,,",
        "TOTAL class Free,,,,,1,1,0.10,73.00",
        "TOTAL class Premium,,,,,3,4,0.30,219.00",
        "TOTAL type A,,,,A,3,3,0.30,219.00",
        "TOTAL type B,,,,B,1,2,0.10,73.00",
        "TOTAL,,,,,4,5,0.40,292.00",
    ]


def test_totals_are_those_of_the_rows_that_are_asked_for() -> None:
    parts = ServerParts(lambda name: [ServerPart(name, "A", "A", 1, 1, 10.0)], CENTS, 2)
    table = TextTable(("SERVER",), [("a",), ("b",)], (), parts)

    printed = format_csv(order_rows([table], RowOrder("b"))).splitlines()

    assert [line.split(",")[0] for line in printed] == [
        "SERVER",
        "b",
        *(f"TOTAL of these rows{of}" for of in (" class b", " type A", "")),
    ]


def test_csv_of_sentences_is_refused() -> None:
    with pytest.raises(InputError, match="no table"):
        format_csv(["nothing changes"])


def test_it_is_said_which_replicas_have_prompts_in_their_caches() -> None:
    (server,) = [s for s in SYSTEM.servers if s.name == "chat"]
    load = replace(server.load, input_tokens=2000, output_tokens=128, cached_tokens=1200)
    current = replace(server.current, replicas=6, cold_replicas=3, load=load)
    warm = replace(SYSTEM, servers=(replace(server, current=current),))

    assert [*describe_saved_work(SYSTEM, "chat")] == []
    said = "1200 of 2000 input tokens are in the prefix caches of 3 of 6 replicas"
    assert [*describe_saved_work(warm, "chat")] == ["", f"{said}; others compute whole prompts"]


def test_replicas_that_only_decode_have_no_prompts_in_their_caches() -> None:
    (server,) = [s for s in SYSTEM.servers if s.name == "chat"]
    load = replace(server.load, input_tokens=2000, output_tokens=128, cached_tokens=1200)
    parts = (Allocation("G2", 3, role=Role.PREFILL), Allocation("G2", 5, role=Role.DECODE))
    current = replace(server.current, replicas=8, load=load, roles=parts)
    apart = replace(SYSTEM, servers=(replace(server, current=current),))

    _, said = describe_saved_work(apart, "chat")

    found = "1200 of 2000 input tokens are in the prefix caches of 3 of 3 replicas"
    assert said == f"{found}; others compute whole prompts"


def test_it_is_said_how_many_tokens_of_an_answer_a_step_makes() -> None:
    (server,) = [s for s in SYSTEM.servers if s.name == "chat"]
    current = replace(server.current, load=replace(server.load, tokens_per_step=2.5))
    drafting = replace(SYSTEM, servers=(replace(server, current=current),))

    said = "a step makes 2.5 tokens of an answer, as drafts are accepted"
    assert [*describe_saved_work(drafting, "chat")] == [
        "",
        f"{said}; profiles with stepParms count on it",
    ]


def test_it_is_said_which_parameters_measurements_hardly_tell_and_for_which_lengths_they_hold() -> (
    None
):
    lengths = {"minInTokens": 256, "maxInTokens": 1024, "minOutTokens": 64, "maxOutTokens": 256}
    row = {
        "acc": "H100",
        "reason": "Calibrated",
        "time": "2026-01-01T00:00:00Z",
        "stepParms": {"alpha": 9, "kappa": 0.001, "delta": 0.02, **lengths},
        "hardlyKnown": [{"name": "kappa", "error": 0.81, "share": 0.13}],
    }
    manifest = {
        "apiVersion": API_VERSION,
        "kind": "Model",
        "metadata": {"name": "llm"},
        "spec": {"name": "llm"},
        "status": {"calibration": [row, {**row, "acc": "A100", "hardlyKnown": []}]},
    }
    model = parse(manifest)
    assert isinstance(model, Model)

    _, told = warn_of_weak_data([model])

    assert told == (
        "warning: stepParms of llm on H100: measurements hardly tell kappa (± 81%, at most 13% of a"
        " latency); plans hold for 256 to 1024 input and 64 to 256 output tokens"
    )


TABLE = TextTable(
    ("SERVER", ">LOAD", ">ITL/SLO", "READY"),
    [
        ("b", "9", "18.0/80", "Allocated"),
        ("a", "10", "9.0/40", "NoCapacity"),
        ("c", "-", "", "Allocated"),
    ],
)


def rows(words: str = "", sort: str = "") -> list[str]:
    note, table = order_rows(["note", TABLE], RowOrder.parse(words, sort))
    assert note == "note"
    assert isinstance(table, TextTable)
    return [row[0] for row in table.rows]


def test_rows_have_all_the_words() -> None:
    assert rows("allocated") == ["b", "c"]
    assert rows("ALLOC 9") == ["b"]
    assert rows("none") == []


def test_numbers_are_sorted_by_size_before_texts() -> None:
    assert rows(sort="load") == ["b", "a", "c"]
    assert rows(sort="-LOAD") == ["c", "a", "b"]
    assert rows(sort="SERVER") == ["a", "b", "c"]
    assert rows(sort="itl/slo") == ["a", "b", "c"]


def test_estimates_and_limits_are_sorted_by_their_numbers() -> None:
    cells = ("5%", "<-999%", "-444%", "~0.50", "-")
    table = TextTable(("SERVER", ">LEFT"), [("s", cell) for cell in cells])

    in_order = RowOrder.parse("", "left").apply(table)

    assert [cell for _, cell in in_order.rows] == ["<-999%", "-444%", "~0.50", "5%", "-"]


def test_without_options_a_table_stays_as_it_is() -> None:
    assert rows() == ["b", "a", "c"]


def test_an_unknown_column_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match="no column 'lod'; did you mean LOAD"):
        rows(sort="lod")


def test_a_table_about_something_else_stays_as_it_is() -> None:
    cards = TextTable(("CARDS", ">USED"), [("H100", "3")])

    assert order_rows([cards], RowOrder.parse("premium", "-cost"), like=TABLE) == [cards]
