"""What messages suggest in place of an unknown name."""

import time

import pytest

from inferno_optimizer.suggestions import alternatives, nearest


def test_known_names_are_listed_where_none_is_near() -> None:
    assert alternatives("queue", ["SGLang", "vLLM"]) == " (known: SGLang, vLLM)"


COLUMNS = ["SERVER", "CLASS", "MODEL", "CURRENT COST", "DESIRED COST", "ITL MS", "MAX RATE"]
ALLOCATION = ["accelerator", "numReplicas", "maxBatch", "cost", "itlAverage", "ttftAverage", "load"]
LOAD = ["arrivalRate", "avgLength", "avgInTokens", "avgOutTokens", "arrivalCOV", "serviceCOV"]
SERVER = ["class", "model", "keepAccelerator", "minNumReplicas", "maxBatchSize", "currentAlloc"]
PROFILE = ["acc", "accCount", "alpha", "decodeParms", "maxBatchSize", "maxNumSeqs"]
TARGET = ["slo-itl", "slo-ttw", "slo-ttft", "slo-tps", "slo-itl-percentile", "slo-ttft-percentile"]
POLICIES = ["static-peak", "hpa", "keda-slo", "dynamo-sla", "inferno", "inferno-exact"]
CARDS = ["L4", "L40S", "A100", "H100", "H200", "MI250", "MI300X"]
MODELS = ["meta-llama/Llama-3.1-70B", "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-32B", "mistral_7b"]
VARIABLES = ["INFERNO_PROMETHEUS_KEY", "INFERNO_PROMETHEUS_TOKEN_FILE", "INFERNO_SOLVER_TIME_LIMIT"]

TYPOS = [
    (COLUMNS, "costs cost currentcost current_cost", "CURRENT COST"),
    (COLUMNS, "rate maxrate max-rate", "MAX RATE"),
    (COLUMNS, "itl itl_ms", "ITL MS"),
    (COLUMNS, "clas classes", "CLASS"),
    (COLUMNS, "servers sever", "SERVER"),
    (ALLOCATION, "acc acclerator acceleratr", "accelerator"),
    (ALLOCATION, "replicas num_replicas", "numReplicas"),
    (ALLOCATION, "itl itl_average", "itlAverage"),
    (ALLOCATION, "maxBatchSize batch", "maxBatch"),
    (ALLOCATION, "costs cots", "cost"),
    (LOAD, "rate arivalRate arrival_rate", "arrivalRate"),
    (LOAD, "inTokens avgInputTokens", "avgInTokens"),
    (LOAD, "outTokens avgOutputTokens", "avgOutTokens"),
    (LOAD, "length", "avgLength"),
    (SERVER, "replicas minReplicas min_num_replicas", "minNumReplicas"),
    (SERVER, "serviceClass clas", "class"),
    (SERVER, "accelerator", "keepAccelerator"),
    (SERVER, "currentAllocation current", "currentAlloc"),
    (PROFILE, "accelerator", "acc"),
    (PROFILE, "alhpa alfa", "alpha"),
    (PROFILE, "decodeParams decode", "decodeParms"),
    (PROFILE, "maxSeqs", "maxNumSeqs"),
    (TARGET, "itl slo_itl tpot slo-tpot sloItl", "slo-itl"),
    (TARGET, "ttft slo-ttf", "slo-ttft"),
    (TARGET, "itlPercentile itl-percentile", "slo-itl-percentile"),
    (POLICIES, "exact inferno_exact", "inferno-exact"),
    (POLICIES, "static peak static_peak", "static-peak"),
    (CARDS, "H1OO nvidia-h100 H100-SXM NVIDIA-H100-80GB-HBM3", "H100"),
    (CARDS, "MI300 mi300", "MI300X"),
    (CARDS, "L40", "L40S"),
    (MODELS, "Llama-3.1-8B Llama3.1-8B", "meta-llama/Llama-3.1-8B"),
    (MODELS, "qwen3-32b", "Qwen/Qwen3-32B"),
    (MODELS, "mistral-7b mistral7b", "mistral_7b"),
    (VARIABLES, "INFERNO_PROMETHEUS_TOKEN", "INFERNO_PROMETHEUS_TOKEN_FILE"),
    (VARIABLES, "INFERNO_TIME_LIMIT", "INFERNO_SOLVER_TIME_LIMIT"),
    (["INFERNO_NAMESPACE", "INFERNO_NAME"], "INFERNO_NAMESPACES", "INFERNO_NAMESPACE"),
]
"""Known names, what people type in place of one of them, and that one."""


@pytest.mark.parametrize(
    ("known", "typed", "meant"),
    [(known, word, meant) for known, words, meant in TYPOS for word in words.split()],
)
def test_the_name_that_was_meant_comes_first(known: list[str], typed: str, meant: str) -> None:
    assert nearest(typed, known, most=1) == f"; did you mean {meant}?"


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        *((name, ["SGLang", "vLLM"], "vLLM") for name in ("vllm", "VLM", "vlm")),
        ("a1000", ["A100", "a100"], "A100"),  # of names that differ in their case the first
        ("MI30X", ["MI355X", "MI300X"], "MI300X"),
        ("H010", ["A100", "H100"], "H100"),
        ("fleet-9", ["fleet-1"], "fleet-1"),
        ("MI300X", ["MI355X", "H100"], ""),  # another product
        ("B300", ["B200", "MI300X"], ""),
        ("H100", ["A100", "h200"], ""),
        ("GB200", ["B200"], ""),
        ("H20", ["H200"], ""),
        ("MI300A", ["MI300X"], ""),
        ("4xA100", ["2xA100"], ""),
        ("Llama-3.1-8B", ["meta-llama/Llama-3.1-70B"], ""),
        ("qwen3-32b", ["Qwen/Qwen3-8B"], ""),
        *((name, COLUMNS, "") for name in ("gpu", "queue", "x")),
    ],
)
def test_a_misspelling_is_suggested_and_another_product_is_not(
    name: str, known: list[str], meant: str
) -> None:
    assert nearest(name, known) == (f"; did you mean {meant}?" if meant else "")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("x" * 2**20, ["model"]),
        ("model", ["x" * 2**20, "modle"]),
        ("ab" * 50, ["ba" * 49 + chr(97 + n) for n in range(26)]),
        ("é" * 100, ["é" * 99 + chr(97 + n) for n in range(26)] * 7),
    ],
    ids=["long name", "long known", "alike", "all alike"],
)
def test_a_suggestion_takes_little_time_whatever_the_names(name: str, known: list[str]) -> None:
    began = time.process_time()
    text = alternatives(name, known)
    spent = time.process_time() - began

    assert spent < 0.1
    assert len(text) < 3000
