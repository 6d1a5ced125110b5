"""The contrast of the colours of pages, also in charts, whose texts no tool looks at."""

import re
from importlib.resources import files

import pytest

STYLE = (files("inferno_operator.pages") / "templates/style.css").read_text(encoding="utf-8")
LIGHT, DARK = (
    dict(re.findall(r"--(\w+): #(\w+)", block)) for block in re.findall(r":root \{([^}]*)\}", STYLE)
)

TEXTS = ("text", "quiet", "accent", "alert")
"""Colours of texts, those of charts too."""

GROUNDS = ("ground", "raised")

LEAST_OF_TEXT, LEAST_OF_AREA = 4.5, 3.0
"""Least contrast of a text, and of what a chart draws [WCAG 2.2, 1.4.3 and 1.4.11]."""


def luminance(colour: str) -> float:
    """Relative luminance of a colour in hexadecimal digits, from 0 to 1 [WCAG 2.2]."""
    digits = colour if len(colour) == 6 else "".join(2 * digit for digit in colour)
    shares = (int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4))
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """How many times as light one colour is as the other, from 1 to 21 [WCAG 2.2]."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_texts_and_areas_have_contrast_by_day_and_night(colours: dict[str, str]) -> None:
    texts = {(t, g): contrast(colours[t], colours[g]) for t in TEXTS for g in GROUNDS}
    areas = {s: contrast(colours[s], colours["ground"]) for s in colours if re.fullmatch(r"s\d", s)}

    assert min(texts.values()) >= LEAST_OF_TEXT, texts
    assert contrast(colours["accent"], colours["ground"]) >= LEAST_OF_TEXT  # a button
    assert min(areas.values()) >= LEAST_OF_AREA, areas
    assert len(areas) == 9
    assert contrast("000", "fff") == pytest.approx(21)
