"""Serve a model of random weights: `python -m tests.h100.engine --shape llama3-3b --port 8000`.

Needs a CUDA GPU, PyTorch, transformers 5.17 and aiohttp; with `--shape tiny` any machine does. The
tokens of a prompt are its words, answers have exactly the tokens that are asked for.
"""

import argparse
import asyncio
import faulthandler
import json
import multiprocessing
import signal
import zlib
from itertools import count
from multiprocessing.connection import Connection

from aiohttp import web

from tests.h100.engine.engine import SHAPES, EngineSettings, run

TOKEN = b'data: {"choices": [{"index": 0, "text": " a"}]}\n\n'
DONE = b"data: [DONE]\n\n"


class Frontend:
    """Answers requests of HTTP with what the engine sends.

    Parameters
    ----------
    link
        The pipe to the engine.
    settings
        What it serves.
    """

    def __init__(self, link: Connection, settings: EngineSettings) -> None:
        self._link = link
        self._settings = settings
        self._numbers = count()
        self._waiting: dict[int, asyncio.Queue[bool | str]] = {}

    def receive(self) -> None:
        """Hand out what the engine has sent."""
        while self._link.poll():
            for number, news in self._link.recv():
                if number in self._waiting:
                    self._waiting[number].put_nowait(news)

    async def models(self, _: web.Request) -> web.Response:
        """The only model."""
        return web.json_response({"object": "list", "data": [{"id": self._settings.shape}]})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Stream an answer."""
        body = await request.json()
        words, tokens = str(body["prompt"]).split(), int(body["max_tokens"])
        prompt = [zlib.crc32(word.encode()) % self._settings.vocabulary for word in words]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        number, news = next(self._numbers), asyncio.Queue[bool | str]()
        self._waiting[number] = news
        self._link.send((number, prompt, tokens))
        last: bool | str = False
        try:
            while not last:
                last = await news.get()
                await response.write(TOKEN if isinstance(last, bool) else _event({"error": last}))
            usage = {"prompt_tokens": len(words), "completion_tokens": tokens}
            await response.write(_event({"choices": [], "usage": usage}) + DONE)
        except ConnectionResetError:
            pass  # the client has gone
        finally:
            del self._waiting[number]
            if not last:
                self._link.send((number,))
        return response


def _event(document: object) -> bytes:
    return f"data: {json.dumps(document)}\n\n".encode()


async def serve(link: Connection, settings: EngineSettings, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    frontend, loop, ended = Frontend(link, settings), asyncio.get_running_loop(), asyncio.Event()
    app = web.Application(client_max_size=2**24)
    app.add_routes(
        [
            web.get("/v1/models", frontend.models),
            web.post("/v1/completions", frontend.completions),
        ]
    )
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    loop.add_reader(link.fileno(), frontend.receive)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    print(f"serves at http://127.0.0.1:{port}", flush=True)
    await ended.wait()
    await runner.cleanup()


def main() -> None:
    """Start the engine in a process, and serve."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--shape", choices=SHAPES, default="llama3-3b")
    options.add_argument("--port", type=int, default=8000)
    options.add_argument("--requests", type=int, default=48, help="largest batch")
    options.add_argument("--blocks", type=int, default=640, help="of 256 tokens, in the cache")
    options.add_argument("--steps", default="", help="file for the times of steps (.npz)")
    given = options.parse_args()
    faulthandler.register(signal.SIGUSR1)
    settings = EngineSettings(given.shape, given.requests, blocks=given.blocks, steps=given.steps)
    own, theirs = multiprocessing.Pipe()
    engine = multiprocessing.get_context("spawn").Process(target=run, args=(theirs, settings))
    engine.start()
    theirs.close()
    own.recv()
    asyncio.run(serve(own, settings, given.port))
    own.send(None)
    engine.join()


if __name__ == "__main__":
    main()
