"""Answers of Prometheus, judged: nothing that is missing counts as zero."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import inf, nan

import pytest

from inferno_operator.controllers.measurement.quality import judge_reading, note_missed_targets
from inferno_operator.engines.catalogue import read_built_in_sources
from inferno_operator.engines.reading import (
    CUSTOM_ANSWERS,
    LOAD_LONG,
    LOAD_SHORT,
    MEANS,
    REPLICAS,
    Parts,
    Reading,
)
from inferno_operator.engines.series_groups import RateWindows
from inferno_operator.resources import Measured, Percentiles, Target

NOW = 1_800_000_000.0
VLLM = read_built_in_sources()["vLLM"]

REPORTING = {
    "running": 3.0,
    "waiting": 1.0,
    "kvCacheUsage": 0.4,
    "reporting": 2.0,
}
KNOWN = {
    "avgInTokens": 600.0,
    "avgOutTokens": 200.0,
    "itlAverage": 0.020,
    "ttftAverage": 0.150,
    "waitAverage": 0.010,
}
BEFORE = Measured(
    time=datetime.fromtimestamp(NOW - 60, UTC),
    quality="Fresh",
    arrival_rate=120,
    avg_in_tokens=500,
    avg_out_tokens=100,
)


def reading(**answers: Parts) -> Reading:
    """Two replicas that serve five requests a second; `answers` replace those of a query."""
    usual = {
        LOAD_SHORT: {"0": 5.0},
        LOAD_LONG: {"0": 5.0},
        MEANS: KNOWN,
        REPLICAS: REPORTING,
    }
    named = {name.replace("_", " "): parts for name, parts in answers.items()}
    return Reading({**usual, **named}, time=NOW)


def judge(subject: Reading, before: Measured | None = None) -> Measured:
    return judge_reading(subject, VLLM, before)


def test_fresh_numbers_have_the_units_of_the_resource() -> None:
    found = judge(reading())

    assert found.quality == "Fresh"
    assert not found.message
    assert found.arrival_rate == 300  # per minute
    assert (found.avg_in_tokens, found.avg_out_tokens) == (600, 200)
    assert (found.itl_average, found.ttft_average, found.wait_average) == (20, 150, 10)  # ms
    assert (found.running, found.waiting, found.kv_cache_usage) == (3, 1, 0.4)
    assert found.replicas is not None
    assert (found.replicas.ready, found.replicas.reporting) == (2, 2)


@pytest.mark.parametrize(
    ("short", "long", "rate"),
    [
        (15.0, 5.0, 15.0),  # three times the load: seen at once
        (5.9, 5.0, 5.0),  # less than 3.5 deviations of a Poisson count: noise
        (1.0, 5.0, 5.0),  # a decrease is seen after the long window
        (-1.0, -0.5, 0.0),  # a rate is never negative
    ],
)
@pytest.mark.parametrize("alternative", ["0", "1"])  # the first that has series
def test_an_increase_counts_at_once_and_a_decrease_after_the_long_window(
    short: float, long: float, rate: float, alternative: str
) -> None:
    found = judge(reading(load_short={alternative: short}, load_long={alternative: long}))

    assert found.arrival_rate == pytest.approx(rate * 60)


@pytest.mark.parametrize(
    ("brief", "rate"),
    [
        (20.0, 20.0),  # the short window has seen ten seconds of a load that is twice as large
        (13.0, 10.3),  # noise of 200 requests
    ],
)
def test_a_brief_window_shows_how_large_a_jump_is(brief: float, rate: float) -> None:
    rates = {"load_brief": {"0": brief}, "load_short": {"0": 11.7}, "load_long": {"0": 10.3}}
    subject = replace(reading(**rates), windows=RateWindows(brief=20), interval=5.0)

    found = judge(subject).arrival_rate

    assert found == pytest.approx(rate * 60)


def test_a_window_of_two_scrapes_shows_no_increase() -> None:
    """The first survey does not know that there is a scrape every 30 s."""
    subject = reading(load_short={"0": 15.0})

    found = judge(replace(subject, interval=30.0))

    assert found.arrival_rate == pytest.approx(5.0 * 60)


def known(seconds: float, samples: float) -> Parts:
    """What is known of a server that is known for some seconds, up to now."""
    return {"since": NOW - seconds, "until": NOW, "samples": samples}


def young(counted: float, seconds: float, samples: float) -> Reading:
    """A server that is known for some seconds, in which so many requests were counted."""
    return reading(
        replicas={**REPORTING, "young": 2.0},
        known_since=known(seconds, samples),
        load_short={"0": counted / 60},
        load_long={"0": counted / 300},
    )


def test_what_is_counted_is_divided_by_the_time_that_is_known() -> None:
    """57.9 requests/s for 27 s, scraped every 3 s: rate() counts 28.5 s in a window of 60."""
    subject = young(57.9 * (27 + 1.5), 27, 10)

    found = judge(replace(subject, interval=3.0))

    assert found.quality == "Partial"
    assert found.arrival_rate == pytest.approx(57.9 * 60)


def test_the_first_scrapes_of_a_server_tell_how_often_it_is_scraped() -> None:
    """Four scrapes, 5 s apart; those of other servers are not known, or 30 s apart."""
    subject = young(8.0 * 17.5, 15, 4)

    found = [judge(replace(subject, interval=interval)) for interval in (0.0, 30.0)]

    assert [each.arrival_rate for each in found] == pytest.approx([8 * 60] * 2)


@pytest.mark.parametrize(
    ("rate", "seconds", "samples", "is_known"),
    [
        (9.0, 10.0, 3, False),  # 90 requests
        (11.0, 10.0, 3, True),
        (30.0, 5.0, 2, False),  # half of the time is extrapolated
        (0.2, 55.0, 12, False),
        (0.2, 60.0, 13, True),  # no more are to be had in the short window
    ],
)
def test_a_first_measurement_is_made_of_enough_requests(
    rate: float, seconds: float, samples: float, *, is_known: bool
) -> None:
    subject = young(rate * (seconds + seconds / (samples - 1) / 2), seconds, samples)

    found = judge(subject)
    later = judge(subject, BEFORE)

    assert (found.quality, later.quality) == ("Partial", "Partial")
    assert (found.arrival_rate is not None) == is_known
    assert (found.avg_out_tokens is not None) == is_known
    assert is_known or (later.arrival_rate, later.avg_out_tokens) == (120, 100)
    assert is_known or "what runs stays" in found.message


def test_a_window_whose_begin_is_near_the_first_sample_is_known() -> None:
    """Prometheus extrapolates to the begin of a window, up to 1.1 intervals."""
    young = {**REPORTING, "young": 2.0}
    subject = reading(
        replicas=young, known_since=known(50, 6), load_short={"0": 9.0}, load_long={"0": 0}
    )

    found = judge(replace(subject, interval=10.0))

    assert found.arrival_rate == pytest.approx(9.0 * 60)


def test_the_time_since_the_newest_sample_is_not_known() -> None:
    """As where samples arrive 40 s late in a remote store: rate() counts to 7.5 s after them."""
    counted = 20.0 * (300 - 40 + 7.5) / 300
    delayed = {**REPORTING, "newest": NOW - 40}
    subject = reading(replicas=delayed, load_short={"0": 0.0}, load_long={"0": counted})

    found = judge(replace(subject, interval=15.0))

    assert found.quality == "Fresh"
    assert found.arrival_rate == pytest.approx(20.0 * 60)


@pytest.mark.parametrize("value", [nan, inf])
def test_a_mean_without_traffic_keeps_the_last_one(value: float) -> None:
    found = judge(reading(means=dict.fromkeys(KNOWN, value)), BEFORE)

    assert found.avg_out_tokens == 100
    assert found.itl_average is None


@pytest.mark.parametrize(
    ("few", "count", "seconds", "tokens"),
    [
        (900.0, 5.0, 30, 100 + 0.25 * 0.1 * 800),  # a quarter of 20 requests, a tenth of 300 s
        (900.0, 19.0, 600, 100 + 0.95 * 800),
        (None, None, 30, 100),
        (900.0, 5.0, 0, 900),  # no others are known
    ],
)
def test_lengths_of_few_requests_move_the_last_ones_by_their_weight(
    few: float | None, count: float | None, seconds: float, tokens: float
) -> None:
    """When a load ends, the last requests to end are the longest ones."""
    parts = {"few avgOutTokens": few, "number of few avgOutTokens": count}
    known = {name: value for name, value in parts.items() if value is not None}
    before = BEFORE.model_copy(update={"time": datetime.fromtimestamp(NOW - seconds, UTC)})

    found = judge(reading(means=known), before if seconds else None)

    assert found.avg_out_tokens == pytest.approx(tokens)


def test_a_server_that_was_scraped_once_keeps_the_last_rate() -> None:
    young = {**REPORTING, "young": 2.0}

    found = judge(reading(load_short={}, load_long={}, replicas=young), BEFORE)

    assert found.quality == "Partial"
    assert "fewer than 100 requests" in found.message
    assert found.arrival_rate == 120


@pytest.mark.parametrize("value", [nan, inf, None])
def test_an_arrival_rate_that_is_no_number_is_missing_and_not_zero(value: float | None) -> None:
    rates = {} if value is None else {"0": value}

    found = judge(reading(load_short=rates, load_long=rates), BEFORE)

    assert found.quality == "Missing"
    assert found.arrival_rate == 120
    assert "vllm:request_success_total" in found.message
    assert ("NaN or infinity" in found.message) == (value is not None)
    assert ("no series" in found.message) == (value is None)


@pytest.mark.parametrize(
    ("replicas", "ready_pods", "quality"),
    [
        ({}, None, "Idle"),
        ({"young": 2.0}, None, "Partial"),
        ({"waiting": 1.0}, None, "Fresh"),
        ({"reporting": 1.0}, (1, 1), "Idle"),
        ({"reporting": 1.0}, (2, 2), "Partial"),
    ],
)
def test_a_server_without_requests_is_idle_where_all_is_known(
    replicas: Parts, ready_pods: tuple[int, int] | None, quality: str
) -> None:
    quiet = {**REPORTING, "running": 0.0, "waiting": 0.0, **replicas}
    subject = reading(load_short={"0": 0.0}, load_long={"0": 0.0}, replicas=quiet)

    found = judge_reading(subject, VLLM, BEFORE, ready_pods=ready_pods)

    assert found.quality == quality
    if quality == "Idle":
        assert "one replica stays at least, also with minNumReplicas 0" in found.message
        assert (found.arrival_rate, found.avg_out_tokens) == (0, 200)


def test_copies_are_named_and_change_nothing_else() -> None:
    subject = replace(
        reading(replicas={**REPORTING, "copies": 2.0}), copies="each target has 2 copies"
    )

    found = judge(subject)

    assert found.model_copy(update={"message": ""}) == judge(reading())
    assert found.message == "each target has 2 copies"


def test_copies_that_count_different_requests_may_grow_but_not_shrink() -> None:
    parts = {**REPORTING, "copies": 2.0}
    subject = reading(replicas=parts, copies={"unlike": 1.0})
    subject = replace(subject, copies="each target has 2 copies")

    found = judge(subject)

    assert found.quality == "Partial"
    assert "each target has 2 copies, but they count different requests" in found.message


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        ({"moved": 2.0}, "labels of the series changed less than 5 minutes ago"),
        ({"restarting": 2.0}, "replicas that restarted several times in 5 minutes: 2,"),
        ({"young": 2.0}, "known for less than 5 minutes"),
        ({"absent": 2.0}, "2 of 4 replicas report"),
        ({}, "a store did not answer"),
    ],
)
def test_a_load_may_grow_but_not_shrink_while_something_is_missing(
    replicas: Parts, words: str
) -> None:
    subject = reading(replicas={**REPORTING, **replicas})
    warned = replace(subject, warnings=() if replicas else ("a store did not answer",))

    found = judge(warned)

    assert found.quality == "Partial"
    assert words in found.message


@pytest.mark.parametrize(
    ("subject", "quality", "message"),
    [
        (Reading(unavailable="http://p: no answer", time=NOW), "Stale", "http://p: no answer"),
        (Reading(refused="HTTP 401: who are you?", time=NOW), "Refused", "HTTP 401: who are you?"),
    ],
)
def test_without_an_answer_the_last_good_values_are_kept_with_its_words(
    subject: Reading, quality: str, message: str
) -> None:
    found = judge(subject, BEFORE)

    assert (found.quality, found.arrival_rate) == (quality, 120)
    assert found.message.startswith(message)


def test_a_server_before_its_first_request_is_idle() -> None:
    quiet = {**REPORTING, "running": 0.0, "waiting": 0.0, "unused": 0.0}
    subject = Reading({REPLICAS: quiet}, time=NOW)

    found = judge(subject)

    assert (found.quality, found.arrival_rate) == ("Idle", 0)


@pytest.mark.parametrize("load_long", [{}, {"0": 0.0}])
def test_requests_that_no_counter_counts_are_not_taken_as_none(load_long: Parts) -> None:
    subject = reading(load_short={}, load_long=load_long, replicas={**REPORTING, "unused": 4.0})

    found = judge(subject, BEFORE)

    assert found.quality in {"Partial", "Missing"}


def test_samples_that_are_older_than_two_scrapes_are_stale() -> None:
    found = judge(reading(replicas={**REPORTING, "late": NOW - 100}), BEFORE)

    assert found.quality == "Stale"
    assert datetime.fromtimestamp(NOW - 100, UTC).strftime("%H:%M:%SZ") in found.message
    assert found.arrival_rate == 120


@pytest.mark.parametrize(
    ("replicas", "ready_pods", "said"),
    [
        ({"reporting": 1.0}, (5, 5), "1 of 5 ready pods report"),
        ({"reporting": 4.0}, (5, 5), "4 of 5 ready pods report"),
        ({"reporting": 4.0, "pods": 2.0}, (5, 5), "2 of 5 ready pods report"),  # two engines each
        ({"reporting": 2.0, "absent": 1.0}, (5, 5), "2 of 5 ready pods report"),
        ({"reporting": 2.0, "absent": 3.0}, (5, 5), "2 of 5 replicas report; look for up == 0"),
        ({"reporting": 2.0}, (3, 5), "2 of 5"),  # three of five decode
        ({"reporting": 4.0}, (3, 5), "4 of 5"),
        ({"reporting": 5.0}, None, ""),  # nobody counts pods
        ({"reporting": 5.0}, (5, 5), ""),
        ({"reporting": 10.0, "pods": 5.0}, (5, 5), ""),
        ({"reporting": 5.0}, (3, 3), ""),  # two pods end
        ({"reporting": 1.0}, (0, 0), ""),
        *(({"reporting": each}, (3, 5), "") for each in (3.0, 5.0, 6.0)),
    ],
)
def test_a_load_may_only_grow_while_fewer_pods_report_than_are_ready(
    replicas: Parts, ready_pods: tuple[int, int] | None, said: str
) -> None:
    subject = reading(replicas={**REPORTING, **replicas})

    found = judge_reading(subject, VLLM, None, ready_pods=ready_pods)

    assert found.quality == ("Partial" if said else "Fresh")
    assert ("10 targets of 5 pods" in found.message) == (replicas == {"reporting": 10.0, "pods": 5})
    if said and ready_pods == (5, 5):
        assert found.message.startswith(f"the load may grow but not shrink: {said}")
        assert found.replicas is not None
        assert f"{found.replicas.reporting} of {found.replicas.ready}" == said[:6]
    if replicas == {"reporting": 1.0} and said:
        assert "single replicas cannot be seen" in found.message


@pytest.mark.parametrize(
    "name", [n for n, each in read_built_in_sources().items() if each.without_replicas]
)
def test_a_gateway_reports_for_all_pods(name: str) -> None:
    subject = reading(replicas={**REPORTING, "reporting": 1.0})
    source = read_built_in_sources()[name]

    assert judge_reading(subject, source, None, ready_pods=(5, 5)).quality == "Fresh"


def test_replicas_that_stopped_reporting_are_stale_and_keep_the_last_good_values() -> None:
    found = judge(reading(replicas={}, last_seen={"known": 2.0, "newest": NOW - 200}), BEFORE)

    assert found.quality == "Stale"
    assert found.arrival_rate == 120
    assert found.time == BEFORE.time
    assert datetime.fromtimestamp(NOW - 200, UTC).strftime("%H:%M:%SZ") in found.message
    assert "with these labels" in found.message
    assert "the targets of Prometheus and their labels" in found.message


def test_replicas_that_never_reported_are_missing() -> None:
    found = judge_reading(reading(replicas={}), VLLM, None, "no such label")

    assert found.quality == "Missing"
    assert found.arrival_rate is None
    assert found.message == "no such label"


def test_queries_of_the_server_replace_those_of_the_source() -> None:
    found = judge(reading(**{CUSTOM_ANSWERS: {"arrivalRate": 9.0, "itlAverage": 0.5}}))

    assert (found.arrival_rate, found.itl_average) == (540, 500)


def test_a_source_of_own_queries_only_needs_no_replicas() -> None:
    found = judge_reading(Reading({CUSTOM_ANSWERS: {"arrivalRate": 2.0}}, time=NOW), None, None)

    assert found.quality == "Fresh"
    assert found.arrival_rate == 120


def test_missed_targets_are_those_of_the_measured_times() -> None:
    target = Target(model="M", slo_itl=19, slo_ttft=200, slo_ttw=25)

    found = note_missed_targets(judge(reading()), target)

    # Without percentiles of the wait, the 95th counts as -ln 0.05 times the mean: 30 ms.
    assert found.misses_targets == ("slo-itl", "slo-ttw")


@pytest.mark.parametrize(("limit", "missed"), [(400, ()), (300, ("slo-ttft",))])
def test_a_percentile_target_is_compared_with_the_next_lower_percentile(
    limit: float, missed: tuple[str, ...]
) -> None:
    now = Measured(
        time=BEFORE.time + timedelta(seconds=1),
        quality="Fresh",
        ttft=Percentiles(p50=100, p95=350, p99=900),
    )

    found = note_missed_targets(now, Target(model="M", slo_ttft=limit, slo_ttft_percentile=98))

    assert found.misses_targets == missed


@pytest.mark.parametrize(
    ("percentile", "limit", "missed"),
    [
        pytest.param(None, 25, (), id="the mean holds"),
        pytest.param(95, 25, ("slo-itl",), id="95 % of the requests do not"),
        pytest.param(95, 35, (), id="95 % of the requests do"),
        pytest.param(99, 35, ("slo-itl",), id="99 % of them do not"),
        pytest.param(98, 15, ("slo-itl",), id="of means, where no percentiles are known"),
    ],
)
def test_a_percentile_of_inter_token_latencies_is_that_of_means_of_requests(
    percentile: float | None, limit: float, missed: tuple[str, ...]
) -> None:
    now = Measured(
        time=BEFORE.time + timedelta(seconds=1),
        quality="Fresh",
        itl_average=20,
        itl=Percentiles(p50=15, p95=80, p99=90),  # of single intervals: prefills stop some
        itl_of_requests=None if limit == 15 else Percentiles(p50=19, p95=30, p99=40),
    )

    found = note_missed_targets(
        now, Target(model="M", slo_itl=limit, slo_itl_percentile=percentile)
    )

    assert found.misses_targets == missed


def test_old_numbers_miss_no_target_now() -> None:
    late = note_missed_targets(judge(reading()), Target(model="M", slo_itl=1))

    found = judge(Reading(unavailable="no answer", time=NOW), late)

    assert late.misses_targets == ("slo-itl",)
    assert note_missed_targets(found, Target(model="M", slo_itl=1)).misses_targets == ()


@pytest.mark.parametrize(
    ("share", "computed"),
    [
        pytest.param({"cachedShare": 0.6}, 240, id="a part is cached"),
        pytest.param({"cachedShare": 1.2}, 0, id="counters that disagree"),
        pytest.param({}, None, id="a source that does not tell"),
    ],
)
def test_input_tokens_count_as_computed_unless_they_were_cached(
    share: dict[str, float], computed: float | None
) -> None:
    found = judge(reading(means={**KNOWN, **share}))

    assert found.avg_computed_tokens == pytest.approx(computed)


@pytest.mark.parametrize(
    ("share", "per_step"),
    [
        pytest.param({"acceptedShare": 0.6}, 2.5, id="steps make several tokens"),
        pytest.param({"acceptedShare": 0.0}, None, id="no draft is accepted"),
        pytest.param({}, None, id="no speculative decoding"),
    ],
)
def test_the_time_of_a_step_is_shared_by_the_tokens_that_it_makes(
    share: dict[str, float], per_step: float | None
) -> None:
    step = judge(reading(means=KNOWN)).itl_average

    found = judge(reading(means={**KNOWN, **share}))

    assert step is not None
    assert found.tokens_per_step == per_step
    assert found.itl_average == pytest.approx(step / (per_step or 1.0), abs=1e-3)
