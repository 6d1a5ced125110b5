"""JSON and YAML text -> its documents, each with its origin."""

import json
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import yaml

from inferno_operator.adapters.optimizers.document import build_object
from inferno_operator.runtime.files import decoded
from inferno_optimizer.errors import InputError

DEEPEST = 100  # levels of nesting in YAML; no custom resource has a tenth of it


HEAD = ("apiVersion", "kind")  # keys that an object begins with


# What makes a file no YAML, and what to do about it; the first that is there counts.
LEFT_IN = (
    (
        re.compile(r"\{\{"),
        "it is a template of Helm; render it first: helm template CHART | inferno plan -",
    ),
    (re.compile(r"^(<{7}|={7}|>{7})", re.MULTILINE), "it has the marks of a merge conflict"),
    (re.compile(r"\$\{\w+\}"), "it has variables of a shell; fill them in first: envsubst"),
    (re.compile(r"^ *\t", re.MULTILINE), "a line is indented by a tab, and needs blanks"),
    (
        re.compile(r"\A\s*<(!doctype|html)", re.IGNORECASE),
        "it is a page of HTML, not the file itself",
    ),
)


# On the way to a field: a key, or the place in a list, or a value of the item of a list.
Step = str | int


@dataclass(frozen=True, slots=True)
class Document:
    """A document and its origin: the file and, in YAML, the line on which it begins.

    `text` is the whole YAML file, empty for JSON; `number` says which of its documents this is,
    and `steps` where in it, if it is an item of a list.
    """

    content: object
    origin: str
    text: str = field(default="", repr=False)
    number: int = 0
    steps: tuple[Step, ...] = ()

    def place(self, steps: Sequence[Step]) -> str:
        """Return the file and the line of a field, or of what is above it if it is not there."""
        if not self.text:
            return self.origin
        node = _compose_nodes(self.text)[self.number]
        file, _, _ = self.origin.rpartition(":")
        return f"{file}:{_find_line(node, [*self.steps, *steps])}"


@lru_cache(maxsize=1)
def _compose_nodes(text: str) -> tuple[yaml.Node, ...]:
    """The documents of a file that had no error, with the places of all their parts."""
    return tuple(yaml.compose_all(text, Loader=_Loader))


def _find_line(node: yaml.Node, steps: Sequence[Step]) -> int:
    line = node.start_mark.line
    for step in steps:
        if isinstance(node, yaml.MappingNode):
            nodes = [pair for pair in node.value if pair[0].value == step]
        elif isinstance(node, yaml.SequenceNode):
            nodes = [(n, n) for i, n in enumerate(node.value) if i == step or _has_key(n, step)]
        else:
            nodes = []
        if not nodes:
            break
        key, node = nodes[0]
        line = key.start_mark.line
    return int(line) + 1


def _has_key(node: yaml.Node, value: Step) -> bool:
    return isinstance(node, yaml.MappingNode) and any(v.value == value for _, v in node.value)


# A number of base 60 in YAML 1.1, which PyYAML reads and kubectl does not.
SEXAGESIMAL = re.compile(r"^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$")


class _Loader(yaml.CSafeLoader):
    """YAML loader with the types of kubectl: a date and 19:00 are text, and 1e3 is a number."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own way to be configured
        first: [
            ("tag:yaml.org,2002:str", SEXAGESIMAL),
            *((tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")),
        ]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Construct an object; YAML allows no key twice, and PyYAML takes the last one."""
        _refuse_repeated_keys(node)
        return super().construct_mapping(node, deep)


