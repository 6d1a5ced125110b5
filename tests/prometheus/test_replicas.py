"""Which replicas a real Prometheus knows, reporting or not, when pods have equal addresses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.promql import START, replicas
from inferno_operator.engines.series_groups import PART, WINDOWS, SeriesGroup
from tests.engines.history import Scraping
from tests.engines.prometheus import Prometheus
from tests.prometheus.conftest import ServePast

INTERVAL_S = 15
END = 1_767_225_600.0
"""Unix time of the last scrape, about which Prometheus is asked [s]."""

LENGTH_S = 600
ENDED_S = 450
"""When some pods end: within the long window."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target with an engine; some labels are on `up` as well, some are the engine's own."""

    model: str
    labels: str
    own: str = ""
    ends: bool = False
    fails: bool = False
    """Whether the scrapes fail when others end."""
    renamed: str = ""
    """The job that scrapes it when others end."""
    ends_s: int = ENDED_S
    """When it ends [s]."""
    restarts_every_s: int = LENGTH_S
    """Time between restarts; what it has counted is about as much each time it is scraped."""

    def lines(self, now: int, time: float) -> Iterator[str]:
        over = now > self.ends_s
        if self.ends and over:
            return
        failed = self.fails and over
        job = (over and self.renamed) or "engines"
        yield f'up{{job="{job}",{self.labels}}} {int(not failed)} {time:.3f}\n'
        if not failed:
            labels = f'{self.labels}{self.own},model_name="{self.model}"'
            yield f'vllm:num_requests_running{{job="{job}",{labels}}} 3 {time:.3f}\n'
            started = now // self.restarts_every_s * self.restarts_every_s
            yield f'{START}{{job="{job}",{self.labels}}} {started} {time:.3f}\n'
            yield f'vllm:request_success_total{{job="{job}",{labels}}} {now} {time:.3f}\n'


def pod(name: str, model: str, address: str, *, ends: bool = False, fails: bool = False) -> Target:
    namespace, _, pod_name = name.rpartition("/")
    labels = f'instance="{address}",namespace="{namespace}",pod="{pod_name}"'
    return Target(model, labels, ends=ends, fails=fails)


TARGETS = (
    # Two pods of four end; pods of another namespace have their addresses.
    *(pod(f"prod/a-{n}", "scaled", f"10.0.0.{n}:8000", ends=n > 1) for n in range(4)),
    *(pod(f"test/b-{n}", "other", f"10.0.0.{n}:8000") for n in range(4)),
    # A pod ends, and one that is new gets its address.
    pod("prod/c-0", "replaced", "10.0.1.0:8000", ends=True),
    pod("prod/c-1", "replaced", "10.0.1.0:8000"),
    # A pod is not scraped any more, but still a target.
    pod("prod/d-0", "failing", "10.0.2.0:8000"),
    pod("prod/d-1", "failing", "10.0.2.1:8000", fails=True),
    # Another cluster has the same names.
    *(
        Target("clusters", f'instance="10.0.3.0:8000",namespace="prod",pod="e",cluster="{name}"',
               ends=name == "west")
        for name in ("east", "west")
    ),
    # Pods of two clusters have the same names, and both serve.
    *(
        Target("everywhere", f'instance="10.0.3.1:8000",namespace="prod",pod="k",cluster="{name}"')
        for name in ("east", "west")
    ),
    # The job of two pods of three is renamed.
    *(
        Target("renamed", f'instance="10.0.4.{n}:8000",namespace="prod",pod="g-{n}"', renamed=job)
        for n, job in enumerate(("vllm", "vllm", ""))
    ),
    # A pod of another model restarts, in the same namespace.
    Target("restarting", 'instance="10.0.5.0:8000",namespace="prod",pod="h"', restarts_every_s=30),
    Target("restarted", 'instance="10.0.5.1:8000",namespace="prod",pod="i"', restarts_every_s=400),
    # Pods with two engines each, and an engine that names no pod.
    *(
        Target("several", f'instance="10.0.6.{n}:{port}",namespace="prod",pod="s-{n}"')
        for n in range(2)
        for port in (8000, 8001)
    ),
    Target("several", 'instance="10.0.6.9:8000"'),
    # Nothing marks that three pods of four ended a minute ago, as another Prometheus wrote them.
    *(
        Target("unmarked", f'instance="10.0.7.{n}:8000",namespace="prod",pod="u-{n}"',
               ends=n > 0, ends_s=LENGTH_S - 3 * INTERVAL_S)
        for n in range(4)
    ),
    # Targets without names of pods; some engines say them of themselves.
    Target("plain", 'instance="host:1"'),
    Target("plain", 'instance="host:2"', own=',pod="f",namespace="prod"', fails=True),
)  # fmt: skip


