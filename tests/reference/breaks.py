"""A hook of MkDocs: where lines break, as long names, options and quantities would break badly."""

import re

NAME = re.compile(r"(?<=<td><code>)[^<]*(?=</code>)")
"""A cell that begins with a name."""

PLACE = re.compile(r"(?<=[._/])(?<!\s/)(?<!^/)(?=[^\W\d])(?!(?<=\.)[a-z]{2,3}/)")
"""Where a name may break: after a dot, an underscore or a slash that does not begin a path, but not
in the domain of a label such as nvidia.com/gpu."""

QUANTITY = re.compile(r"(?<=\d) (?=(%|s|ms|min|[KMG]i?B)(?!\w))")
"""What a line must not break at: the blank before a unit."""

INLINE = re.compile(r"<pre.*?</pre>|<code>[^<]*</code>", re.DOTALL)
WORD = re.compile(r"(?<![^\s>])(?:-\w \w+|[^\s<>]+)")
"""Of code, or a short option with its value; browsers would break a line after a hyphen or ?, and
a long one anywhere."""

SENTENCE = re.compile(r'<span class="go">(?=\S)((?:(?!  )[^<]){45,})</span>')
"""A line of output that is no row of a table: two blanks would be between the columns of a row."""

COMMENT = re.compile(r'<span class="gp">( *# )</span>(.*)')
"""A line of output, such as a comment of a manifest, that looks like the prompt of root."""

INDENTED = re.compile(r'<span class="go">( +)(# [^<]{40,})</span>')
"""A comment in the manifest that a command printed."""

OF_A_FILE = re.compile(
    r'(?P<start>^|<code>)(?:<span class="w">(?P<blanks> +)</span>)?'
    r'<span class="c1">(?P<text># [^<]{40,})</span>$',
    re.MULTILINE,
)
"""A comment that has a line of a file for itself."""

TAG = re.compile(r"<[^>]*>")

PLAIN = re.compile(r"(?<=<code>)(?=(?:.*\n)*?\$ )[^<]+(?=</code>)")
"""Commands with their outputs that have no colours."""

PLAIN_SENTENCE = re.compile(r"^(?![$ ])(?:(?!  ).){45,}$", re.MULTILINE)
"""The same as `SENTENCE`, there."""

TYPE = re.compile(r"(?<=<td>)list of \w+(?=</td>)")
"""Of a field, which is on one line where there is room."""

SHORT = 28
"""Characters of a word that fit a line, also on a phone."""

DIFFERENCE = re.compile(r"(?<![\w-])(\w) ([-+±]) (?=\w(?![\w-]))")
"""A sum such as n - 1 or 5 ± 5, of which no line may end in the middle."""

HYPHEN = re.compile(r"(?<=\de)-(?=\d)|(?<=&nbsp;)-(?=&nbsp;)")
"""Of an exponent or a difference, at which no line may end, whatever follows."""

HYPHENATED = re.compile(
    r"<[^>]*>|(?<=[\s>(])(?:llm-d\b|TensorRT-LLM|(?:[a-z]{2}|\d+)(?:-\d+)+(?![\w-]))"
)
"""A tag, or what stays whole and is searched for as it is: a name, or numbers behind hyphens, as in
a date, the pages of a source or a step such as sf-02."""

CODE = re.compile(r"<pre.*?</pre>|<code.*?</code>", re.DOTALL)
"""What stays as it is, as people copy it."""


def on_page_content(html: str, **_: object) -> str:
    """Return a page in which browsers know where lines may break."""
    kept = INLINE.sub(lambda code: _inline_code(code[0]), html)
    named = NAME.sub(lambda name: PLACE.sub("<wbr>", name[0]), kept)
    named = TYPE.sub(r'<span class="type">\g<0></span>', named)
    texts, codes = CODE.split(named), [*CODE.findall(named), ""]
    return "".join(_text(text) + code for text, code in zip(texts, codes, strict=True))


def _text(text: str) -> str:
    whole = DIFFERENCE.sub(r"\1&nbsp;\2&nbsp;", QUANTITY.sub("&nbsp;", text))
    return HYPHENATED.sub(lambda found: _hyphenated(found[0]), HYPHEN.sub("&#8209;", whole))


def _hyphenated(found: str) -> str:
    return found if found.startswith("<") else f'<span class="whole">{found}</span>'


def _inline_code(code: str) -> str:
    if code.startswith("<pre"):
        return _output(code)
    text = code.replace("\\|", "|")  # what the source of a table needs, readers would copy
    return WORD.sub(lambda word: _breaking(word[0]), text)


def _output(code: str) -> str:
    commented = COMMENT.sub(
        lambda line: f'<span class="go">{line[1]}{TAG.sub("", line[2])}</span>', code
    )
    indented = INDENTED.sub(
        lambda line: f'<span class="go">{line[1]}</span>{_sentence(line[2], "go", line[1])}',
        commented,
    )
    noted = OF_A_FILE.sub(_comment, indented)
    told = SENTENCE.sub(r'<span class="go sentence">\1</span>', noted)
    return PLAIN.sub(
        lambda text: PLAIN_SENTENCE.sub(r'<span class="sentence">\g<0></span>', text[0]), told
    )


def _comment(line: re.Match[str]) -> str:
    blanks = line["blanks"] or ""
    return f"{line['start']}{blanks}{_sentence(line['text'], 'c1', blanks)}"


def _sentence(text: str, colour: str, blanks: str) -> str:
    """A line of text that breaks at the end of the block, wherever it begins."""
    width = f' style="max-width: calc(100% - {len(blanks)}ch)"' if blanks else ""
    return f'<span class="{colour} sentence"{width}>{text}</span>'


def _breaking(word: str) -> str:
    if len(word) > SHORT:
        return PLACE.sub("<wbr>", word)
    return f'<span class="whole">{word}</span>' if {"-", "?"} & set(word) else word
