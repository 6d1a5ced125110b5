"""A hook of MkDocs: long names in tables break after a dot or an underscore, nowhere else."""

import re

NAME = re.compile(r"(?<=<td><code>)[^<]*(?=</code>)")
"""A cell that begins with a name."""

PLACE = re.compile(r"(?<=[._/])(?=\w)")


def on_page_content(html: str, **_: object) -> str:
    """Return a page in which browsers know where names may break."""
    return NAME.sub(lambda name: PLACE.sub("<wbr>", name[0]), html)
