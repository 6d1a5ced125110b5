"""Pages as HTML: tables sort and filter by their address, rows link to what they are about."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from inferno_operator.cli.kubectl.console.views import ConsolePage
from inferno_operator.cli.tables.order import RowOrder, ordered
from inferno_operator.cli.tables.rich import style_of
from inferno_operator.cli.tables.solution import Part, TextTable, first_table, name_of

LINKS = {"SERVER": "/servers/", "PLAN": "/plans/"}
"""What the names in the first column of a table lead to."""

NAVIGATION = (("/", "Fleet"), ("/next", "Next plan"), ("/plans", "Plans"))


@dataclass(frozen=True, slots=True)
class PageQuery:
    """What the address of a page asks for, in pairs of names and values."""

    asked: Sequence[tuple[str, str]] = ()

    def get(self, name: str) -> str:
        """The value of a name; "" if nothing is asked."""
        return dict(self.asked).get(name, "")

    def without(self, *names: str) -> Sequence[tuple[str, str]]:
        """The pairs of other names, which a form keeps."""
        return [(name, value) for name, value in self.asked if name not in names]

    def address(self, **changes: str) -> str:
        """The query with other values; "" takes one away."""
        changed = [(name, value) for name, value in changes.items() if value]
        return "?" + urlencode([*self.without(*changes), *changed])

    @property
    def order(self) -> RowOrder:
        """The rows of the main table."""
        return RowOrder(self.get("q"), self.get("sort"), falling=bool(self.get("order")))

    def sorted_by(self, column: str) -> str:
        """The query that sorts by a column, or turns the order round."""
        again = column == self.get("sort") and not self.get("order")
        return self.address(sort=column, order="falling" if again else "")


class Pages:
    """Renders pages of a namespace."""

    def __init__(
        self, namespace: str, form_token: Callable[[str], str], *, hosted: bool = False
    ) -> None:
        self._namespace = namespace
        self._environment = Environment(
            loader=PackageLoader(__package__),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals["form_token"] = form_token
        self._environment.globals["hosted"] = hosted

    def html(self, page: ConsolePage, path: str, query: PageQuery, version: int = 0) -> str:
        """Return a page; `version` is that of the news."""
        parts = ordered(page.parts, query.order)
        main = first_table(parts)
        return self._environment.get_template("page.html").render(
            page=page,
            path=path,
            query=query,
            version=version,
            namespace=self._namespace,
            navigation=NAVIGATION,
            parts=[_shown(part, query if part is main else None) for part in parts if part],
        )

    def problem(self, title: str, text: str) -> str:
        """Return a page that says what went wrong."""
        page = ConsolePage(title, (text,), dict)
        return self.html(page, "", PageQuery())


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    number: bool
    style: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class _Shown:
    """A line of text, or a table with the links that sort it."""

    text: str = ""
    headings: Sequence[_Cell] = ()
    rows: Sequence[Sequence[_Cell]] = ()


def _shown(part: Part, query: PageQuery | None) -> _Shown:
    if not isinstance(part, TextTable):
        return _Shown(text=part)
    return _Shown("", tuple(_headings(part, query)), [tuple(_cells(part, r)) for r in part.rows])


def _headings(table: TextTable, query: PageQuery | None) -> Iterator[_Cell]:
    for heading in table.headings:
        name = name_of(heading)
        link = query.sorted_by(name) if query else ""
        yield _Cell(name, heading.startswith(">"), link=link)


def _cells(table: TextTable, row: Sequence[str]) -> Iterator[_Cell]:
    for place, (heading, text) in enumerate(zip(table.headings, row, strict=True)):
        base = LINKS.get(heading) if place == 0 else None
        link = base + quote(text, safe="") if base else ""
        yield _Cell(text, heading.startswith(">"), style_of(text), link)


def static_file(name: str) -> bytes:
    """Return the style sheet or the script."""
    package = "inferno_operator.pages" if name == "style.css" else __package__
    folder = "templates" if name == "style.css" else "static"
    return (files(package) / folder / name).read_bytes()
