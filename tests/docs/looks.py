"""How the pages of the documentation look, at the widths that people have."""

from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser

WIDER = """() => [...document.querySelectorAll(".md-typeset__scrollwrap")]
  .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText.slice(0, 80))"""
"""Tables that scroll sideways."""

CUT = """() => [...document.querySelectorAll("pre > code")].filter(e => {
  const style = getComputedStyle(e), pen = document.createElement("canvas").getContext("2d");
  pen.font = `${style.fontSize} ${style.fontFamily}`;
  const lines = e.textContent.split("\\n");
  const widest = Math.max(...lines.map(line => pen.measureText(line).width));
  return widest + 2 * parseFloat(style.paddingLeft) > e.clientWidth;
}).map(e => e.textContent.slice(0, 60))"""
"""Helps that scroll sideways."""

SCROLLS = """() => [...document.querySelectorAll("pre > code")].filter(e =>
  e.scrollWidth > e.clientWidth + 1).map(e => e.textContent.slice(0, 60))"""
"""Commands, outputs and files that scroll sideways."""

BEYOND = """() => [...document.querySelectorAll("pre .sentence")].filter(e =>
  e.getBoundingClientRect().right > e.closest("code").getBoundingClientRect().right + 1
).map(e => e.textContent.slice(0, 60))"""
"""Sentences in outputs of which one sees the end only after scrolling."""

LABELLED = """() => [...document.querySelectorAll("table[data-stacked]")].filter(e =>
  getComputedStyle(e.querySelector("td:last-child"), "::before").content !==
  JSON.stringify(`${e.querySelector("th:last-child").textContent}: `)
).map(e => e.innerText.slice(0, 80))"""
"""Tables that are lists of cells without the headings of the columns."""

INSIDE = """() => {
  const range = document.createRange();
  const isBroken = e => {
    range.selectNodeContents(e);
    const tops = [...range.getClientRects()].map(rectangle => rectangle.top);
    return Math.max(...tops) > Math.min(...tops) + 8;
  };
  return [...document.querySelectorAll("p code, li code")].filter(isBroken).flatMap(e => {
    const walk = document.createTreeWalker(e, NodeFilter.SHOW_TEXT), signs = [];
    for (let text; (text = walk.nextNode()); )
      for (let n = 0; n < text.length; n++) {
        range.setStart(text, n);
        range.setEnd(text, n + 1);
        signs.push([text.data[n], range.getBoundingClientRect().top]);
      }
    return signs.slice(1).flatMap(([sign, top], n) =>
      top > signs[n][1] + 8 && /[a-z0-9]{2}/i.test(signs[n][0] + sign) ? [e.textContent] : []);
  });
}"""
"""Names in texts that are broken inside of a word."""

HALVES = """() => [...document.querySelectorAll("td:first-child > code")].filter(e =>
  e.getClientRects().length > 1).map(e => e.textContent)"""
"""Names before a row that are on two lines."""


class Look(NamedTuple):
    """What is looked for at a width of the window [px]."""

    width: int
    script: str


LOOKS = (
    *(Look(1920, script) for script in (WIDER, HALVES, SCROLLS)),
    *(Look(1280, script) for script in (WIDER, CUT)),
    *(Look(390, script) for script in (WIDER, INSIDE, BEYOND, LABELLED)),
)
WIDTHS = tuple(dict.fromkeys(look.width for look in LOOKS))

HEIGHT = 100
"""Of the window [px]."""

Faults = dict[Look, dict[Path, list[str]]]
"""What each look finds on the pages that have such faults."""


def faults(browser: Browser, pages: Iterable[Path]) -> Faults:
    """Look at pages, each of which is opened once, as that takes longest.

    What is looked for depends on the width alone; a low window takes half of the time to draw, and
    a page is opened at the width that the window has.
    """
    found: Faults = {look: {} for look in LOOKS}
    seen = browser.new_page()
    for path, widths in zip(pages, cycle((WIDTHS, WIDTHS[::-1])), strict=False):
        seen.goto(path.as_uri())
        for width in widths:
            seen.set_viewport_size({"width": width, "height": HEIGHT})
            looks = [look for look in LOOKS if look.width == width]
            scripts = ", ".join(look.script for look in looks)
            answers = seen.evaluate(f"() => [{scripts}].map(script => script())")
            for look, answer in zip(looks, answers, strict=True):
                if answer:
                    found[look][path] = answer
    seen.close()
    return found
