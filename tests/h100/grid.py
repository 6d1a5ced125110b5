"""Steps of a designed grid: `python -m tests.h100.grid URL FOLDER --seed 1`.

In each cell a number of requests of one length decode together; meanwhile prompts of several
lengths come one by one. So the engine makes steps with and without a prompt for each number of
requests and of tokens in the cache, which under random arrivals go together. In some cells all
prompts begin with the same words, which the engine computes once. Writes when each cell began and
ended, on the clock that the engine notes its steps with.
"""

import argparse
import asyncio
import csv
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from inferno_operator.adapters.completions.client import EngineClient, EngineEndpoint, connect
from inferno_operator.adapters.completions.load import WORDS

REQUESTS = (1, 4, 8, 16, 32, 47)
LENGTHS = ((256, 0), (1280, 0), (2560, 0), (1280, 768), (2560, 2048))
"""Words of the prompts of a cell, and those with which all begin."""

PROMPTS = (100, 400, 800, 1600)
"""Own words of the prompts that come meanwhile."""

BUDGET, STEP_S = 2048, 0.012
"""Most tokens of a step, and its time without a prompt, about [s]."""

DECODES, APART_S = 60, 0.05
"""Steps without a prompt of a cell, at least; time between prompts that come meanwhile [s]."""


@dataclass(frozen=True)
class Cell:
    """A cell, and when it began and ended [s]."""

    requests: int
    words: int
    same: int
    began: float = 0.0
    ended: float = 0.0


@dataclass
class Grid:
    """Makes cells."""

    client: EngineClient
    model: str
    chance: random.Random

    async def _ask(self, own: int, same: int, tokens: int) -> None:
        words = [WORDS[0]] * same + self.chance.choices(WORDS, k=own)
        await self.client.complete(self.model, words, tokens)

    async def make(self, cell: Cell) -> Cell:
        """Make a cell."""
        own, same = cell.words - cell.same, cell.same
        if same:
            await self._ask(1, same, 2)
        prefills = cell.requests * own // BUDGET + 1
        meanwhile = int(len(PROMPTS) * APART_S / STEP_S)
        began = time.perf_counter()
        tokens = prefills + meanwhile + DECODES
        running = [asyncio.create_task(self._ask(own, same, tokens)) for _ in range(cell.requests)]
        await asyncio.sleep((prefills + DECODES) * STEP_S)
        for prompt in PROMPTS:
            running.append(asyncio.create_task(self._ask(prompt, same, 2)))
            await asyncio.sleep(APART_S)
        await asyncio.gather(*running)
        return Cell(cell.requests, cell.words, same, began, time.perf_counter())


def cells(numbers: Sequence[int]) -> Iterator[Cell]:
    """All cells with these numbers of requests."""
    for requests in numbers:
        for words, same in LENGTHS:
            yield Cell(requests, words, same)


async def measure(options: argparse.Namespace) -> None:
    """Make all cells in a random order; each is written when it is over."""
    chance, ends = random.Random(options.seed), time.monotonic() + options.seconds  # noqa: S311
    order = list(cells(options.requests))
    chance.shuffle(order)
    path = Path(options.folder) / f"grid-{options.seed}.csv"
    async with connect(EngineEndpoint(options.url)) as client:
        grid = Grid(client, await client.model(), chance)
        with path.open("w", encoding="utf-8", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow([field.name for field in fields(Cell)])
            for cell in order:
                if time.monotonic() > ends:
                    return
                lines.writerow(astuple(await grid.make(cell)))
                file.flush()


def main() -> None:
    """Measure."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("url")
    options.add_argument("folder")
    options.add_argument("--requests", type=int, nargs="+", default=REQUESTS, help="of the cells")
    options.add_argument("--seed", type=int, default=1, help="of the order and the words")
    options.add_argument("--seconds", type=float, default=60.0, help="at most, about")
    asyncio.run(measure(options.parse_args()))


if __name__ == "__main__":
    main()
