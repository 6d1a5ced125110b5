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
