"""A hook of MkDocs: where lines break, as long names, options and quantities would break badly."""

import re

NAME = re.compile(r"(?<=<td><code>)[^<]*(?=</code>)")
"""A cell that begins with a name."""

PLACE = re.compile(r"(?<=[._/])(?=\w)")
"""Where a name may break: after a dot, an underscore or a slash."""

QUANTITY = re.compile(r"(?<=\d) (?=(%|ms|MiB|GiB)(?!\w))")
"""What a line must not break at: the blank before a unit."""

INLINE = re.compile(r"<pre.*?</pre>|<code>[^<]*</code>", re.DOTALL)
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
"""What a line must not break in: browsers break after a hyphen."""

CODE = re.compile(r"<pre.*?</pre>|<code.*?</code>", re.DOTALL)
"""What stays as it is, as people copy it."""


def on_page_content(html: str, **_: object) -> str:
    """Return a page in which browsers know where lines may break."""
    kept = INLINE.sub(lambda code: _inline_code(code[0]), html)
    named = NAME.sub(lambda name: PLACE.sub("<wbr>", name[0]), kept)
    texts, codes = CODE.split(named), [*CODE.findall(named), ""]
    return "".join(
        QUANTITY.sub("&nbsp;", text) + code for text, code in zip(texts, codes, strict=True)
    )


def _inline_code(code: str) -> str:
    if code.startswith("<pre"):
        return code
    text = code.replace("\\|", "|")  # what the source of a table needs, readers would copy
    return OPTION.sub(lambda option: f'<span class="option">{option[0]}</span>', text)
