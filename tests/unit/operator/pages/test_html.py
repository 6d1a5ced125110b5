"""Where lines of a page may end."""

import html
import re

import pytest

from inferno_operator.pages.html import in_groups, typeset


def shown_of(text: str) -> str:
    """What a browser shows of a typeset text."""
    return html.unescape(re.sub(r"<[^>]+>", "", typeset(text)))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("from 1 -> 2 cards", "from 1 \N{RIGHTWARDS ARROW}~2 cards"),
        ("95 % in 12 ms", "95~% in 12~ms"),
        ("or 2 x 4xG2 (cards of G2: 8)", "or 2~x~4xG2 (cards of G2: 8)"),
        ("15 xpus", "15 xpus"),
    ],
)
def test_no_line_ends_inside_of_a_quantity(text: str, shown: str) -> None:
    assert shown_of(text) == shown.replace("~", "\N{NO-BREAK SPACE}")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("615783 cents", "615,783 cents"),
        ("a cost of 2927.00 (-1526.00)", "a cost of 2,927.00 (-1,526.00)"),
        ("374466.5/125000", "374,466.5/125,000"),
        ("it takes 127692.", "it takes 127,692."),
        ("a time to first token of 3382 ms", "a time to first token of 3,382~ms"),
        ("the most that keeps it, 1266 requests/min", "the most that keeps it, 1,266~requests/min"),
        ("a difference of 3967%", "a difference of 3,967%"),
        ("an allocation, 2329 cents/hour", "an allocation, 2,329 cents/hour"),
    ],
)
def test_long_numbers_are_in_groups(text: str, shown: str) -> None:
    assert shown_of(text) == shown.replace("~", "\N{NO-BREAK SPACE}")


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-24 11:57 UTC, in 2026",
        "http://optimizer:13302/",
        "capacity.G2+=10000",
        '{port="12345"}',
        "batch-12345",
        "12345abc",
        "0.12345",
        "1.5e10",
    ],
)
def test_times_names_and_addresses_are_as_they_are(text: str) -> None:
    assert shown_of(text) == text


def test_a_date_is_on_one_line_and_what_others_wrote_is_no_markup() -> None:
    assert typeset("<b> ended at 2026-11-22 20:00:00 UTC") == (
        '&lt;b&gt; ended at <span class="whole">2026-11-22 20:00:00 UTC</span>'
    )


def test_where_there_are_only_numbers_those_of_four_digits_are_in_groups_too() -> None:
    assert [in_groups(text) for text in ("7298", "+1070.00", "298")] == [
        "7,298",
        "+1,070.00",
        "298",
    ]
