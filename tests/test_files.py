"""Atomic writes: whole or as it was before, and nothing left beside it."""

import errno
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bertlab import files
from bertlab.errors import OutOfMemoryError, OutputError, mistake_in, printable
from bertlab.files import (
    WholeFile,
    create_json,
    new_folder,
    replacing,
    write_json,
    write_text,
)
from tests.test_house import ROOT

FULL = OSError(errno.ENOSPC, "No space left on device")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()])
def test_a_failed_write_leaves_what_stood_there(
    tmp_path: Path, durable: bool, error: BaseException
) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"ä": 1})
    with pytest.raises(type(error)), replacing(path, durable=durable) as file:  # noqa: PT012
        file.write(b"half")
        raise error
    assert json.loads(path.read_text("utf-8")) == {"ä": 1}
    assert names(tmp_path) == ["a.json"]


def test_the_error_names_the_file_and_not_the_temporary_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_json(tmp_path / "gone" / "a.json", {})
    assert caught.value.filename == str(tmp_path / "gone" / "a.json")


def test_what_dead_processes_left_is_removed_and_what_others_write_is_not(tmp_path: Path) -> None:
    with replacing(tmp_path / "a.json") as file:
        file.write(b"{}")
        (mine,) = tmp_path.glob("*.partial")
        write_json(tmp_path / "a.json", {})
        assert mine.exists()  # its process, this one, is alive
        dead = tmp_path / mine.name.replace(f".{os.getpid()}.", ".4194305.")
        other_host = tmp_path / ".a.json.other.1.abc.partial"
        for left in (dead, other_host):
            left.touch()
        write_json(tmp_path / "a.json", {})
        assert not dead.exists()
        assert other_host.exists()
    with replacing(tmp_path / "a.json", sole_writer=True) as file:
        file.write(b"{}")
    assert names(tmp_path) == ["a.json"]


def test_one_of_two_creates_a_file(tmp_path: Path) -> None:
    create_json(tmp_path / "a.json", {"number": 1})
    with pytest.raises(FileExistsError):
        create_json(tmp_path / "a.json", {"number": 2})
    assert json.loads((tmp_path / "a.json").read_text()) == {"number": 1}


def test_a_folder_takes_the_place_of_another_one_only_if_asked(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "folder"
    for content in ("old", "new"):
        with new_folder(target, overwrite=True) as folder:
            (folder / content).touch()
        assert names(tmp_path) == sorted(["deep", "folder", content])
    with pytest.raises(OSError, match="not empty"), new_folder(target) as folder:
        (folder / "newer").touch()
    assert names(tmp_path) == ["deep", "folder", "new"]


@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()])
def test_a_folder_that_fails_leaves_what_stood_there(tmp_path: Path, error: BaseException) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old").touch()
    target = tmp_path / "folder"
    with pytest.raises(type(error)), new_folder(target, overwrite=True) as folder:  # noqa: PT012
        (folder / "half").touch()
        raise error
    assert names(tmp_path) == ["folder", "old"]


def test_a_file_written_bit_by_bit(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.txt"
    for text in ("old\n", "new\r\n"):
        file = WholeFile(path)
        file.write(text)
        file.close()
        file.discard()  # too late
        assert path.read_bytes() == text.encode()
    file = WholeFile(path)
    file.write("half")
    file.discard()
    file.discard()
    assert path.read_bytes() == b"new\r\n"
    assert names(tmp_path) == ["a.txt", "deep"]


@pytest.mark.parametrize(
    ("place", "reason"), [("folder", "it is a folder"), ("file/below", "File exists")]
)
def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, place: str, reason: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=f"{place}: cannot be written: {reason}"):
        WholeFile(tmp_path / place)


def test_a_device_is_written_to_and_stays_a_device(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    for place in (Path("/dev/null"), link):
        write_text(place, "gone")
        assert place.is_char_device()
    assert link.is_symlink()
    with pytest.raises(OSError, match="No space left"):
        write_text(Path("/dev/full"), "too much")


def test_the_link_to_standard_output_is_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    command = (
        "from pathlib import Path; from bertlab.files import write_text; "
        "write_text(Path('/dev/stdout'), 'text')"
    )
    before = Path("/dev/stdout").readlink()
    with target.open("wb") as file:
        subprocess.run([sys.executable, "-c", command], stdout=file, check=True, cwd=ROOT)
    assert target.read_text() == "text"
    assert Path("/dev/stdout").readlink() == before


def test_a_pipe_is_written_to_and_read_from(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=write_text, args=(pipe, "through"))
    writer.start()
    assert files.read_text(pipe) == "through"
    writer.join()
    assert pipe.is_fifo()


def test_nobody_is_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_PATIENCE", 0.1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="is a pipe with nobody at its other end"):
        files.read_text(pipe)
    with pytest.raises(OSError, match="is a pipe with nobody at its other end"):
        write_text(pipe, "into nothing")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    for place, what in ((tmp_path / "socket", "is a socket"), (tmp_path, "is a folder")):
        with pytest.raises(OSError, match=what):
            files.read_text(place)


def test_what_has_no_end_is_read_to_a_bound() -> None:
    with pytest.raises(OSError, match="has over 1,000 bytes"):
        files.read_bytes(Path("/dev/zero"), 1000)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 10**6, "nested too deep"),
        ("9" * 5000, "a number of 5000 digits"),
        ("[1, 2", "delimiter"),
        ('"\\ud8"', "escape"),
        ("[1]", "found list, expected a mapping"),
        ('{"other": 1}', "runs: found nothing, expected list"),
        ('{"runs": {}}', "runs: found mapping, expected list"),
    ],
)
def test_a_damaged_record_is_a_mistake_that_names_the_file(
    text: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ValueError, match=reason) as failure:
        files.read_object(tmp_path / "plan.json", {"runs": list})
    mistake = mistake_in(failure.value)
    assert mistake is not None
    assert str(mistake).startswith(f"{tmp_path / 'plan.json'}: damaged: ")


@pytest.mark.parametrize(
    "ask",
    [
        lambda: torch.empty(10**15),
        lambda: torch.empty(2**40, 2**40),
        lambda: np.empty(10**15),
        lambda: np.empty(2**62),
        lambda: bytearray(10**15),
    ],
)
def test_memory_that_is_not_there_is_a_mistake(ask: Callable[[], object]) -> None:
    with pytest.raises((MemoryError, RuntimeError, ValueError)) as failure:
        ask()
    mistake = mistake_in(failure.value)
    assert isinstance(mistake, OutOfMemoryError)
    assert str(mistake).startswith("memory ran out")
    assert mistake_in(RuntimeError("shapes cannot be multiplied")) is None


def test_what_is_printed_moves_no_cursor_and_has_an_end() -> None:
    assert printable("a\x1b[2Jb\r\nc\u202e\x07é漢") == "a\\x1b[2Jb\\r\nc\\u202e\\x07é漢"
    assert len(printable("x" * 10**6)) < 4100
    assert printable("\ud800") == "\\ud800"


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_a_number_beyond_all_bounds_in_a_record_is_a_damage(number: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(f'{{"steps": {number}}}')
    content = files.read_object(path)
    with pytest.raises(files.UnreadableError) as failure, files.explain_damage(path):
        int(content["steps"])
    assert failure.value.filename == str(path)
    assert str(mistake_in(failure.value)).startswith(f"{path}: damaged: ")
