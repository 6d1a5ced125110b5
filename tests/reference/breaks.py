"""A hook of MkDocs: where lines break, as long names, options and quantities would break badly."""

import re

NAME = re.compile(r"(?<=<td><code>)[^<]*(?=</code>)")
"""A cell that begins with a name."""

PLACE = re.compile(r"(?<=[._/])(?=[^\W\d])")
"""Where a name may break: after a dot, an underscore or a slash."""

QUANTITY = re.compile(r"(?<=\d) (?=(%|s|ms|MiB|GiB)(?!\w))")
"""What a line must not break at: the blank before a unit."""

INLINE = re.compile(r"<pre.*?</pre>|<code>[^<]*</code>", re.DOTALL)
HYPHENATED = re.compile(r"(?<![^\s>])[^\s<>]*-[^\s<>]*")
"""Words of code in which browsers would break a line, such as options."""

SHORT = 28
"""Characters of a word that fit a line, also on a phone."""

EXPONENT = re.compile(r"(?<=\de)-(?=\d)")

CODE = re.compile(r"<pre.*?</pre>|<code.*?</code>", re.DOTALL)
"""What stays as it is, as people copy it."""


def on_page_content(html: str, **_: object) -> str:
    """Return a page in which browsers know where lines may break."""
    kept = INLINE.sub(lambda code: _inline_code(code[0]), html)
    named = NAME.sub(lambda name: PLACE.sub("<wbr>", name[0]), kept)
    texts, codes = CODE.split(named), [*CODE.findall(named), ""]
    return "".join(
        EXPONENT.sub("&#8209;", QUANTITY.sub("&nbsp;", text)) + code
        for text, code in zip(texts, codes, strict=True)
    )


def _inline_code(code: str) -> str:
    if code.startswith("<pre"):
        return code
    text = code.replace("\\|", "|")  # what the source of a table needs, readers would copy
    return HYPHENATED.sub(lambda word: _whole(word[0]), text)


def _whole(word: str) -> str:
    return f'<span class="whole">{word}</span>' if len(word) <= SHORT else word
