"""A server that keeps no state: every optimizeOne is a system of its own."""

import json
from functools import cached_property
from http import HTTPStatus

from inferno_optimizer.api.solving import Answer, Solver
from inferno_optimizer.api.store import Contents, contents_of, with_answer
from inferno_optimizer.api.text import parse_json


class _Seen:
    """A system and what was decided on it; taken apart only when somebody looks."""

    def __init__(self, body: bytes = b"null", answer: bytes | None = None) -> None:
        self._body = body
        self._answer = answer

    @cached_property
    def contents(self) -> Contents:
        contents = contents_of(parse_json(self._body))
        if self._answer is None:
            return contents
        return with_answer(contents, contents, json.loads(self._answer))


class Stateless:
    """Optimizes whole systems; as in the original, the last one can be looked at."""

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self._seen = _Seen()

    @property
    def contents(self) -> Contents:
        """The system of the last optimizeOne that could be read."""
        return self._seen.contents

    async def optimize_one(self, body: bytes) -> Answer:
        """Answer optimizeOne."""
        status, text = await self._solver.solve(body)
        if status != HTTPStatus.BAD_REQUEST:
            self._seen = _Seen(body, text if status == HTTPStatus.OK else None)
        return status, text
