"""Whether each request was counted twice, by a prefill and by a decode replica; pure.

Where prefill and decode are apart, an engine of either role counts each request, and that of a
prefill replica as one with a single output token. A sum over both is twice the rate, with half of
the output tokens.
"""

from inferno_operator.engines.catalogue import MetricSource
from inferno_operator.resources import Measured, Roles, Server
from inferno_operator.resources.measurement import USABLE


def counted_twice(newest: Measured, server: Server, source: MetricSource | None) -> str:
    """Return why the numbers may not be used; "" if they may.

    Parameters
    ----------
    newest
        What was measured, with the replicas that report.
    server
        The Server, with what runs.
    source
        Its source; None for a source of queries only.
    """
    current = server.spec.current_alloc
    if source is None or source.without_replicas or current is None or current.roles is None:
        return ""
    if not newest.arrival_rate or newest.quality not in USABLE or _has_own_queries(server):
        return ""
    return _WHY if _report_both(newest, current.roles) else ""


def _has_own_queries(server: Server) -> bool:
    """Whether it says itself how many requests arrive, and how long the answers are."""
    queries = server.spec.measure.queries if server.spec.measure else None
    return bool(queries and queries.arrival_rate and queries.avg_out_tokens)


def _report_both(newest: Measured, roles: Roles) -> bool:
    """Whether so many replicas report as there are of both roles, and not of decode alone."""
    prefill, decode = roles.prefill.num_replicas, roles.decode.num_replicas
    return newest.replicas is not None and newest.replicas.ready >= prefill + decode > decode


_WHY = (
    "prefill and decode replicas have each counted all requests: take a source that counts them"
    " before, such as EPP or Dynamo, or let spec.measure.labels select only replicas that answer"
)
