"""Files, words of failed connections, and a clock that never goes back."""

import errno
import socket
import ssl
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest

from inferno_operator.runtime.files import append_bytes, read_text, write_bytes
from inferno_operator.runtime.steady_clock import SteadyClock
from inferno_operator.runtime.texts import cause_of
from inferno_optimizer.errors import InputError
from tests.full_disk import room_for
from tests.unit.operator.objects import NOW


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file or directory"),
        (b"first\n\xff", ":2: not UTF-8 text (byte 7)"),
        ("text".encode("utf-16"), "is UTF-16 text: save it as UTF-8"),
    ],
)
def test_a_file_that_is_no_text_is_refused_by_its_name(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "name"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(InputError) as refused:
        read_text(file)
    with pytest.raises(InputError) as named:
        read_text(file, "--option name")

    assert str(refused.value).startswith(str(file))
    assert str(named.value).startswith("--option name")
    assert words in str(refused.value)
    assert words in str(named.value)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("missing/name", "missing/name: No such file or directory"),
        ("/dev/full", r"^/dev/full: No space left on device$"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_by_its_name(
    path: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words):
        write_bytes(tmp_path / path, b"text")


def test_a_full_disk_leaves_the_file_that_was_there_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("the page of yesterday")

    with room_for(100), pytest.raises(InputError) as refused:
        write_bytes(file, b"x" * 101)

    assert str(refused.value) == f"{file}: File too large"
    assert file.read_text() == "the page of yesterday"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_stays_what_it_was_when_it_is_written_anew(tmp_path: Path) -> None:
    """Its permissions are as before, and a link to it goes on to be one."""
    file, link = tmp_path / "private", tmp_path / "link"
    file.write_text("before")
    file.chmod(0o640)
    link.symlink_to(file)

    write_bytes(link, b"after")

    assert (file.read_text(), file.stat().st_mode & 0o777) == ("after", 0o640)
    assert link.is_symlink()


def test_lines_are_added_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    append_bytes(file, b"first\n")

    with room_for(10), pytest.raises(InputError) as refused:
        append_bytes(file, b"second\n")

    assert str(refused.value) == f"{file}: File too large"
    assert file.read_text() == "first\n"
    append_bytes(file, b"second\n")
    assert file.read_text() == "first\nsecond\n"


def test_a_new_file_has_the_permissions_of_others_and_a_mark_of_byte_order_is_no_text(
    tmp_path: Path,
) -> None:
    (tmp_path / "ordinary").write_text("")

    write_bytes(tmp_path / "name", b"\xef\xbb\xbftext")

    assert len({file.stat().st_mode for file in tmp_path.iterdir()}) == 1
    assert read_text(tmp_path / "name") == "text"


# Why a connection failed: in the words of the operating system, wherever in the chain they are


VAGUE = "All connection attempts failed"
"""What anyio, and so httpx, says of each address to which there is no connection."""


def led_to_by(error: Exception, cause: BaseException) -> Exception:
    """An error that another one led to."""
    error.__cause__ = cause
    return error


REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)")
UNREACHABLE = OSError(errno.EHOSTUNREACH, "Connect call failed ('10.0.0.1', 1)")


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (REFUSED, "connection refused"),
        (led_to_by(OSError(VAGUE), REFUSED), "connection refused"),
        (
            led_to_by(OSError(VAGUE), ExceptionGroup("two addresses", [UNREACHABLE, REFUSED])),
            "no route to host",
        ),
        (ConnectionResetError(errno.ECONNRESET, "x"), "connection reset by peer"),
        (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
        (TimeoutError(), "timed out"),
    ],
)
def test_the_cause_is_what_the_operating_system_says(cause: Exception, said: str) -> None:
    assert cause_of(led_to_by(httpx.ConnectError(VAGUE), cause)) == said


def test_of_what_the_system_does_not_know_the_first_words_are_told() -> None:
    refused = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")

    assert cause_of(led_to_by(httpx.ConnectError("no TLS\nthere"), refused)) == "no TLS there"
    assert cause_of(led_to_by(httpx.ReadError(""), ValueError("half of it"))) == "half of it"
    assert cause_of(httpx.ReadError("")) == "the connection was closed"


# What lasts is told by seconds that pass, whatever somebody does with the clock


HOUR_S = 3600.0


class Machine:
    """A machine whose clock can be set."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self.ahead_s = 0.0

    def elapsed(self) -> float:
        return self.elapsed_s

    def wall(self) -> datetime:
        return NOW + timedelta(seconds=self.elapsed_s + self.ahead_s)


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S, 0.5, -0.5, 0.0])
def test_durations_are_right_within_a_tenth_across_a_step_of_the_clock(step_s: float) -> None:
    machine = Machine()
    clock = SteadyClock(machine.wall, machine.elapsed)
    machine.elapsed_s = 100.0
    began = clock()
    machine.ahead_s = step_s
    for _ in range(30):
        machine.elapsed_s += 10.0
        lasted = (clock() - began).total_seconds()

        assert lasted == pytest.approx(machine.elapsed_s - 100.0, rel=0.101)


@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_ten_times_the_step_later_it_is_the_time_of_day_again(step_s: float) -> None:
    machine = Machine()
    clock = SteadyClock(machine.wall, machine.elapsed)
    machine.ahead_s = step_s
    machine.elapsed_s += 10 * HOUR_S

    assert clock() == machine.wall()


def test_it_never_goes_back() -> None:
    machine = Machine()
    clock = SteadyClock(machine.wall, machine.elapsed)
    times = []
    for ahead_s in (0.0, 5.0, -HOUR_S, HOUR_S, 0.0):
        machine.ahead_s = ahead_s
        machine.elapsed_s += 1.0
        times += [clock(), clock()]

    assert times == sorted(times)
