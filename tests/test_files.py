"""Atomic writes: whole or as it was before, and nothing left beside it."""

import errno
import json
import os
from pathlib import Path

import pytest

from bertlab.errors import OutputError
from bertlab.files import WholeFile, create_json, new_folder, replacing, write_json

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
