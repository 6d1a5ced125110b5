"""Arguments and options that say what commands read, and times as people type them."""

import re
from datetime import timedelta
from typing import Annotated

import typer

Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="Custom resources or SystemData: files, folders, kustomizations; - for stdin.",
        show_default=False,
    ),
]
InNamespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="Read only the objects of this namespace, and those that name none.",
        show_default=False,
    ),
]


DURATION = re.compile(r"(?P<number>[0-9]{1,5})(?P<unit>[smhd])")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration_of(text: str) -> timedelta | None:
    """Return a time such as 90m, 2h or 7d; None if the text is no such time."""
    match = DURATION.fullmatch(text)
    return None if match is None else timedelta(**{UNITS[match["unit"]]: int(match["number"])})
