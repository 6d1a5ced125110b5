"""Every reason that a condition, an event or a log can give, found in the source."""

import ast
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import get_args

from inferno_operator.resources import Quality
from inferno_optimizer.calibration.verdict import CalibrationReason
from inferno_optimizer.solution import Reason

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "operator" / "inferno_operator", ROOT / "optimizer" / "inferno_optimizer")

PARAMETER = "reason"
UNSAID = {"", "Error"}
"""No reason, and that of the errors' base class, which nobody raises."""


def reasons() -> set[str]:
    """Words of the enumerations, of errors, and of what is given for a parameter `reason`."""
    trees = [ast.parse(path.read_text()) for p in PACKAGES for path in sorted(p.rglob("*.py"))]
    nodes = list(chain.from_iterable(map(ast.walk, trees)))
    places, constants = dict(_places(nodes)), dict(_constants(nodes))
    given = (word for node in nodes for word in _given(node, places, constants) if " " not in word)
    return {*map(str, (*Reason, *CalibrationReason)), *get_args(Quality), *given} - UNSAID


def _places(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    """Functions and dataclasses with the parameter, and which of theirs it is."""
    for node in nodes:
        names: list[str] = []
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in node.args.args if argument.arg != "self"]
        elif isinstance(node, ast.ClassDef):
            fields = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
            names = [field.id for field in fields if isinstance(field, ast.Name)]
        if PARAMETER in names and isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, names.index(PARAMETER)


def _constants(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Names of texts."""
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name) and isinstance(node.value.value, str):
                    yield target.id, node.value.value


def _given(node: ast.AST, places: dict[str, int], constants: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Assign) and _is_reason(node.targets[0]):
        yield from _words(node.value, constants)
    if isinstance(node, ast.Call):
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        place = places.get(name)
        if place is not None:
            for argument in _arguments(node.args, place):
                yield from _words(argument, constants)
        for keyword in node.keywords:
            if keyword.arg == PARAMETER:
                yield from _words(keyword.value, constants)


def _arguments(arguments: list[ast.expr], place: int) -> list[ast.expr]:
    """The argument at a place; the last one where some come from a tuple."""
    starred = any(isinstance(argument, ast.Starred) for argument in arguments)
    return arguments[-1:] if starred else arguments[place : place + 1]


def _is_reason(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id == PARAMETER


def _words(value: ast.expr, constants: dict[str, str]) -> Iterator[str]:
    """Texts that an expression may be; none where it hands on what came from elsewhere."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.Name) and value.id in constants:
        yield constants[value.id]
    elif isinstance(value, ast.IfExp):
        yield from _words(value.body, constants)
        yield from _words(value.orelse, constants)
