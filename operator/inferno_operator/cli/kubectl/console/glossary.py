"""What the columns of tables mean, for people who do not know the project."""

from collections.abc import Mapping, Sequence

from inferno_operator.cli.tables.solution import TextTable, name_of

MILLISECONDS = " MS"
"""What names end with that have their unit in them, as terminals show no second line."""

NOW, DECIDED = "Replicas and accelerator that run now.", "Replicas and accelerator last decided."

LEFT = "How much of the target is left, in percent of it; below 0 the target is missed."

ONE_MORE = (
    "What one more card of the type would save per hour, or with a plus how many more requests/min"
    " it would serve. A tilde marks an estimate; a dash, that it is not known."
)

REASON = "Why the condition has its status, in a word; the pages on troubleshooting have each."

MEANINGS: Mapping[str, str] = {
    "ACTION": "What changes: the number of replicas, the accelerator (move), the batch, or only"
    " the predicted numbers.",
    "AVAILABLE": "Cards that there are for Servers of this namespace.",
    "BATCH": "Most requests that a replica serves at the same time.",
    "BEST ELSEWHERE": "What the Server needs on the best other accelerator, whether cards are free"
    " or not.",
    "BEST ELSEWHERE PRICE": "How much more that costs than what is decided.",
    "BY": "Who approved or rejected the Plan; mode Auto: nobody had to.",
    "COST": "Cost of all replicas.",
    "CURRENT": NOW,
    "DESIRED": DECIDED,
    "HELD": "Cards of Servers for which no decision is possible.",
    "IN": "Mean input tokens of a request.",
    "ITL": "Inter-token latency: mean time between two output tokens of a request.",
    "ITL/SLO": "Inter-token latency (mean time between two output tokens), of what the target"
    " allows.",
    "ITL/SLO LEFT": LEFT,
    "KV": "How full the KV cache is, which keeps the tokens of running requests.",
    "LIMITED BY": "Why there are not more cards: the Capacity, or what else uses them.",
    "LOAD": "Requests that arrive.",
    "MAX RATE": "Most requests that one replica serves within all targets.",
    "MISS A TARGET": "Servers with a latency above its target now, among those with measured"
    " latencies.",
    "MISSES": "Targets that the measured latencies miss now.",
    "NOW/SLO": "What a target limits now, of what it allows: the mean, or the percentile that the"
    " target names, which is the 95th for WAIT; estimated where percentiles are not measured.",
    "ONE MORE CARD": ONE_MORE,
    "OTHERS": "Cards that pods use which belong to no Server.",
    "OURS": "Cards that Servers use.",
    "OUT": "Mean output tokens of a request.",
    "SCORE": "What plans make as small as possible: the change of cost, and a penalty for a move.",
    "CHOSEN": "Whether the plan uses the option, and how many replicas where it needs more.",
    "WHY NOT": "Why the plan does not use the option.",
    "PHASE": "Where the Plan is: Proposed waits for an answer, Approved and Acting are on the way,"
    " Done runs. Written: the operator scales none of its Servers. Superseded: a newer one took its"
    " place; Expired: its approval ended before; Rejected: somebody said no; Failed: it could not"
    " be carried out.",
    "PLANNED": "What the plan decides.",
    "PRICE": ONE_MORE,
    "PRIORITY": "1 is served first.",
    "QUALITY": "Fresh: measured now. Partial: some replicas are missing. Idle: no requests. Stale,"
    " Missing, Refused: no new numbers, see the message. A dash: entered by hand.",
    "READY": "Allocated: the Server gets what it needs; otherwise what is wrong.",
    "REASON": "Allocated: the Server gets what it needs; otherwise what is short.",
    "RUNNING": "Requests that are being served.",
    "TOTAL": "Cards that nodes have.",
    "TTFT": "Mean time to first token: from the arrival of a request to its first output token.",
    "TTFT/SLO": "Time to first token, of what the target allows: the mean, or the percentile that"
    " the target names.",
    "TTFT/SLO LEFT": LEFT,
    "WAIT": "Mean time that a request waits before a replica works on it.",
    "WAIT/SLO": "Waiting time of a request, of what the target allows: the 95th percentile, or the"
    " one that the target names; estimated from the mean where it is not measured.",
    "WAIT/SLO LEFT": LEFT,
    "WAITING": "Requests that wait.",
    "WHY": "Allocated: the Server gets what it needs; otherwise what is short, and why.",
}
"""Meanings by the name of the column."""

OF_TABLES: Mapping[str, Mapping[str, str]] = {
    "ACCELERATOR": {
        "ALONE STEP": "Time of a step that makes a token of one request, alone in its batch.",
        "FULL STEP": "Time of a step that makes a token of each request of a full batch, with"
        " atTokens tokens each.",
        "CALIBRATED STEP": "The same as alone, as it follows from measurements.",
        "CALIBRATION": "Calibrated: measured parameters are good to use; configured: there are"
        " none; otherwise why not.",
        "WINDOWS": "Spans of time of single replicas that the calibration is made of.",
        "BATCHES": "Smallest and largest batch among them [requests].",
        "RESIDUAL": "Median distance of the windows from the calibrated line.",
        "DRIFT": "By how much latencies changed lately, where that was noticed.",
    },
    "CARDS": {
        "IN USE/THERE": "Cards that replicas use now, of those that there are.",
        "PLANNED/THERE": "Cards that the last plan uses, of those that there are.",
    },
    "CONDITION": {"REASON": REASON},
    "MODEL": {
        "CALIBRATE": "Use: plans take measured parameters. Report: they are only shown. Off: there"
        " are none.",
        "CALIBRATED": "Whether the measured parameters are good to use, or why not.",
    },
    "NOT USED BECAUSE": {
        "WINDOWS": "Spans of time of single replicas that the calibration left out.",
    },
    "OPTIMIZER": {"REASON": REASON},
    "QUANTITY": {
        "PREDICTED": "What the last decision counts on, for the load that it was made for."
    },
    "SERVER": {
        "MEASURED": "Quality of the measured numbers; a dash: entered by hand.",
        "REPLICAS": "Replicas that report, of those that are ready.",
    },
}
"""Meanings in tables that begin with a column, where they are not those of `MEANINGS`."""


def meanings_of(table: TextTable) -> Sequence[tuple[str, str]]:
    """Return the columns of a table that need words, with these, in their order."""
    names = [name_of(heading).removesuffix(MILLISECONDS) for heading in table.headings]
    meanings = {**MEANINGS, **OF_TABLES.get(names[0], {})}
    return [(name, meanings[name]) for name in names if name in meanings]
