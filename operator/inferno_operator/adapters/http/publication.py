"""The metrics of published decisions, and their rows."""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from inferno_operator.adapters.http.series import Metric, Row, replaced
from inferno_operator.controllers.scaling.publication import Published

DESIRED = replaced(
    "desired_replicas",
    ("server", "accelerator", "workload"),
    "Replicas that were decided for a workload; server is the name of the Server object.",
)

Variant = Callable[[Published, str], str]
"""Returns the name of the variant that runs a Server on an accelerator."""

VARIANT = ("namespace", "exported_namespace", "variant_name", "accelerator_type")
"""Labels of the autoscaler of llm-d; KServe asks for the namespace by the second name."""

WVA_DESIRED = Metric(
    "wva_desired_replicas",
    "gauge",
    VARIANT,
    "Replicas that were decided for a variant; with INFERNO_WVA_METRICS only.",
)
WVA_CURRENT = Metric(
    "wva_current_replicas",
    "gauge",
    VARIANT,
    "Replicas of a variant that run; with INFERNO_WVA_METRICS only.",
)
WVA_RATIO = Metric(
    "wva_desired_ratio",
    "gauge",
    VARIANT,
    "Decided replicas divided by those that run, or the decided ones if none run; with"
    " INFERNO_WVA_METRICS only.",
)

WVA_METRICS = (WVA_DESIRED, WVA_CURRENT, WVA_RATIO)
PUBLISHED_METRICS = (DESIRED,)


def desired_rows(decisions: Iterable[Published]) -> Iterator[tuple[str, Iterable[Row]]]:
    """Yield namespaces with the rows of their Servers; decisions are in the order of their keys."""
    for namespace, published in groupby(_standing(decisions), lambda item: item.key.namespace):
        yield namespace, [row for decision in published for row in _desired(decision)]


def wva_rows(
    decisions: Iterable[Published], variant: Variant
) -> Iterator[tuple[str, Iterable[Row]]]:
    """Yield namespaces with the rows for users of llm-d and KServe.

    Several Servers that name one workload give one row, that of the first Server.
    """
    for namespace, published in groupby(_standing(decisions), lambda item: item.key.namespace):
        rows: dict[tuple[Metric, tuple[str, ...]], float] = {}
        for decision in published:
            for metric, labels, value in _variants(decision, variant):
                rows.setdefault((metric, labels), value)
        yield namespace, [(metric, labels, value) for (metric, labels), value in rows.items()]


def _standing(decisions: Iterable[Published]) -> Iterator[Published]:
    return (decision for decision in decisions if decision.replicas is not None)


def _desired(decision: Published) -> Iterator[Row]:
    for accelerator, replicas in decision.parts():
        workload = decision.workloads.get(accelerator)
        name = workload.name if workload else ""
        yield DESIRED, (decision.key.name, accelerator, name), replicas


def _variants(decision: Published, variant: Variant) -> Iterator[Row]:
    for place, desired in decision.parts():
        workload = decision.workloads.get(place)
        accelerator = workload.accelerator if workload else place
        labels = decision.key.namespace, variant(decision, place), accelerator
        current = decision.current.get(place, 0)
        yield WVA_DESIRED, labels, desired
        yield WVA_CURRENT, labels, current
        yield WVA_RATIO, labels, desired / current if current else desired