def _refuse_repeated_keys(node: yaml.MappingNode) -> None:
    keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
    if len({key.value for key in keys}) == len(keys):
        return
    seen: set[str] = set()
    for key in keys:
        if key.value in seen:
            advice = "; write --- between two objects" if key.value in HEAD else ""
            problem = f"key {key.value!r} occurs twice in an object{advice}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
        seen.add(key.value)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def parse_documents(data: bytes, origin: str) -> tuple[Document, ...]:
    """Read every document of a file.

    `data`: JSON or YAML in UTF-8; `origin`: name of the file in messages. A file whose name
    ends in `.json` is JSON, in `.yaml` or `.yml` YAML; any other file is JSON if it begins with
    a brace or bracket. Raises InputError if the file is empty, malformed or not UTF-8; the text
    names the line if it is known.
    """
    text = decoded(data, origin)
    read = _read_json if _is_json(text, origin) else _read_yaml
    documents = tuple(document for document in read(text, origin) if document.content is not None)
    if not documents:
        raise InputError(f"{origin}: is empty")
    return documents


def _is_json(text: str, origin: str) -> bool:
    if origin.endswith((".json", ".yaml", ".yml")):
        return origin.endswith(".json")
    return text.lstrip().startswith(("{", "["))


def _read_json(text: str, origin: str) -> Iterator[Document]:
    if not text.strip():
        return
    try:
        yield Document(json.loads(text, object_pairs_hook=build_object), origin)
    except json.JSONDecodeError as error:
        place = f"{origin}:{error.lineno}:{error.colno}"
        problem = _find_yaml_in_json(text[: error.pos], text[error.pos :]) or error.msg
        raise InputError(f"{place}: not valid JSON: {problem}") from error
    except (InputError, ValueError, RecursionError) as error:  # such as a nesting that is too deep
        raise InputError(f"{origin}: not valid JSON: {_take_first_line(error)}") from error


def _find_yaml_in_json(before: str, after: str) -> str:
    """What JSON does not have, and YAML has, at the place of an error; "" if it is another."""
    if after.startswith(("#", "/")):
        return "JSON has no comments: remove it"
    if before.rstrip().endswith(",") and (bracket := after.lstrip()[:1]) in ("]", "}"):
        return f"remove the comma before {bracket}"
    return ""


def _read_yaml(text: str, origin: str) -> Iterator[Document]:
    loader = _Loader(text)
    try:
        _refuse_deep_nesting(text, origin)
        number = 0
        while loader.check_node() and (node := loader.get_node()):
            place = f"{origin}:{node.start_mark.line + 1}"
            yield Document(loader.construct_document(node), place, text, number)
            number += 1
    except yaml.MarkedYAMLError as error:
        place, problem = _find_template(text) or (_build_marked_error(error), error.problem)
        raise InputError(f"{origin}{place}: not valid YAML: {problem}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{origin}: not valid YAML: {_take_first_line(error)}") from error
    finally:
        loader.dispose()


def _find_template(text: str) -> tuple[str, str] | None:
    """What was left in a text that is no YAML, after its place; None if nothing of the kind was."""
    for pattern, advice in LEFT_IN:
        if match := pattern.search(text):
            before = text[: match.start()]
            column = match.start() - (before.rfind("\n") + 1)
            return _format_position(before.count("\n"), column), advice
    return None


def _refuse_deep_nesting(text: str, origin: str) -> None:
    """Refuse deep nesting, which would crash the process: libyaml recurses without a limit."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            raise InputError(f"{origin}: nested more than {DEEPEST} deep")


def _build_marked_error(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return _format_position(mark.line, mark.column) if mark else ""


def _format_position(line: int, column: int) -> str:
    """A place after the name of a file; both are counted from 0."""
    return f":{line + 1}:{column + 1}"


def _take_first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition("; use sys.")[0]  # Python's advice on digits


def refuse_separators(header: Sequence[str], origin: str) -> None:
    """Refuse the table of a spreadsheet that separates columns by semicolons or tabs.

    Raises InputError if the header is one cell that has some, and is no comment.
    """
    if len(header) == 1 and not header[0].startswith("#"):
        for separator, name in ((";", "';'"), ("\t", "tabs")):
            if separator in header[0]:
                where = f"{origin}:1: the columns are separated by {name}"
                raise InputError(f"{where}: save them with ','")