@pytest.fixture(scope="module")
def known(serve_past: ServePast) -> Iterator[Prometheus]:
    past = (
        line
        for passed in range(INTERVAL_S, LENGTH_S + 1, INTERVAL_S)
        for target in TARGETS
        for line in target.lines(passed, END - LENGTH_S + passed)
    )
    lookback = f"--query.lookback-delta={4 * INTERVAL_S}s"  # as if ends were marked
    with serve_past("replicas", past, Scraping(options=(lookback,))) as prometheus:
        yield prometheus


def counted(
    known: Prometheus, model: str, labels: Sequence[str] = (), values: Sequence[str] = ()
) -> dict[str, float]:
    """Replicas of a model that report, that do not, that have another job, and that restart."""
    group = SeriesGroup(
        "vLLM", read_built_in_sources()["vLLM"], ("model_name", *labels), ((model, *values),)
    )
    samples = known.query(replicas(group, WINDOWS).expression, END)
    found = {sample.labels[PART]: sample.value for sample in samples}
    names = ("reporting", "pods", "absent", "moved", "restarting")
    return {name: found[name] for name in names if name in found}


def test_pods_that_ended_are_not_counted_for_other_pods_have_their_addresses(
    known: Prometheus,
) -> None:
    assert counted(known, "scaled") == {"reporting": 2}
    assert counted(known, "replaced") == {"reporting": 1}
    assert counted(known, "clusters") == {"reporting": 1}


def test_pods_of_two_clusters_with_the_same_names_are_two(known: Prometheus) -> None:
    assert counted(known, "everywhere") == {"reporting": 2}


def test_pods_with_several_engines_are_counted_beside_their_targets(known: Prometheus) -> None:
    assert counted(known, "several") == {"reporting": 5, "pods": 3}
    assert counted(known, "several", ("namespace",), ("prod",)) == {"reporting": 4, "pods": 2}
    assert counted(known, "several", ("pod",), ("s-1",)) == {"reporting": 2, "pods": 1}


def test_pods_whose_newest_samples_are_old_are_not_counted(known: Prometheus) -> None:
    assert counted(known, "unmarked") == {"reporting": 4, "pods": 1}


def test_a_pod_whose_scrapes_fail_is_counted(known: Prometheus) -> None:
    assert counted(known, "failing") == {"reporting": 1, "absent": 1}


def test_a_target_whose_scrapes_fail_is_counted_without_the_name_of_a_pod(
    known: Prometheus,
) -> None:
    assert counted(known, "plain") == {"reporting": 1, "absent": 1}


def test_pods_whose_job_is_renamed_are_counted_for_their_counters_begin_anew(
    known: Prometheus,
) -> None:
    assert counted(known, "renamed") == {"reporting": 3, "moved": 2}


@pytest.mark.parametrize(("labels", "values"), [((), ()), (("namespace",), ("prod",))])
def test_pods_that_restart_again_and_again_are_counted_though_their_counters_never_fall(
    known: Prometheus, labels: Sequence[str], values: Sequence[str]
) -> None:
    assert counted(known, "restarting", labels, values) == {"reporting": 1, "restarting": 1}
    assert counted(known, "restarted", labels, values) == {"reporting": 1}
