"""The documentation builds, needs nothing from elsewhere, and has no dead links."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.browser.chromium import browser_of_tests
from tests.docs.looks import (
    BEYOND,
    CUT,
    HALVES,
    INSIDE,
    LABELLED,
    SCROLLS,
    WIDER,
    WIDTHS,
    Faults,
    Look,
    faults,
)
from tests.reference.shown import ROOT, pages
from tests.tiers import EVERY, extended

MARKDOWN_LINK = re.compile(r"\]\(([^)\s]+)\)")
PATIENCE_MS = 60_000
MOST_LINES = 400
"""Of a page: what a reader scrolls through without losing the thread."""

LOADING = {"link": "href", "script": "src", "img": "src", "iframe": "src"}


OPACITY = "e => getComputedStyle(e).opacity"

READABLE = """() => axe.run("article, footer", {
  runOnly: ["color-contrast", "link-in-text-block"], resultTypes: ["violations"],
}).then(found => found.violations.flatMap(v => v.nodes.map(n => n.html + n.failureSummary)))"""
"""Texts with too little contrast, and links that only their colour shows."""


class Page(HTMLParser):
    """Anchors and links of a page, and what a browser loads with it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.anchors = {""}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value is not None}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if found.get(LOADING.get(tag, "")) and found.get("rel") not in (
            "canonical",
            "prev",
            "next",
        ):
            self.loaded.append(found[LOADING[tag]])


class Site:
    """What was built."""

    def __init__(self, folder: Path, said: str) -> None:
        self.folder = folder
        self.said = said

    def text(self, name: str) -> str:
        """Of a file, named from the folder of the site."""
        return (self.folder / name).read_text(encoding="utf-8")

    @cached_property
    def pages(self) -> dict[Path, Page]:
        # The page for what is not found refers to all from the root, where nobody knows what is.
        found = (path for path in self.folder.rglob("*.html") if path.name != "404.html")
        return {path: Page(path) for path in found}

    def dead(self, page: Page) -> Iterator[str]:
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
            known = self.pages.get(target)
            anchored = known is not None and unquote(parts.fragment) in known.anchors
            if not (anchored if target.suffix == ".html" else target.exists()):
                yield f"{page.path.name}: {link}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The documentation, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site").resolve()
    mkdocs = Path(sys.executable).with_name("mkdocs")
    built = subprocess.run(
        [mkdocs, "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return Site(folder, built.stdout + built.stderr)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all pages."""
    with browser_of_tests() as started:
        yield started


@pytest.fixture(scope="module", params=["some pages", *extended("all pages")])
def found(request: pytest.FixtureRequest, site: Site, browser: Browser) -> Faults:
    """What is wrong with how pages look: each eighth of them, or all."""
    pages = sorted(site.pages)
    return faults(browser, pages if request.param == "all pages" else pages[::EVERY])


def test_it_builds_without_a_warning(site: Site) -> None:
    assert "WARNING" not in site.said


def test_no_link_is_dead(site: Site) -> None:
    assert [dead for page in site.pages.values() for dead in site.dead(page)] == []


def test_no_page_is_long() -> None:
    lines = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in ROOT.glob("docs/**/*.md")}

    assert {str(page): n for page, n in lines.items() if n > MOST_LINES} == {}


def test_a_reader_needs_no_internet(site: Site) -> None:
    loaded = {link for page in site.pages.values() for link in page.loaded}
    styles = (path.read_text(encoding="utf-8") for path in site.folder.rglob("*.css"))

    assert [link for link in loaded if urlsplit(link).netloc] == []
    assert not any(re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style) for style in styles)


def test_no_picture_is_shown_as_its_source(site: Site) -> None:
    sources = ("language-mermaid", 'class="mermaid"', "language-dot")

    assert not [path for path in site.pages if any(s in path.read_text() for s in sources)]


def test_every_page_can_be_reached_from_the_first(site: Site) -> None:
    start = site.pages[site.folder / "index.html"]
    linked = {(start.path.parent / urlsplit(link).path).resolve() for link in start.links}

    assert site.pages.keys() - linked - {start.path} == set()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_a_page_outside_lead_to_files(page: str) -> None:
    links = MARKDOWN_LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    inside = [link for link in links if not urlsplit(link).scheme]

    assert [link for link in inside if not (ROOT / urlsplit(link).path).exists()] == []


