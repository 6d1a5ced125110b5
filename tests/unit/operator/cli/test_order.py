"""Which rows of a table are shown, and in which order."""

import pytest

from inferno_operator.cli.tables.table import RowOrder, TextTable, order_rows
from inferno_optimizer.errors import InputError

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
