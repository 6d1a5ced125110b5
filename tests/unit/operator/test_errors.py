"""The tree of errors: drawn as it is, and each reason means one error."""

import importlib
import pkgutil
import re
from collections.abc import Iterator

import inferno_operator
import inferno_optimizer
from inferno_optimizer import errors
from inferno_optimizer.errors import InfernoError

INDENT = 4


def import_everything() -> None:
    for package in (inferno_optimizer, inferno_operator):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def tree(error: type[InfernoError], level: int = 0) -> Iterator[tuple[str, int]]:
    """An error and all below it, each with its level."""
    yield error.__name__, level
    for child in error.__subclasses__():
        if child.__module__.startswith("inferno_"):
            yield from tree(child, level + 1)


def drawn() -> Iterator[tuple[str, int]]:
    """The errors of the picture, each with its level."""
    picture = (errors.__doc__ or "").split("```")[1]
    for line in picture.strip().splitlines():
        found = re.search(r"\w+Error\b", line)
        assert found is not None, line
        yield found[0], found.start() // INDENT


def test_the_picture_shows_all_errors() -> None:
    import_everything()

    assert sorted(drawn()) == sorted(tree(InfernoError))


def test_no_two_errors_define_the_same_reason() -> None:
    import_everything()

    def with_reason(error: type[InfernoError]) -> Iterator[str]:
        if "reason" in vars(error):
            yield error.reason
        for child in error.__subclasses__():
            yield from with_reason(child)

    reasons = list(with_reason(InfernoError))
    assert len(reasons) == len(set(reasons))
