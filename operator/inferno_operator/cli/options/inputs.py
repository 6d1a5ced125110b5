"""Arguments and options that say what commands read."""

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
