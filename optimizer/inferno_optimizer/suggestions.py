"""Suggestions for a name that does not exist: similar names and all known names."""

import difflib
from collections.abc import Sequence

NAMES_SHOWN = 16
"""Largest number of known names that a message lists."""

LIKENESS = 0.5
"""Least similarity, from 0 to 1, of a known name that is suggested."""

SYNONYMS = (("tpot", "itl"),)
"""Other words and the ones used here: time per output token is the inter-token latency."""


MOST_COMPARED = 200
"""Largest number of known names that a name is compared with; each takes about 10 µs."""


def nearest(name: str, known: Sequence[str], most: int = 2) -> str:
    """The end of a message about an unknown name: similar names; empty if there are none."""
    near = " or ".join(_nearest(name, known)[:most])
    return f"; did you mean {near}?" if near else ""


def alternatives(name: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown name: similar names, and the known names."""
    hint = nearest(name, known)
    more = f" and {len(known) - NAMES_SHOWN} more" if len(known) > NAMES_SHOWN else ""
    shown = ", ".join(known[:NAMES_SHOWN]) or "none"
    return f"{hint} (known: {shown}{more})"


def _nearest(name: str, known: Sequence[str]) -> Sequence[str]:
    ours = name.lower()
    for theirs, word in SYNONYMS:
        ours = ours.replace(theirs, word)
    if same := [word for word in known if word.lower() == ours]:
        return same
    if len(known) > MOST_COMPARED:
        return ()
    written = {word.lower(): word for word in reversed(known)}
    return [written[word] for word in difflib.get_close_matches(ours, written, 2, LIKENESS)]
