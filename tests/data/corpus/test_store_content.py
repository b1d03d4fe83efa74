"""A store is what its ``store.json`` says, file by file; nothing is read twice to know it."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertlab.data.corpus import store as store_module
from bertlab.data.corpus.store import TokenStore
from bertlab.errors import ResumeError, TokenStoreError
from bertlab.training.record import hashes_of
from bertlab.training.same_run import check_same_data
from tests.data.corpus.stores import texts, write

ARRAYS = ("tokens", "sentence_offsets", "document_offsets", "token_counts")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "store", texts(40)).path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def says(path: Path, **changes: Any) -> dict[str, Any]:
    """Return the content of ``store.json``, perhaps changed."""
    file = path / "store.json"
    content: dict[str, Any] = json.loads(file.read_text("utf-8"))
    if changes:
        file.write_text(json.dumps(content | changes), "utf-8")
    return content | changes


def refused(path: Path, cache: Path) -> str:
    with pytest.raises(TokenStoreError) as found:
        TokenStore.open(path).check(cache)
    assert str(path) in str(found.value)
    return str(found.value)


def flip(file: Path) -> None:
    """Change one bit in the middle of a file, at the same length and time."""
    before = file.stat()
    content = bytearray(file.read_bytes())
    content[len(content) // 4 * 2] ^= 1  # the low byte of a number
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_each_file_has_its_size_and_its_hash(path: Path) -> None:
    content = says(path)
    files = {
        each.relative_to(path).as_posix().removesuffix(".npy"): each
        for each in path.rglob("*")
        if each.is_file() and each.name != "store.json"
    }
    assert {*ARRAYS, "tokenizer/tokenizer.json"} <= files.keys()
    assert content["bytes"] == {name: file.stat().st_size for name, file in files.items()}
    hashes = {name: hashlib.sha256(file.read_bytes()) for name, file in files.items()}
    assert content["sha256"] == {name: each.hexdigest() for name, each in hashes.items()}


@pytest.mark.parametrize(
    "name", ["tokens.npy", "token_counts.npy", "tokenizer/vocab.txt", "tokenizer/tokenizer.json"]
)
def test_a_bit_that_is_another(path: Path, cache: Path, name: str) -> None:
    TokenStore.open(path).check(cache)  # which is remembered, of the file as it was
    flip(path / name)
    assert (
        name.rpartition("/")[2] in (message := refused(path, cache)) or "its tokenizer/" in message
    )


@pytest.mark.parametrize("name", ["tokens.npy", "tokenizer/vocab.txt"])
def test_a_file_that_is_cut(path: Path, cache: Path, name: str) -> None:
    file = path / name
    file.write_bytes(file.read_bytes()[:-2])
    assert name in refused(path, cache)
    file.unlink()
    assert name in refused(path, cache)


def test_files_that_change_places(path: Path, tmp_path: Path, cache: Path) -> None:
    other = shutil.copytree(path, tmp_path / "other")
    flip(other / "tokens.npy")
    (other / "tokens.npy").rename(path / "tokens.npy")  # the one is as long as the other
    assert "tokens.npy is not what store.json says" in refused(path, cache)


def more(path: Path) -> None:
    says(path, bytes=says(path)["bytes"] | {"tokens": 10**15})


def fewer(path: Path) -> None:
    says(path, bytes=says(path)["bytes"] | {"tokens": 200}, tokens=36)


def without(path: Path) -> None:
    hashes = says(path)["sha256"]
    del hashes["tokens"]
    says(path, sha256=hashes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (more, "tokens.npy has"),
        (fewer, "tokens.npy has"),
        (without, "tokens.npy is not what store.json says"),
        (lambda path: says(path, bytes={"../../etc/passwd": 1}), "bytes of store.json has"),
        (lambda path: says(path, bytes={"/dev/zero": 1}), "bytes of store.json has"),
        (lambda path: says(path, bytes={".hidden": 1}), "bytes of store.json has"),
        (lambda path: says(path, bytes=says(path)["bytes"] | {"tokens": -1}), "'tokens': -1"),
        (lambda path: says(path, bytes=says(path)["bytes"] | {"tokens": "9"}), "'tokens': '9'"),
        (lambda path: says(path, sha256=["x"]), "sha256 of store.json is"),
        (lambda path: says(path, sha256=dict.fromkeys(says(path)["bytes"], 7)), "is not what"),
    ],
)
def test_a_manifest_that_says_something_else(
    path: Path, cache: Path, change: Callable[[Path], object], message: str
) -> None:
    change(path)
    assert message in refused(path, cache)


def test_a_store_of_before_is_read(path: Path, cache: Path) -> None:
    """It has sizes of its arrays, and no hashes."""
    content = says(path)
    digest = TokenStore.open(path).digest
    del content["sha256"]
    content["bytes"] = {name: content["bytes"][name] for name in ARRAYS}
    (path / "store.json").write_text(json.dumps(content), "utf-8")
    store = TokenStore.open(path)
    assert store.check(cache) == digest == store.digest
    assert store.recorded.keys() == {f"{name}.npy" for name in ARRAYS} | {"store.json"}
    (path / "tokens.npy").write_bytes((path / "tokens.npy").read_bytes() + b"x")
    assert "tokens.npy has" in refused(path, cache)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are hashed."""
    found = list[str]()
    hashed = store_module.sha256_of

    def sha256_of(file: Path) -> str:
        found.append(file.name)
        return hashed(file)

    monkeypatch.setattr(store_module, "sha256_of", sha256_of)
    return found


