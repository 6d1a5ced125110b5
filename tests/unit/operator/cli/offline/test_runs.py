"""Benchmark runs are read under their usual names, and mistakes are named."""

import json
from pathlib import Path

import pytest

from inferno_operator.cli.offline.runs import Run, read_runs
from inferno_optimizer.errors import InputError

VLLM = {
    "request_rate": "inf",
    "max_concurrency": 16,
    "completed": 100,
    "total_input_tokens": 51200,
    "total_output_tokens": 12800,
    "request_throughput": 12.5,
    "mean_tpot_ms": 9.5,
    "mean_ttft_ms": 14.0,
}


def read(folder: Path, text: str, name: str = "runs.csv") -> list[Run]:
    file = folder / name
    file.write_text(text)
    return read_runs([str(file)])[0]


@pytest.mark.parametrize(
    "header",
    [
        "concurrency,input_tokens,output_tokens,itl_ms,ttft_ms",
        "max_concurrency,input_len,output_len,mean_tpot_ms,mean_ttft_ms",
        "Concurrency,ISL,OSL,TPOT (ms),TTFT (ms)",
        "users,prompt_tokens,completion_tokens,ITL,TTFT",
    ],
)
def test_columns_have_their_usual_names(tmp_path: Path, header: str) -> None:
    (run,) = read(tmp_path, f"{header}\n16,512,128,9.5,14\n")

    assert (run.concurrency, run.input_tokens, run.output_tokens) == (16, 512, 128)
    assert (run.itl_ms, run.ttft_ms) == (9.5, 14)
    assert run.window.batch == 16


def test_times_in_seconds_become_milliseconds(tmp_path: Path) -> None:
    (run,) = read(tmp_path, "rate,isl,osl,tpot_s,ttft (s)\n2,512,101,0.01,0.02\n")

    assert (run.itl_ms, run.ttft_ms) == (10, 20)
    assert run.window.batch == pytest.approx(1 + 2 * 100 * 0.01)  # Little's law, and itself


@pytest.mark.parametrize("text", [json.dumps(VLLM), json.dumps([VLLM]), f"{json.dumps(VLLM)}\n\n"])
def test_a_result_of_vllm_bench_is_read(tmp_path: Path, text: str) -> None:
    (run,) = read(tmp_path, text, "vllm.json")

    assert (run.concurrency, run.input_tokens, run.output_tokens) == (16, 512, 128)
    assert (run.itl_ms, run.ttft_ms) == (9.5, 14)


def test_results_appended_to_one_file_are_all_read(tmp_path: Path) -> None:
    runs = read(tmp_path, "\n".join(json.dumps(VLLM | {"max_concurrency": n}) for n in (1, 8)))

    assert [run.concurrency for run in runs] == [1, 8]


def test_at_a_rate_the_batch_comes_from_the_rate_that_was_achieved(tmp_path: Path) -> None:
    (run,) = read(tmp_path, json.dumps(VLLM | {"request_rate": 20.0, "max_concurrency": None}))

    assert run.window.batch == pytest.approx(1 + 12.5 * 127 * 0.0095)


def summary(mean: float) -> dict[str, object]:
    return {"successful": {"mean": mean, "median": 0.9 * mean}, "errored": {"mean": 0.0}}


def of_guidellm(strategy: object, place: str = "config") -> dict[str, object]:
    """A benchmark as guidellm reports it; "args" had the strategy in earlier versions."""
    metrics = {
        "requests_per_second": summary(12.5),
        "request_concurrency": summary(15.6),
        "prompt_token_count": summary(512),
        "output_token_count": summary(128),
        "inter_token_latency_ms": summary(9.5),
        "time_to_first_token_ms": summary(14),
    }
    return {"type_": "generative_benchmark", place: {"strategy": strategy}, "metrics": metrics}


