"""Every series that the operator and the REST optimizer give Prometheus."""

from collections.abc import Iterator

from inferno_operator.adapters.http.metrics import METRICS
from inferno_optimizer.api.app import OptimizerMetrics, WorkerPool
from inferno_optimizer.api.messages import ServerLimits
from tests.reference.markdown import code, table

HEADINGS = ("metric", "type", "labels", "meaning")


def metrics() -> str:
    """A table for each program."""
    return "\n\n".join(
        [
            "## Of the operator",
            table(
                HEADINGS,
                [
                    (code(m.name), m.kind, ", ".join(map(code, m.labels)), m.help)
                    for m in sorted(METRICS, key=lambda metric: metric.name)
                ],
            ),
            "## Of the REST optimizer",
            table(HEADINGS, sorted(_served())),
        ]
    )


def _served() -> Iterator[tuple[str, str, str, str]]:
    page = OptimizerMetrics(WorkerPool(ServerLimits()))
    page.count("/optimizeOne", 200, 0.1)  # so that the labels show
    for line in page.page().decode().splitlines():
        if line.startswith("# HELP") and not line.split()[2].endswith("_created"):
            _, _, name, text = line.split(maxsplit=3)
            yield code(name), _type(page, name), _labels(page, name), text


def _type(page: OptimizerMetrics, name: str) -> str:
    lines = page.page().decode().splitlines()
    return next(line.split()[3] for line in lines if line.startswith(f"# TYPE {name} "))


def _labels(page: OptimizerMetrics, name: str) -> str:
    lines = page.page().decode().splitlines()
    sample = next(line for line in lines if line.startswith(name))
    inside = sample.partition("{")[2].partition("}")[0]
    names = [pair.partition("=")[0] for pair in inside.split(",") if pair]
    return ", ".join(code(label) for label in names if label != "le")
