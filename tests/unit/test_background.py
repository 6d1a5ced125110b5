"""What runs beside tests of a cluster ends with its test, and fails no other one."""

import pytest

from tests.cluster.background import Background


class Waiting(Background):
    """Waits to be stopped."""

    def work(self) -> None:
        """Wait."""
        self._stopped.wait()


class Failing(Background):
    """Ends at once."""

    def work(self) -> None:
        """Fail as a client does whose connection is refused."""
        raise OSError("refused")


def test_what_ends_a_thread_is_raised_where_it_is_stopped() -> None:
    thread = Failing()
    thread.start()
    thread.join()

    with pytest.raises(OSError, match="refused"):
        thread.stop()


@pytest.mark.parametrize("first", [False, True])
def test_a_thread_that_failed_leaves_no_other_one_running(first: bool) -> None:
    waiting, failing = Waiting(), Failing()
    one, other = (failing, waiting) if first else (waiting, failing)

    with pytest.raises(OSError, match="refused"), one, other:
        pass

    assert not waiting.is_alive()


def test_a_thread_that_never_began_ends() -> None:
    Waiting().stop()
