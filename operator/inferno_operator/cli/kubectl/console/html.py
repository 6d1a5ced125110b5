"""Pages as HTML: addresses sort, filter and page tables, rows link to what they are about."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from urllib.parse import quote, urlencode

from inferno_operator.cli.kubectl.console.page import ConsolePage, Note
from inferno_operator.cli.options import CENTS, Money
from inferno_operator.cli.tables.html import (
    NOTHING,
    Excerpt,
    Table,
    TrendOf,
    build_table,
    drop_empty_columns,
)
from inferno_operator.cli.tables.table import (
    Part,
    RowOrder,
    TextTable,
    find_main_table,
    order_rows,
)
from inferno_operator.pages.html import KeyFigure, build_environment

# The package with the templates and the style sheet that all pages share.
PAGES = "inferno_operator.pages"

# What commands print of a change that would serve a Server, with the option that tries it.
REMEDY = re.compile(r"- (?P<words>.+): --set (?P<change>\S+)")

# What the names in a column of a table lead to.
LINKS = {"SERVER": "/servers/", "PLAN": "/plans/", "MODEL": "/models/"}

NAVIGATION = (
    ("/", "Fleet"),
    ("/next", "Next plan"),
    ("/plans", "Plans"),
    ("/capacity", "Capacity"),
    ("/models", "Models"),
    ("/history", "History"),
    ("/data", "Data"),
)

NAMESPACES = "/namespaces"  # the page to choose a namespace, where people of several come

ROWS = 200  # rows of the main table that are shown at once
ONE_MORE = ">ONE MORE CARD"  # a column that leads to the plan with it


@dataclass(frozen=True, slots=True)
class PageQuery:
    """What the address of a page asks for, in pairs of names and values."""

    asked: Sequence[tuple[str, str]] = ()

    def get(self, name: str) -> str:
        """Return the value of a name; "" if nothing is asked."""
        return dict(self.asked).get(name, "")

    def without(self, *names: str) -> Sequence[tuple[str, str]]:
        """Return the pairs of other names, which a form keeps."""
        return [(name, value) for name, value in self.asked if name not in names]

    def address(self, **changes: str) -> str:
        """Return the query with other values; "" takes one away."""
        changed = [(name, value) for name, value in changes.items() if value]
        return "?" + urlencode([*self.without(*changes), *changed])

    @property
    def order(self) -> RowOrder:
        """The rows of the main table."""
        return RowOrder(self.get("q"), self.get("sort"), falling=bool(self.get("order")))

    @property
    def first_row(self) -> int:
        """Number of the first row of the main table that is shown, from 0."""
        text = self.get("from")
        return int(text) if re.fullmatch(r"\d{1,9}", text) else 0

    def order_of(self, column: str) -> str:
        """Return how the rows are sorted by a column, in the words of HTML; "" if they are not."""
        if column != self.get("sort"):
            return ""
        return "descending" if self.order.falling else "ascending"

    def sorted_by(self, column: str) -> str:
        """Return the query that sorts by a column, or turns the order round."""
        again = column == self.get("sort") and not self.get("order")
        return self.address(sort=column, order="falling" if again else "", **{"from": ""})


class Pages:
    """Renders pages of a namespace."""

    def __init__(
        self,
        namespace: str,
        form_token: Callable[[str], str],
        money: Money = CENTS,
        namespaces: str = "",
    ) -> None:
        self._namespace = namespace
        self._money = money
        self._environment = build_environment(__package__, PAGES)
        self._environment.globals["form_token"] = form_token
        self._environment.globals["namespaces"] = namespaces

    def render(self, page: ConsolePage, path: str, query: PageQuery, version: int = 0) -> str:
        """Return a page; `version` is that of the news."""
        parts, unfiltered = order_rows(page.parts, query.order), find_main_table(page.parts)
        folder = path.rpartition("/")[0]  # of an object, the page of the navigation leads to it
        return self._environment.get_template("page.html").render(
            page=page,
            path=path,
            section="/" if folder == "/servers" else folder,
            query=query,
            version=version,
            namespace=self._namespace,
            navigation=NAVIGATION,
            count=len(unfiltered.rows) if unfiltered else 0,
            figures=page.figures if unfiltered or any(map(_says_some, page.figures)) else (),
            troubles=list(map(Note, page.troubles)),
            before=list(self._build_parts(page.before, None, query, page.trend)),
            parts=list(self._build_parts(parts, find_main_table(parts), query, page.trend)),
        )

    def render_problem(
        self,
        title: str,
        text: str,
        advice: str = "",
        changes: Sequence[str] | None = None,
        path: str = "",
    ) -> str:
        """Return a page that says what went wrong with that of a path, and what a person can do.

        With `changes` that do not work there is the form to correct them.
        """
        page = ConsolePage(title, (advice,), dict, changes=changes, troubles=(text,))
        return self.render(page, path, PageQuery())

    def _build_parts(
        self, parts: Sequence[Part], main: TextTable | None, query: PageQuery, trend: TrendOf
    ) -> Iterator[Table | list[Note]]:
        notes = list[Note]()
        for part in (*parts, None):
            if isinstance(part, str):
                remedy = REMEDY.fullmatch(part)
                if remedy:
                    address = "/next?" + urlencode({"set": remedy["change"]})
                    notes.append(Note(remedy["words"], address, "see the plan with it"))
                elif part:
                    notes.append(Note(part))
                continue
            if notes:
                yield notes
            notes = []
            if part is not None:
                yield self._build_table(part, query, trend, is_main=part is main)

    def _build_table(
        self, table: TextTable, query: PageQuery, trend: TrendOf, *, is_main: bool
    ) -> Table:
        """Build a table; the main one has links that sort it, and not all rows at once."""
        table, link = drop_empty_columns(table, ONE_MORE), partial(_find_address, query)
        if not is_main:
            return build_table(table, self._money, link=link)
        count, excerpt = len(table.rows), None
        if count > ROWS:
            first = min(query.first_row, count - 1)
            last = min(first + ROWS, count)
            before = query.address(**{"from": str(max(first - ROWS, 0))}) if first else ""
            after = query.address(**{"from": str(last)}) if last < count else ""
            excerpt = Excerpt(first, last, count, before, after)
            table = replace(table, rows=table.rows[first:last])
        built = build_table(table, self._money, trend=trend, link=link)
        headings = [
            replace(cell, link=query.sorted_by(cell.key), order=query.order_of(cell.key))
            for cell in built.headings
        ]
        return replace(built, headings=headings, excerpt=excerpt)


def _says_some(figure: KeyFigure) -> bool:
    """Whether a figure is more than the zero of a page without objects."""
    return bool(figure.value.strip("-0. %"))


def _find_address(query: PageQuery, heading: str, text: str, row: str) -> str:
    """Return the page of what a cell names, or of the plan with one more card beside what if."""
    if heading == ONE_MORE:
        what_if = [pair for pair in query.asked if pair[0] in ("optimizer", "set")]
        return "/next?" + urlencode([*what_if, ("set", f"capacity.{row}+=1")])
    base = LINKS.get(heading) if text not in NOTHING else None
    return base + quote(text, safe="") if base else ""


def render_namespaces(namespace: str, refusal: str = "") -> str:
    """Return the page to choose a namespace; a refusal says why one cannot be chosen."""
    template = build_environment(__package__, PAGES).get_template("namespaces.html")
    return template.render(namespace=namespace, refusal=refusal)


def read_static_file(name: str) -> bytes:
    """Return a style sheet, the script or the icon."""
    package = PAGES if name == "style.css" else __package__
    folder = "templates" if name == "style.css" else "static"
    return (files(package) / folder / name).read_bytes()
