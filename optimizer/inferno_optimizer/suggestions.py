"""Suggestions for a name that does not exist: similar names and all known names."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher

NAMES_SHOWN = 16
"""Largest number of known names that a message lists."""

LIKENESS = 0.5
"""Least similarity, from 0 to 1, of a known name that is suggested."""

CLOSE = 0.2
"""How much less like a second suggestion may be than the first."""

PART = 0.9
"""How much a likeness to a word of a name counts; one to a part of the name counts so at least."""

SHORTEST = 3
"""Least letters of a part or a word that counts."""

SYNONYMS = (("tpot", "itl"),)
"""Other words and the ones used here: time per output token is the inter-token latency."""


PRODUCTS = frozenset(
    {"b200", "gb200", "b300", "gb300", "h20", "h100", "h200", "gh200"}
    | {"l4", "l40s", "mi250", "mi250x", "mi300a", "mi300x"}
)
"""Cards whose names differ by a letter or a digit, so that one is no misspelling of another."""

MOST_COMPARED = 200
"""Largest number of known names that a name is compared with; each takes about 30 µs."""

LONGEST_COMPARED = 100
"""Longest name that is compared with others [characters]."""

MOST_WORK = 100_000
"""Most pairs of characters that are compared for a name, which takes 20 ms at most."""

MOST_ADVISED = 8
"""Most unknown names of a kind for which a plan searches known ones that are like them."""

LONGEST_SHOWN = 253
"""Longest name that a message shows whole [characters]."""


def cut(name: str) -> str:
    """Return a name as a message shows it: without the end of a long one."""
    return name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_COMPARED]}..."


def nearest(name: str, known: Sequence[str], most: int = 2) -> str:
    """The end of a message about an unknown name: similar names; empty if there are none."""
    near = " or ".join(_nearest(name, known)[:most])
    return f"; did you mean {near}?" if near else ""


def nearest_of_each(names: Iterable[str], known: Sequence[str]) -> Mapping[str, str]:
    """`nearest` of unknown names by name; empty for all but the first `MOST_ADVISED`."""
    names = list(names)
    return dict.fromkeys(names, "") | {n: nearest(n, known) for n in names[:MOST_ADVISED]}


def alternatives(name: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown name: similar names, and all known ones if any."""
    return nearest(name, known) + list_known(known)


def list_known(known: Sequence[str]) -> str:
    """The known names, as messages end with; empty if there are none."""
    more = f" and {len(known) - NAMES_SHOWN} more" if len(known) > NAMES_SHOWN else ""
    return f" (known: {', '.join(map(cut, known[:NAMES_SHOWN]))}{more})" if known else ""


def _nearest(name: str, known: Sequence[str]) -> Sequence[str]:
    if len(name) > LONGEST_COMPARED:
        return ()
    known = [word for word in known if len(word) <= LONGEST_COMPARED]
    given = name.lower()
    for synonym, word in SYNONYMS:
        given = given.replace(synonym, word)
    if same := [word for word in known if word.lower() == given]:
        return same
    if len(known) > MOST_COMPARED or len(name) * sum(map(len, known)) > MOST_WORK:
        return ()
    distinct = {w.lower(): w for w in reversed(known) if not _is_other_product(name, w)}.values()
    words = _words(given)
    likeness = {word: _likeness(words, _words(word)) for word in reversed(distinct)}
    least = max(LIKENESS, max(likeness.values(), default=0.0) - CLOSE)
    near = [word for word in likeness if likeness[word] >= least]
    return sorted(near, key=likeness.__getitem__, reverse=True)[:2]


def _is_other_product(given: str, known: str) -> bool:
    """Whether two names are of different products: MI300X is no misspelling of MI355X.

    Words of letters and digits are compared, such as H100 or 70b; letters and digits may be missing
    in one of them, or be in another order.
    """
    fewer, more = sorted((_designations(given), _designations(known)), key=len)
    return any(not any(_may_be_meant(word, other) for other in more) for word in fewer)


def _designations(name: str) -> Sequence[str]:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return [
        re.sub(r"(?<=\d)o+", lambda letters: "0" * len(letters[0]), word)
        for word in words
        if re.search(r"\d", word) and re.search(r"[a-z]", word)
    ]


def _may_be_meant(word: str, other: str) -> bool:
    part, whole = sorted((word, other), key=len)
    if part != whole and {part, whole} <= PRODUCTS:
        return False
    letters = iter(whole)
    return sorted(part) == sorted(whole) or all(letter in letters for letter in part)


def _likeness(given: Sequence[str], known: Sequence[str]) -> float:
    """How much the words of two names are alike, from 0 to 1."""
    name, whole_name = "".join(given), "".join(known)
    part, whole = sorted((name, whole_name), key=len)
    likeness = _ratio(name, whole_name)
    if len(part) >= SHORTEST and part in whole:
        likeness = PART + (1 - PART) * likeness
    parts = (PART * _ratio(name, word) for word in known if len(word) >= SHORTEST)
    return max((likeness, *parts))


def _ratio(name: str, known: str) -> float:
    return SequenceMatcher(None, known, name).ratio()


def _words(name: str) -> Sequence[str]:
    """The words of a name in any of the usual ways to write it, in lower case."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W_]+", spaced.lower())
