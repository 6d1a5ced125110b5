"""What is said of an object that a namespace does not have; pure."""

from collections.abc import Sequence

from inferno_operator.resources import Resource
from inferno_operator.resources.objects import Key
from inferno_optimizer.errors import InputError
from inferno_optimizer.suggestions import alternatives


def no_such(kind: type[Resource], key: Key, names: Sequence[str]) -> InputError:
    """The error for an object that is not there, with the names of those of its kind that are."""
    if not names:
        return InputError(f"{kind.kind} {key}: namespace {key.namespace!r} has no {kind.kind}")
    return InputError(f"{kind.kind} {key}: there is none{alternatives(key.name, names)}")
