"""A page as a browser shows it, at the widths and in the colours that people have."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

WIDTHS = (360, 768, 1280, 1920)
LEFT_OUT = (768,)
"""Widths between others, at which axe-core, which takes seconds, finds what it finds there."""

PAPER = 979
"""What margins of 10 mm leave of the long side of a sheet of Letter, which A4 exceeds [px]."""

SCHEMES = ("light", "dark")

PATIENCE_MS = 300_000
"""Time for a page, which solves its fleet, on a busy machine [ms]."""

WIDER = """() => [...document.querySelectorAll("body, main, header, h1, p, form")]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML)"""
"""Elements that end beyond the window; tables may, in a region that scrolls."""


STYLES = """() => [...document.querySelectorAll("body, body *")].map(e => getComputedStyle(e))
  .map(s => [s.color, s.fill, s.backgroundColor, s.backgroundImage, s.opacity, s.fontSize,
    s.fontWeight, s.textShadow, s.display, s.visibility, s.position].join()).join()"""
"""Whatever decides on the contrast of text."""

AXE = """options => axe.run(options).then(results => results.violations)"""

STICKY = """() => [...document.querySelectorAll("tbody > tr > :first-child")]
  .filter(e => getComputedStyle(e).position === "sticky")
  .filter(e => e.getBoundingClientRect().width > innerWidth * 0.6).map(e => e.outerHTML)"""
"""First cells of rows, which stay while others scroll, that leave no room for the others."""

OVERLAPS = """() => [...document.querySelectorAll(".chart svg")].flatMap(chart => {
  const texts = [...chart.querySelectorAll("text")].map(e => [e, e.getBoundingClientRect()]);
  return texts.flatMap(([a, p], n) => texts.slice(n + 1).filter(([b, q]) =>
    p.left < q.right && q.left < p.right && p.top < q.bottom && q.top < p.bottom
  ).map(([b]) => `${a.textContent} is over ${b.textContent}`));
})"""
"""Texts of a chart of which one hides a part of the other."""

APART = """() => [...document.querySelectorAll("form.filter")].filter(form =>
  new Set([...form.querySelectorAll("a")].map(e => e.getBoundingClientRect().top)).size > 1
).map(e => e.outerHTML)"""
"""Filters of tables of which a link is alone on a line."""

STACKED = """() => [...document.querySelectorAll(".legend li")].filter(e =>
  e.getBoundingClientRect().height > 28).map(e => e.outerHTML)"""
"""Entries of a legend whose colour is not beside the name."""

TALL = """() => innerWidth < 1280 ? [] : [...document.querySelectorAll("td, tbody th")].filter(e =>
  e.clientHeight > 6.5 * parseFloat(getComputedStyle(e).fontSize) * 1.5).map(e => e.outerHTML)"""
"""Cells of more than six lines where there is room: a column of text that is too narrow."""

SCROLLED = """() => innerWidth < 1280 ? [] : [...document.querySelectorAll(".wide")]
  .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML)"""
"""Tables that are wider than their box where there is room."""

CLOSE = """() => [...document.querySelectorAll(".wide tr")].flatMap(row => {
  if (innerWidth < 1280) return [];
  const range = new Range(), ends = cell => {
    range.selectNodeContents(cell);
    return [...range.getClientRects()].filter(e => e.width).flatMap(e => [e.left, e.right]);
  };
  const cells = [...row.cells].map(ends);
  return cells.slice(1).flatMap((after, n) => !after.length || !cells[n].length ||
    Math.min(...after) - Math.max(...cells[n]) > 11.5 ? [] : row.cells[n].outerHTML);
})"""
"""Cells of tables whose text is less than 12 px from that of the next column."""

BEYOND_PAPER = """() => [...document.querySelectorAll(".wide table")]
  .filter(e => e.getBoundingClientRect().right > innerWidth)
  .map(e => e.innerText.slice(0, 80))"""
"""Tables of which a printed page lacks the last columns."""

DATES = """() => [...document.querySelectorAll("main :is(p, td, dd, figcaption)")].filter(e => {
  const walker = document.createTreeWalker(e, NodeFilter.SHOW_TEXT), range = new Range();
  for (let text = walker.nextNode(); text; text = walker.nextNode())
    for (const found of text.data.matchAll(/\\d{4}-\\d\\d-\\d\\d/g)) {
      range.setStart(text, found.index);
      range.setEnd(text, found.index + found[0].length);
      if (new Set([...range.getClientRects()].map(e => e.top)).size > 1) return true;
    }
  return false;
}).map(e => e.outerHTML)"""
"""Texts in which a line ends inside of a date."""

UNGROUPED = """() => [...document.querySelectorAll(".chart text, figcaption, main :is(p, dd, td)")]
  .filter(e => /(?<![\\w.,:=#+"'\\/-])(\\d{5,}|\\d{4}(?=\\.\\d|%|\\s(ms|requests\\/min|cents)))/
    .test(e.textContent)).map(e => e.outerHTML)"""
"""Long numbers that are not in groups of digits."""

FACTS = """() => [
  document.querySelectorAll("h1").length === 1 ? "" : "not one h1",
  document.documentElement.lang ? "" : "no lang",
  document.title ? "" : "no title",
  ...[...document.querySelectorAll("main svg:not([aria-hidden])")].filter(e =>
    !(e.getAttribute("role") === "img" && e.getAttribute("aria-label"))).map(e => e.outerHTML),
  ...[...document.querySelectorAll("input:not([type=hidden]), select")].filter(e =>
    !e.labels.length).map(e => e.outerHTML),
].filter(Boolean)"""
"""What a screen reader needs: one heading, a language, a title, words for pictures and fields."""

HEADS = """() => [...document.querySelectorAll("thead th")].filter(e => e.clientHeight > 75)
  .map(e => e.outerHTML)"""
"""Headings of more than three lines, which leave a gap above the others."""

ARROWS = """() => [...document.querySelectorAll("main p, main td, main dd")]
  .filter(e => e.innerText.includes("->")).map(e => e.outerHTML)"""
"""Arrows of two signs, between which a line breaks."""

EXPONENTS = """() => [...document.querySelectorAll("main p, main td, main dd, figcaption, text")]
  .filter(e => /(?<![\\w.-])\\d+(\\.\\d+)?e[+-]?\\d+(?!\\w)/.test(e.textContent))
  .map(e => e.outerHTML)"""
"""Numbers such as 1.25e+05, which are for programs."""

PLURALS = """() => [...document.querySelectorAll("main p, main td, main dd, figcaption, li")]
  .filter(e => /(?<![\\w.,-])1 (Server|Plan|Model|server|card|replica)s\\b/.test(e.textContent))
  .map(e => e.outerHTML)"""
"""Counts such as 1 Servers."""

BESIDE = """() => innerWidth > 600 ? [] : [...document.querySelectorAll("main td")]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1 || e.clientHeight > 300)
  .map(e => e.outerHTML)"""
"""Cells that a phone does not show, or that leave the rest of their row blank."""

NAMES = """() => innerWidth > 600 ? [] : [...document.querySelectorAll("tbody .name:first-child")]
  .filter(e => e.offsetWidth < 0.9 * e.parentElement.clientWidth).map(e => e.outerHTML)"""
"""Names above the cells of a phone's list that break before the end of the line."""

LABELS = """() => [...document.querySelectorAll("main tbody :is(td, th):not(:first-child)")]
  .filter(e => {
    const heading = e.closest("table").querySelectorAll("thead th")[e.cellIndex];
    const texts = [...heading.childNodes].map(node => node.textContent.trim()).filter(Boolean);
    return e.dataset.label !== texts.join(", ");
  }).map(e => e.outerHTML)"""
"""Cells that do not have the heading of their column, which a phone shows before them."""

OPTIONS = """() => [...document.querySelectorAll("code")].filter(code => {
  const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT), range = new Range();
  for (let text = walker.nextNode(); text; text = walker.nextNode())
    for (const found of text.data.matchAll(/--[a-z]+/g)) {
      range.setStart(text, found.index);
      range.setEnd(text, found.index + found[0].length);
      if (new Set([...range.getClientRects()].map(e => e.top)).size > 1) return true;
    }
  return false;
}).map(e => e.outerHTML)"""
"""Commands in which a line ends inside of the name of an option."""

FIGURES = """() => [...document.querySelectorAll(".figures dd")]
  .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML)"""
"""Values that a page begins with, which are wider than their box."""

LINKS = """() => [...document.querySelectorAll("header nav a")]
  .map(e => [e.getBoundingClientRect(), e.textContent]).map(([e, name]) =>
    [name, e.left, e.top, e.width, e.height].join(" ")).join()"""
"""Where the links to the pages are, which must not move from page to page."""

NOTICES = """() => [...document.querySelectorAll(".notice")].filter(e =>
  [...e.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim()) ||
  e.querySelectorAll(":scope > span").length > 1).map(e => e.outerHTML)"""
"""Notices whose text is several boxes in a row, with gaps between them."""

PLACES = (
    *(WIDER, STICKY, OVERLAPS, APART, STACKED, TALL, SCROLLED, HEADS, ARROWS, EXPONENTS, BESIDE),
    *(NAMES, LABELS, PLURALS, OPTIONS, FIGURES, CLOSE, DATES, UNGROUPED, FACTS, NOTICES),
)
"""What may be wrong with where things are."""

EVERYWHERE = f"() => [{', '.join(PLACES)}].flatMap(place => place())"
"""All of them in one call: a call takes longer than to look at most of them."""


@dataclass
class Watched:
    """A page, and what goes wrong while it is shown."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def outside(self, origin: str) -> list[str]:
        """Requests to anywhere else."""
        return [address for address in self.requests if not address.startswith(origin)]

    def cut_off(self) -> Iterator[str]:
        """What is wider than the window, or hides something else, at every width.

        A page that a form led to may still wait for its style sheet.
        """
        self.page.wait_for_load_state()
        for width in WIDTHS:
            self.page.set_viewport_size({"width": width, "height": 900})
            yield from (f"{width} px: {text}" for text in self.page.evaluate(EVERYWHERE))

    def cut_on_paper(self) -> Iterator[str]:
        """Tables that are wider than a sheet, which does not scroll."""
        self.page.wait_for_load_state()
        self.page.emulate_media(media="print")
        self.page.set_viewport_size({"width": PAPER, "height": 700})
        yield from self.page.evaluate(BEYOND_PAPER)
        self.page.emulate_media(media="screen")

    def faults(self) -> Iterator[str]:
        """What is cut off or overlaps, and what is hard to read or to reach, in every look.

        The contrast of text, which takes longest, is looked at once for the same styles.
        """
        yield from self.cut_off()
        self.page.evaluate(Axe().axe_script)
        looked_at: set[str] = set()
        for width in (width for width in WIDTHS if width not in LEFT_OUT):
            self.page.set_viewport_size({"width": width, "height": 900})
            for scheme in SCHEMES:
                self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of two
                styles = self.page.evaluate(STYLES)
                rules = {"color-contrast": {"enabled": styles not in looked_at}}
                looked_at.add(styles)
                found = self.page.evaluate(AXE, {"resultTypes": ["violations"], "rules": rules})
                yield from (
                    f"{width} px, {scheme}: {v['id']}: {node['html']}: {node['failureSummary']}"
                    for v in found
                    for node in v["nodes"]
                )


@contextmanager
def watched(
    browser: Browser, *, any_certificate: bool = False, offline: bool = False
) -> Iterator[Watched]:
    """Yield a page of a browser that nothing was opened in before."""
    with browser.new_context(ignore_https_errors=any_certificate, offline=offline) as context:
        context.set_default_navigation_timeout(PATIENCE_MS)
        seen = Watched(context.new_page())
        seen.page.on("console", lambda said: seen.errors.append(said.text))
        seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        yield seen
