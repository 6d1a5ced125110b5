"""Pages as HTML files that need no network: one style sheet in the file, no scripts."""

import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from inferno_operator.pages.fleet import FleetPage
from inferno_operator.pages.replay import ReplayPage

KEPT_TOGETHER = re.compile(
    r"(?<=\N{RIGHTWARDS ARROW}) |(?<=\d) (?=(?:%|ms|s|requests/min|x)(?!\w))|(?<=\d x) "
)
"""Blanks at which no line may end: after an arrow, before a unit, and in a number of replicas."""


def fleet_html(page: FleetPage) -> str:
    """Return the page of a fleet as one HTML file."""
    return _file("fleet.html", page)


def replay_html(page: ReplayPage) -> str:
    """Return the page of a replay as one HTML file."""
    return _file("replay.html", page)


def _file(template: str, page: FleetPage | ReplayPage) -> str:
    """Return a page; its content security policy allows its own style sheet and nothing else."""
    style = (files(__package__) / "templates/style.css").read_text(encoding="utf-8")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    trusted = Markup(style)  # noqa: S704 - our file
    return (
        environment(__package__)
        .get_template(template)
        .render(page=page, style=trusted, digest=digest)
    )


def environment(*packages: str) -> Environment:
    """Return what fills in the templates of packages, with the filter `typeset`."""
    filled = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filled.filters["typeset"] = typeset
    return filled


def typeset(text: str) -> str:
    """Return a text in which no line ends inside of an arrow or at a blank of `KEPT_TOGETHER`."""
    arrows = text.replace("->", "\N{RIGHTWARDS ARROW}")
    return KEPT_TOGETHER.sub("\N{NO-BREAK SPACE}", arrows)
