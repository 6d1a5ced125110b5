"""The page of predictions beside measurements."""

from pathlib import Path

from tests.h100.page import PAGE, page


def test_the_page_shows_what_is_predicted_now() -> None:
    assert (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8") == page()