def test_links_to_elsewhere_are_secure_and_whole() -> None:
    links = [link for page in pages() for link in MARKDOWN_LINK.findall(page.read_text())]
    outside = [urlsplit(link) for link in links if urlsplit(link).scheme]

    assert [link for link in outside if link.scheme != "https" or "." not in link.netloc] == []


def test_formulas_are_set_as_mathematics(site: Site) -> None:
    concepts = site.text("concepts.html")
    signs = re.findall(r"<m[ino]>([^<]*)", concepts.partition("<math")[2])

    assert "language-math" not in concepts
    assert "λ" in map(unescape, signs)


def test_long_names_in_tables_may_break_between_their_parts_only(site: Site) -> None:
    """With the style sheet, which takes from browsers the right to break them anywhere."""
    optimizer = site.text("reference/crds/optimizer.html")
    calls = site.text("reference/rest.html")
    style = site.text("styles/tables.css")

    assert "><code>spec.<wbr>guard.<wbr>maxCostIncreasePercent</code></td>" in optimizer
    assert "<code>GET /getServiceClassModelTarget/" in calls
    assert re.search(r"td code \{[^}]*overflow-wrap: normal;[^}]*word-break: normal;", style)
    assert "styles/tables.css" in optimizer


def test_no_line_breaks_in_an_option_and_queries_of_tables_can_be_copied(site: Site) -> None:
    replay = site.text("guides/replay.html")
    console = site.text("guides/console.html")
    metrics = site.text("reference/metrics.html")
    style = site.text("styles/tables.css")

    assert '<code><span class="whole">--scale</span></code>' in replay
    assert '<code><span class="whole">?format=json</span></code>' in console
    assert re.search(r"\.whole \{[^}]*white-space: nowrap;", style)
    assert "Stale|Missing|Refused" in metrics


def test_no_line_breaks_in_a_quantity_a_sum_or_a_name_but_commands_stay_as_they_are(
    site: Site,
) -> None:
    studies = site.text("guides/studies.html")
    concepts = site.text("concepts.html")
    comparison = site.text("comparison.html")
    estimates = site.text("how-good-are-estimates.html")
    differences = site.text("rest-differences.html")
    distances = site.text("how-far-is-it-off.html")
    copied = re.findall(r"<pre.*?</pre>", studies, re.DOTALL)

    assert "2 H200 -25&nbsp;%</td>" in estimates
    assert not re.search(r"<td[^>]*>[^<]*\d %", estimates)
    assert copied
    assert not any("&nbsp;" in text for text in copied)
    assert "to n&nbsp;&#8209;&nbsp;1 at rate" in concepts
    assert 'with <span class="whole">llm-d</span>' in comparison
    assert '<span class="whole">TensorRT-LLM</span></td>' in estimates
    assert 'href="https://llm-d.ai/' in comparison
    assert 'sf-03</span>: <span class="whole">18-20</span>;' in differences
    assert 'on <span class="whole">2026-11-26</span>' in distances
    assert "(50&nbsp;MB)" in distances


def test_no_name_in_a_text_breaks_inside_of_a_word_on_a_phone(found: Faults) -> None:
    assert found[Look(390, INSIDE)] == {}


def test_names_before_a_row_are_on_one_line_of_a_wide_screen(found: Faults) -> None:
    assert found[Look(1920, HALVES)] == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "page", ["guides/autoscalers.html", *extended("comparison.html", "benchmarks.html")]
)
def test_texts_have_contrast_and_links_more_than_a_colour(
    site: Site, browser: Browser, page: str, scheme: Literal["light", "dark"]
) -> None:
    with browser.new_context(color_scheme=scheme) as context:
        seen = context.new_page()
        seen.goto((site.folder / page).as_uri())
        seen.evaluate(Axe().axe_script)

        assert seen.evaluate(READABLE) == []


