"""JSON and YAML text -> its documents, each with its origin."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from inferno_operator.cli.offline.files import decoded
from inferno_optimizer.errors import InputError

DEEPEST = 100
"""Levels of nesting in YAML; no custom resource has a tenth of it."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document and its origin: the file and, in YAML, the line on which it begins."""

    content: object
    origin: str


class _Loader(yaml.CSafeLoader):
    """YAML loader with the types of kubectl: a date is text, and 1e3 is a number."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own way to be configured
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def parse_documents(data: bytes, origin: str) -> tuple[Document, ...]:
    """Read every document of a file.

    Parameters
    ----------
    data
        JSON or YAML in UTF-8.
    origin
        Name of the file in messages. A file whose name ends in `.json` is JSON, in `.yaml` or
        `.yml` YAML; any other file is JSON if it begins with a brace or bracket.

    Raises
    ------
    InputError
        The file is empty, malformed or not UTF-8; the text names the line if it is known.
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
        yield Document(json.loads(text), origin)
    except json.JSONDecodeError as error:
        place = f"{origin}:{error.lineno}:{error.colno}"
        raise InputError(f"{place}: not valid JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # a number or a nesting that is too long
        raise InputError(f"{origin}: not valid JSON: {error}") from error


def _read_yaml(text: str, origin: str) -> Iterator[Document]:
    loader = _Loader(text)
    try:
        _refuse_deep_nesting(text, origin)
        while loader.check_node() and (node := loader.get_node()):
            line = node.start_mark.line + 1
            yield Document(loader.construct_document(node), f"{origin}:{line}")
    except yaml.MarkedYAMLError as error:
        raise InputError(f"{_marked(error, origin)}: not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{origin}: not valid YAML: {_first_line(error)}") from error
    finally:
        loader.dispose()


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


def _marked(error: yaml.MarkedYAMLError, origin: str) -> str:
    mark = error.problem_mark or error.context_mark
    return f"{origin}:{mark.line + 1}:{mark.column + 1}" if mark else origin


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
