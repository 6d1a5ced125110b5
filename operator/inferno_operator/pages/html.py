"""Pages of fleets and replays: what they show, and as HTML files that need no network.

A file has one style sheet and no script. Its texts are ready to be read, by the names in the
template.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """A number that the page begins with.

    `note` says in a few words what it means; "" where the title says it all.
    """

    title: str
    value: str
    note: str = ""


# Blanks at which no line may end: after an arrow, before a unit, and in a number of replicas.
KEPT_TOGETHER = re.compile(
    r"(?<=\N{RIGHTWARDS ARROW}) |(?<=\d) (?=(?:%|ms|s|requests/min|x)(?!\w))|(?<=\d x) "
)

# A date, with its time and zone: no line ends in it.
DATE = re.compile(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d(?::\d\d)?(?: UTC)?)?")

# What stands beside a number that is not part of a name, a time, an address or a value.
BEFORE, AFTER = r"""(?<![\w.,:=#+"'-])(?<!(?<!\d)/)""", r"(?![\w:]|[.,-]\w|/(?!\d))"

# What stands after a number that is no year.
UNIT = (
    r"(?=%| (?:%|ms|s|requests/min|tokens?|cents(?:/hour)?|[A-Z]{3}/hour|cards?|replicas?)(?!\w))"
)

# Numbers in sentences that are read in groups of digits; a year is none.
LONG_NUMBER = re.compile(rf"{BEFORE}[+-]?(?:\d{{5,}}(?:\.\d+)?|\d{{4}}\.\d+|\d{{4}}{UNIT}){AFTER}")

# The same where there are only numbers.
NUMBER = re.compile(rf"{BEFORE}[+-]?\d{{4,}}(?:\.\d+)?{AFTER}")


def render_file(template: str, page: Mapping[str, object]) -> str:
    """Return a page as one HTML file, whose policy allows its own style sheet and nothing else.

    `template`: fleet.html or replay.html; `page` has what it names.
    """
    style = (files(__package__) / "templates/style.css").read_text(encoding="utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    trusted = Markup(style)  # noqa: S704 - our file
    found = build_environment(__package__).get_template(template)
    return found.render(page=page, style=trusted, digest=digest)


def build_environment(*packages: str) -> Environment:
    """Return what fills in the templates of packages, with their filters."""
    filled = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filled.filters["typeset"] = typeset
    filled.filters["in_groups"] = in_groups
    return filled


def typeset(text: str) -> Markup:
    """Return a text with arrows of one sign, and long numbers in groups of three digits.

    No line of it ends at a blank of `KEPT_TOGETHER`, or in a date.
    """
    arrows = text.replace("->", "\N{RIGHTWARDS ARROW}")
    kept = KEPT_TOGETHER.sub("\N{NO-BREAK SPACE}", in_groups(arrows, LONG_NUMBER))
    dated = DATE.sub(r'<span class="whole">\g<0></span>', str(escape(kept)))
    return Markup(dated)  # noqa: S704 - all of it is escaped


def in_groups(text: str, numbers: re.Pattern[str] = NUMBER) -> str:
    """Return a text with its numbers in groups of three digits: 2,329.00."""

    def group(found: re.Match[str]) -> str:
        whole, point, rest = found[0].partition(".")
        sign = whole[:1] if whole[:1] in "+-" else ""
        return f"{sign}{int(whole.removeprefix(sign)):,}{point}{rest}"

    return numbers.sub(group, text)