def test_tables_fit_the_page_and_a_phone(found: Faults) -> None:
    assert [found[Look(width, WIDER)] for width in WIDTHS] == [{}, {}, {}]


def test_the_help_of_each_command_fits_the_page(site: Site, found: Faults) -> None:
    helps = [path for path in site.pages if path.parent.name == "cli"]
    cut = found[Look(1280, CUT)]

    assert ([cut[path] for path in helps if path in cut], len(helps)) == ([], 9)


def test_no_output_scrolls_on_a_wide_screen_and_no_sentence_of_one_on_a_phone(
    site: Site, found: Faults
) -> None:
    assert any('sentence">' in path.read_text(encoding="utf-8") for path in site.pages)
    assert (found[Look(1920, SCROLLS)], found[Look(390, BEYOND)]) == ({}, {})


def test_comments_of_outputs_are_no_commands_and_outputs_without_colours_break(site: Site) -> None:
    measure, capacity = site.text("guides/measure.html"), site.text("guides/capacity.html")

    assert '<span class="go sentence"># Calibrated with 199 windows' in measure
    assert not [p for p in site.pages if re.search('class="gp"> *#', p.read_text("utf-8"))]
    assert '<span class="sentence">Proposed: the Optimizer has mode Approve; review: ' in measure
    (step,) = re.findall(
        r"# A decode step alone: alpha [\d.]+", (ROOT / "docs/guides/measure.md").read_text("utf-8")
    )
    assert f'4ch)">{step}' in measure
    assert '4ch)"># What sees requests while nothing runs;' in measure
    assert '<span class="c1 sentence"># KEDA 2.18 or newer; ' in site.text(
        "guides/autoscalers.html"
    )
    assert "<code>nvidia.com/<wbr>gpu" in capacity
    assert "nvidia.<wbr>com" not in capacity


def test_a_type_and_an_option_with_its_value_stay_on_one_line(site: Site) -> None:
    style = site.text("styles/tables.css")

    assert '<span class="whole">-o yaml</span>' in site.text("reference/cli.html")
    assert '<span class="type">list of object</span>' in site.text("reference/crds/server.html")
    assert re.search(r"\.type \{[^}]*white-space: nowrap;", style)


def test_on_a_phone_each_cell_of_a_wide_table_is_behind_the_heading_of_its_column(
    site: Site, found: Faults
) -> None:
    assert site.text("comparison.html").count("<table data-stacked") == 2
    assert found[Look(390, LABELLED)] == {}


def test_the_copy_button_is_seen_where_a_mouse_or_a_key_asks_for_it(
    site: Site, browser: Browser
) -> None:
    with browser.new_context() as context:
        seen = context.new_page()
        seen.goto((site.folder / "guides/install.html").as_uri())
        button = seen.locator("pre > .md-code__nav").first
        unasked = button.evaluate(OPACITY)
        seen.locator("pre > code").first.hover()
        pointed_at = button.evaluate(OPACITY)
        seen.mouse.move(0, 0)
        button.get_by_role("button").first.focus()

        assert (unasked, pointed_at, button.evaluate(OPACITY)) == ("0", "1", "1")


def test_every_column_of_a_table_but_the_first_has_a_heading(site: Site) -> None:
    headless = re.compile(r"</th>\s*<th[^>]*>\s*</th>")

    assert [p.name for p in site.pages if headless.search(p.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("page", ["index.html", *extended("guides/plans.html")])
def test_the_search_works_from_files_without_a_network(
    site: Site, browser: Browser, page: str
) -> None:
    with browser.new_context(offline=True) as context:
        seen = context.new_page()
        failed: list[str] = []
        seen.on("pageerror", lambda error: failed.append(str(error)))
        seen.goto((site.folder / page).as_uri())
        words = seen.get_by_role("textbox", name="Search")
        words.click()
        ready = seen.locator(".md-search-result__meta")
        expect(ready).to_have_text("Type to start searching", timeout=PATIENCE_MS)
        words.press_sequentially("guard")
        first = seen.locator(".md-search-result__link").first
        first.wait_for()

        assert failed == []
        assert "guard" in first.inner_text().lower()
        assert (first.get_attribute("href") or "").startswith("file:")
