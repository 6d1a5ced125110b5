"""Where lines of a page may end."""

import pytest

from inferno_operator.pages.html import typeset


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
    assert typeset(text) == shown.replace("~", "\N{NO-BREAK SPACE}")
