"""What the command line of an engine in a pod says: the name it serves, its batch, its cards."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

NAMES = ("served-model-name", "model", "model-path")
"""Options that say under which name a model is served, the first of them that is given."""

BATCHES = ("max-num-seqs", "max-running-requests", "max-batch-size")
CARDS = ("tensor-parallel-size", "tp-size", "tp", "pipeline-parallel-size", "pp-size", "pp")
COPIES = ("data-parallel-size", "dp-size", "dp")
"""Options of vLLM, SGLang and TensorRT-LLM; the numbers of cards and copies are multiplied."""

SERVERS = ("serve", "trtllm-serve")
"""Words after which the model is named without an option."""

VARIABLE = re.compile(r"\$\((\w+)\)|\$\{(\w+)\}|\$(\w+)")


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """What an engine was started with; None is not told.

    Attributes
    ----------
    model
        The name by which users request the model, as metrics have it.
    batch, batch_option
        Most requests that it serves together, and the option that says so.
    cards, cards_options
        Cards of a replica, and the options that say so.
    """

    model: str | None = None
    batch: int | None = None
    batch_option: str = ""
    cards: int | None = None
    cards_options: str = ""


def read_command(container: Mapping[str, Any]) -> EngineCommand | None:
    """Return what the command of a container says; None if it names no model."""
    words = list(_words(container))
    options = dict(_options(words))
    model = next((options[name] for name in NAMES if name in options), None)
    if model is None:
        named = (word for server, word in pairwise(words) if server.rpartition("/")[2] in SERVERS)
        model = next((word for word in named if not word.startswith("-")), None)
    if model is None or "$" in model:
        return None
    batch = next((name for name in BATCHES if options.get(name, "").isdecimal()), "")
    sizes = [name for name in (*CARDS, *COPIES) if options.get(name, "").isdecimal()]
    cards = 1
    for name in sizes:
        cards *= int(options[name])
    return EngineCommand(
        model,
        int(options[batch]) if batch else None,
        f"--{batch}" if batch else "",
        cards if sizes else None,
        " ".join(f"--{name} {options[name]}" for name in sizes),
    )


def _words(container: Mapping[str, Any]) -> Iterator[str]:
    """The words of a command, those of a script for a shell too, with its variables filled in."""
    variables = {
        str(each.get("name")): str(each["value"])
        for each in container.get("env") or ()
        if isinstance(each, Mapping) and "value" in each
    }

    def value_of(match: re.Match[str]) -> str:
        return variables.get(next(filter(None, match.groups())), match[0])

    for word in (*(container.get("command") or ()), *(container.get("args") or ())):
        text = VARIABLE.sub(value_of, str(word))
        try:
            yield from shlex.split(text) if re.search(r"\s", text) else [text]
        except ValueError:  # a quotation mark that is not closed
            yield text


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options with their values; of an option with several values, the first one."""
    for word, following in pairwise([*words, "-"]):
        if word.startswith("-"):
            name, has_value, value = word.lstrip("-").partition("=")
            if has_value or not following.startswith("-"):
                yield name.replace("_", "-"), value if has_value else following