@pytest.mark.parametrize("place", ["config", "args"])
def test_a_report_of_guidellm_is_read(tmp_path: Path, place: str) -> None:
    strategies = [
        {"type_": "synchronous"},
        {"type_": "concurrent", "streams": 16},
        {"type_": "poisson", "rate": 13.0},
    ]
    report = {"metadata": {}, "benchmarks": [of_guidellm(s, place) for s in strategies]}

    lone, clients, arrivals = read(tmp_path, json.dumps(report), "benchmarks.json")

    for run in (lone, clients, arrivals):
        assert (run.input_tokens, run.output_tokens) == (512, 128)
        assert (run.itl_ms, run.ttft_ms) == (9.5, 14)
    assert (lone.window.batch, clients.window.batch) == (1, 16)
    assert arrivals.window.batch == pytest.approx(1 + 12.5 * 127 * 0.0095)


def of_genai_perf(**stimulus: float) -> dict[str, object]:
    """What genai-perf exports."""
    return {
        "request_throughput": {"unit": "requests/sec", "avg": 12.5},
        "time_to_first_token": {"unit": "ms", "avg": 14.0, "p99": 20.0},
        "inter_token_latency": {"unit": "ms", "avg": 9.5, "p99": 11.0},
        "output_sequence_length": {"unit": "tokens", "avg": 128.0},
        "input_sequence_length": {"unit": "tokens", "avg": 512.0},
        "input_config": {"perf_analyzer": {"stimulus": stimulus}},
    }


def test_an_export_of_genai_perf_is_read(tmp_path: Path) -> None:
    documents = [of_genai_perf(concurrency=16), of_genai_perf(request_rate=13.0)]

    clients, arrivals = read(tmp_path, "\n".join(map(json.dumps, documents)), "profile.json")

    for run in (clients, arrivals):
        assert (run.input_tokens, run.output_tokens) == (512, 128)
        assert (run.itl_ms, run.ttft_ms) == (9.5, 14)
    assert clients.window.batch == 16
    assert arrivals.window.batch == pytest.approx(1 + 12.5 * 127 * 0.0095)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            json.dumps({"benchmarks": [{"metrics": {}, "config": {}}]}),
            "result 1: metrics.requests_per_second.successful.mean: must be a number above 0",
        ),
        (
            json.dumps(of_genai_perf(concurrency=4) | {"time_to_first_token": None}),
            "result 1: time_to_first_token.avg: must be a number above 0, not ''",
        ),
        ("", "runs.csv: is empty"),
        ("rate;isl;osl\n1;2;3\n", "runs.csv:1: the columns are separated by ';'"),
        (
            "concurency,isl,osl,itl,ttft\n1,2,3,4,5\n",
            "no column for concurrency or rate; column 'concurency' is unknown; did you mean",
        ),
        ("concurrency,isl,osl,itl\n1,2,3,4\n", "no column for ttft (known: concurrency, rate"),
        ("rate,isl,osl,itl,ttft\n1,2,x,4,5\n", "runs.csv:2: osl: must be a number above 0"),
        ("rate,isl,osl,itl,ttft\n1,2,3,-4,5\n", "runs.csv:2: itl: must be a number above 0"),
        ("rate,isl,osl,itl,ttft\n,2,3,4,5\n", "runs.csv:2: give a concurrency or a rate"),
        ("rate,isl,osl,itl,ttft\n1,2\n", "runs.csv:2: osl: must be a number above 0, not ''"),
        ("{", "not valid JSON"),
        ("[1]", "result 1: expected an object"),
        ('{"completed": 1}', "request_throughput: must be a number above 0"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, text)

    assert message in str(error.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"missing\.csv: No such file"):
        read_runs(["missing.csv"])


def test_columns_that_are_not_used_are_told(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    file.write_text("rate,isl,osl,itl,ttft,p99_ttft\n1,2,3,4,5,6\n")

    _, warnings = read_runs([str(file)])

    assert warnings == [f"{file}: column 'p99_ttft' is not used"]
