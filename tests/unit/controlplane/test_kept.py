"""Processes that end with their owner, and those that are left running on purpose."""

from pathlib import Path

from tests.controlplane import kept
from tests.controlplane.processes import Processes


def test_processes_and_folder_end_with_their_owner() -> None:
    with Processes() as processes:
        processes.start("sleeper", ["sleep", "600"])
        running = processes.exit_code("sleeper")
        folder = processes.folder

    assert running is None
    assert not folder.exists()


def test_what_was_detached_stays_until_it_is_stopped(tmp_path: Path) -> None:
    record = tmp_path / "new" / "record.json"
    with Processes() as processes:
        processes.start("sleeper", ["sleep", "600"])
        processes.detach(record, {"kubeconfig": "some/path"})

    found = kept.running(record)
    stayed = processes.folder.exists()

    assert kept.stop(record)
    assert found is not None
    assert (found["folder"], found["kubeconfig"]) == (str(processes.folder), "some/path")
    assert (stayed, processes.folder.exists(), record.exists()) == (True, False, False)


def test_a_record_that_a_crash_left_behind_is_not_believed(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_text('{"pid": 1}')

    assert kept.running(record) is None
    assert not kept.stop(record)
