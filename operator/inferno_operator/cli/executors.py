"""Where long computations run: in processes of this machine, or on a Dask cluster."""

import signal
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import TypeVar

from inferno_optimizer.errors import InputError, UnavailableError

Name = TypeVar("Name", bound=Hashable)
Result = TypeVar("Result")

CONNECT_S = "10s"
"""Time in which a scheduler has to answer."""


def yield_completed(
    executor: Executor, call: Callable[..., Result], calls: Mapping[Name, tuple[object, ...]]
) -> Iterator[tuple[Name, Result]]:
    """Yield the result of each call with its name, as soon as there is one."""
    with _ignore_interrupts():  # by the processes that start here, too
        waiting = {executor.submit(call, *given): name for name, given in calls.items()}
    for future in as_completed(waiting):
        yield waiting[future], future.result()


@contextmanager
def processes(count: int) -> Iterator[Executor]:
    """Processes of this machine; where one of them, or this one, fails, all end at once."""
    others = set(active_children())
    with ProcessPoolExecutor(count, get_context("spawn")) as executor:
        try:
            yield executor
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            for process in set(active_children()) - others:
                process.terminate()
            raise


@contextmanager
def dask_cluster(address: str) -> Iterator[Executor]:
    """The workers of a Dask cluster, by the address of its scheduler.

    Raises
    ------
    InputError
        Dask is not installed, or the address is none.
    UnavailableError
        The scheduler does not answer.
    """
    try:
        from distributed import Client  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise InputError("--scheduler needs Dask: pip install 'inferno-operator[study]'") from error
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except ValueError as error:
        raise InputError(f"--scheduler {address}: {error}") from error
    except OSError as error:
        raise UnavailableError(f"--scheduler {address}: {error}") from error
    with client, client.get_executor() as executor:
        yield executor


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C, as processes do for ever that are started meanwhile."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
