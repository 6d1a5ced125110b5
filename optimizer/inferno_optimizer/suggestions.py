"""What a person may have meant by a name that there is none of."""

import difflib
from collections.abc import Sequence

NAMES_SHOWN = 16
"""How many of the names that are known a message shows."""

LIKENESS = 0.5
"""How much a name has to be like what was asked for to be suggested, of 1."""

SYNONYMS = (("tpot", "itl"),)
"""Words of others for ours: time per output token is the inter-token latency."""


def alternatives(name: str, known: Sequence[str]) -> str:
    """The end of a message about an unknown name: what is like it, and what there is."""
    near = " or ".join(_nearest(name, known))
    hint = f"; did you mean {near}?" if near else ""
    more = f" and {len(known) - NAMES_SHOWN} more" if len(known) > NAMES_SHOWN else ""
    shown = ", ".join(known[:NAMES_SHOWN]) or "none"
    return f"{hint} (known: {shown}{more})"


def _nearest(name: str, known: Sequence[str]) -> Sequence[str]:
    ours = name.lower()
    for theirs, word in SYNONYMS:
        ours = ours.replace(theirs, word)
    if same := [word for word in known if word.lower() == ours]:
        return same
    return difflib.get_close_matches(name, known, n=2, cutoff=LIKENESS)