def test_all_is_read_once(path: Path, cache: Path, read: list[str]) -> None:
    digest = TokenStore.open(path).check(cache)
    assert len(read) == len(says(path)["bytes"])
    read.clear()
    assert TokenStore.open(path).check(cache) == digest
    assert read == []
    os.utime(path / "tokens.npy")  # perhaps it was written to
    TokenStore.open(path).check(cache)
    assert "tokens.npy" in read
    read.clear()
    (path / "tokens.npy").rename(path / "kept")
    shutil.copy2(path / "kept", path / "tokens.npy")  # size and time are the same
    TokenStore.open(path).check(cache)
    assert "tokens.npy" in read


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o755])
def test_what_others_could_have_remembered_is_not_believed(
    path: Path, cache: Path, read: list[str], mode: int
) -> None:
    TokenStore.open(path).check(cache)
    folder = next(cache.iterdir())
    assert folder.stat().st_mode & 0o777 == 0o700
    for each in folder.iterdir():
        each.write_text("0" * 64, "ascii")
    folder.chmod(mode)
    read.clear()
    store = TokenStore.open(path)
    assert store.check(cache) == store.digest
    assert "tokens.npy" in read


def test_a_cache_that_cannot_be_written(path: Path, cache: Path) -> None:
    cache.touch()  # no folder
    store = TokenStore.open(path)
    assert store.check(cache) == store.digest


def facts(store: TokenStore) -> dict[str, Any]:
    return {"store": store.digest, "store_files": store.recorded}


def test_a_run_says_which_files_of_its_store_are_others(path: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other", texts(40, seed=1))
    there = hashes_of(facts(TokenStore.open(path)))
    assert (
        there["store/store.json"] == hashlib.sha256((path / "store.json").read_bytes()).hexdigest()
    )
    check_same_data(there, there, {"corpus": str(path)})
    with pytest.raises(ResumeError) as found:
        check_same_data(hashes_of(facts(other)), there, {"corpus": str(other.path)})
    assert f"data.corpus: {other.path}: " in str(found.value)
    assert "(tokens.npy, " in str(found.value)
    assert "store.json)" in str(found.value)


def test_the_tokens_decide_where_they_are_read(path: Path) -> None:
    """Another bertlab wrote the same store anew."""
    there = hashes_of(facts(TokenStore.open(path)))
    says(path, bertlab_version="9.9")
    here = hashes_of(facts(TokenStore.open(path)))
    assert here["store/store.json"] != there["store/store.json"]
    check_same_data(here, there, {"corpus": str(path)})
    # but not the word of a store.json from elsewhere
    with pytest.raises(ResumeError, match=r"data\.corpus: s3://x: .*\(store\.json\)"):
        check_same_data(here | {"store/digest": here["store"]}, there, {"corpus": "s3://x"})
    check_same_data(here | {"store/digest": here["store"]}, {"store": there["store"]}, {})
