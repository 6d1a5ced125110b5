"""A server that keeps a system, which clients change bit by bit."""

import json
from collections.abc import Callable
from http import HTTPStatus

from inferno_optimizer.api.documents import Document
from inferno_optimizer.api.solving import Answer, Solver
from inferno_optimizer.api.store import Change, Contents, body_of, with_answer
from inferno_optimizer.api.text import write_json


class Stateful:
    """Keeps a system and optimizes it.

    Nothing is awaited between reading `contents` and replacing it, and there is one thread:
    so there is one writer at a time, without a lock.
    """

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self.contents = Contents()

    async def optimize_one(self, body: bytes) -> Answer:
        """Answer optimizeOne; what is kept has no part in it."""
        return await self._solver.solve(body)

    async def optimize(self, options: Document) -> Answer:
        """Optimize what is kept now, and put down what is decided."""
        asked = self.contents
        status, text = await self._solver.solve(write_json(body_of(asked, options)))
        if status == HTTPStatus.OK:
            self.contents = with_answer(self.contents, asked, json.loads(text))
        return status, text

    def apply(self, change: Callable[[Contents], Change]) -> object:
        """Change what is kept, and answer."""
        self.contents, answer = change(self.contents)
        return answer
