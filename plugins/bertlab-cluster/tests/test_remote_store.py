"""Stores behind URLs: the same runs as from the disk, and never more in the cache than it holds."""

import contextlib
import hashlib
import io
import json
import os
import pickle
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem

from bertlab.api.rng import CounterRNG
from bertlab.data.corpus.store import TokenStore
from bertlab.data.sampler import load_sampler
from bertlab.errors import ConfigError, CorpusError, OutputError, ResumeError, TokenStoreError
from bertlab.training.record import hashes_of
from bertlab.training.same_run import check_same_data
from bertlab_cluster import remote_store, sharded_store
from bertlab_cluster.remote_store import RemoteStore, others_may_write
from bertlab_cluster.url_files import UrlFile
from tests.conftest import Command
from tests.data.corpus.stores import TOKENIZER, texts, write
from tests.data.web_server import serving

URL = "memory://there/store"
Change = Callable[[bytes], bytes]
Patch = pytest.MonkeyPatch


def put(folder: Path) -> None:
    fsspec.filesystem("memory").put(f"{folder}/", "/there/store", recursive=True)


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    yield system
    if system.exists("/there"):
        system.rm("/there", recursive=True)


@pytest.fixture
def here(tmp_path: Path, memory: fsspec.AbstractFileSystem) -> TokenStore:
    store = write(tmp_path / "store", texts(200), 200)
    assert len(store.metadata.shards) > 80
    put(store.path)
    return store


@pytest.fixture
def few(tmp_path: Path, memory: fsspec.AbstractFileSystem) -> TokenStore:
    store = write(tmp_path / "store", texts(40), 800)
    assert 5 < len(store.metadata.shards) < 15
    put(store.path)
    return store


def in_cache(cache: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in cache.glob("remote/*/shards/*.npy")}


def whole(cache: Path) -> int:
    """Return the bytes of what is in the cache beside shards."""
    files = [each for each in cache.glob("remote/*/**/*") if each.is_file()]
    return sum(each.stat().st_size for each in files if each.parent.name != "shards")


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.9f}"


def sequences(store: TokenStore, epoch: int) -> list[list[int]]:
    sampler = load_sampler("segment_pairs")(
        store, TOKENIZER, np.arange(200), 32, 0.1, CounterRNG(1, "sampler")
    )
    indices = np.arange(len(sampler))[:64]  # of many shards: their order is drawn
    found = []
    for start in range(0, len(indices), 16):
        part = indices[start : start + 16]
        batch = sampler.sample(np.full_like(part, epoch), part)
        found += [batch.input_ids.tolist(), batch.corpus_offsets.tolist()]
    return found


@pytest.mark.slow
def test_shards_are_fetched_when_they_are_read(here: TokenStore, tmp_path: Path) -> None:
    store = TokenStore.open(URL, tmp_path / "cache")
    assert in_cache(tmp_path / "cache") == {}
    assert (store.metadata, store.digest) == (here.metadata, here.digest)
    assert store.tokens[5:9].tolist() == here.tokens[5:9].tolist()
    assert list(in_cache(tmp_path / "cache")) == ["00000.tokens.npy"]
    again = pickle.loads(pickle.dumps(store))
    assert again.tokens[:].tolist() == here.tokens[:].tolist()


@pytest.mark.nightly
def test_sequences_are_those_of_the_disk_with_a_cache_that_is_too_small(
    here: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TokenStore.open(URL, tmp_path / "cache")
    room = whole(tmp_path / "cache") + 20_000  # a fifth of the shards
    monkeypatch.setenv("BERTLAB_CACHE_GB", gigabytes(room))
    store = TokenStore.open(URL, tmp_path / "cache")
    total = sum(sum(shard.bytes.values()) for shard in store.metadata.shards)
    assert total > 60_000
    for epoch in range(2):
        assert sequences(store, epoch) == sequences(here, epoch)
        assert 0 < sum(in_cache(tmp_path / "cache").values()) <= 20_000
    # what was dropped is not held by the process either, so that its room is free
    maps = Path("/proc/self/maps").read_text("utf-8").splitlines()
    dropped = [line for line in maps if str(tmp_path / "cache") in line and "(deleted)" in line]
    assert dropped == []


@pytest.mark.slow
def test_the_one_that_was_not_read_for_longest_is_dropped(
    here: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [shard.bytes["tokens"] for shard in here.metadata.shards]
    TokenStore.open(URL, tmp_path / "cache")
    room = whole(tmp_path / "cache") + sum(sizes[:3])
    monkeypatch.setenv("BERTLAB_CACHE_GB", gigabytes(room))
    store = TokenStore.open(URL, tmp_path / "cache")
    firsts = store.tokens.firsts
    for shard in (0, 1, 2):
        store.tokens[firsts[shard]]
    shards = next((tmp_path / "cache").glob("remote/*/shards"))
    for age, shard in enumerate((0, 2, 1)):  # seconds are too coarse on some disks
        os.utime(shards / f"0000{shard}.tokens.npy", (age, age))
    store.tokens[firsts[0]]  # is read once more
    store.tokens[firsts[3]]
    left = set(in_cache(tmp_path / "cache"))
    assert "00002.tokens.npy" not in left
    assert {"00000.tokens.npy", "00003.tokens.npy"} <= left


@pytest.mark.slow
def test_a_shard_that_is_not_what_the_manifest_says(
    here: TokenStore, memory: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    place = "/there/store/shards/00003.tokens.npy"
    content = bytearray(memory.cat(place))
    content[-1] ^= 1
    memory.pipe(place, bytes(content))
    store = TokenStore.open(URL, tmp_path / "cache")
    with pytest.raises(TokenStoreError, match=r"00003\.tokens\.npy: damaged token store"):
        store.tokens[:]
    memory.rm(place)
    with pytest.raises(TokenStoreError, match=r"00003\.tokens\.npy: cannot be read: not found"):
        store.tokens[:]
    assert "00003.tokens.npy" not in in_cache(tmp_path / "cache")


@pytest.mark.slow
def test_a_cache_that_cannot_be_written(here: TokenStore, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()  # no folder
    with pytest.raises(TokenStoreError, match=r"cannot write the cache: .*BERTLAB_CACHE"):
        TokenStore.open(URL, tmp_path / "cache")
    store = TokenStore.open(URL, tmp_path / "other")
    shards = next((tmp_path / "other").glob("remote/*/shards"))
    shards.rmdir()
    shards.touch()
    with pytest.raises(TokenStoreError, match="cannot write the cache: Not a directory"):
        store.tokens[:]


@pytest.mark.nightly
def test_another_store_at_the_same_place(here: TokenStore, tmp_path: Path) -> None:
    TokenStore.open(URL, tmp_path / "cache").tokens[:]
    other = write(tmp_path / "other", texts(150, seed=5), 300)
    put(other.path)
    store = TokenStore.open(URL, tmp_path / "cache")
    assert store.tokens[:].tolist() == other.tokens[:].tolist()


def test_a_store_of_one_file(memory: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    one = write(tmp_path / "one", texts(20), 10**6)
    put(one.path)
    store = TokenStore.open(URL, tmp_path / "cache")
    assert store.digest == one.digest
    assert asdict(store.metadata) == asdict(one.metadata) | {"shards": (), "digest": ""}


@pytest.mark.first_fast
@pytest.mark.parametrize("given", ["nought", "-1", "0", "inf"])
def test_a_cache_without_size(
    here: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("BERTLAB_CACHE_GB", given)
    with pytest.raises(ConfigError, match=f"BERTLAB_CACHE_GB: found '{given}', expected gigabytes"):
        TokenStore.open(URL, tmp_path / "cache")


@pytest.mark.nightly
def test_runs_are_those_of_the_disk(
    bertlab: Command,
    tiny_config: Path,
    corpus_file: Path,
    memory: fsspec.AbstractFileSystem,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With data workers that share a small cache."""
    monkeypatch.setenv("BERTLAB_CACHE_GB", "0.0001")
    source = ["--corpus", corpus_file, "--corpus_format", "sentences"]
    made = bertlab("tokenizer", *source, "--vocab_size", 300, "--output", tmp_path / "tokenizer")
    assert made[0] == 0, made
    options = ["--tokenizer", tmp_path / "tokenizer", "--shard_tokens", 5000]
    made = bertlab("prepare", *source, *options, "--output", tmp_path / "store")
    assert made[0] == 0, made
    put(tmp_path / "store")
    weights = {}
    for name, corpus in (("here", str(tmp_path / "store")), ("there", URL)):
        run = tmp_path / name
        command = ["--config", tiny_config, "--run_dir", run, "--data.corpus", corpus]
        command += ["--data.cache_dir", tmp_path / "cache", "--data.num_workers", 2]
        made = bertlab("fit", *command)
        assert made[0] == 0, made
        last = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
        weights[name] = last["state_dict"]
    assert list(weights["here"]) == list(weights["there"])
    for name, tensor in weights["here"].items():
        assert torch.equal(tensor, weights["there"][name]), name
    assert 0 < sum(in_cache(tmp_path / "cache").values()) <= 100_000


def test_no_store_and_no_text(
    memory: fsspec.AbstractFileSystem, bertlab: Command, tiny_config: Path, tmp_path: Path
) -> None:
    code, _, error = bertlab(
        "fit", "--config", tiny_config, "--run_dir", tmp_path / "run", "--data.corpus", URL
    )
    assert (code, error.splitlines()[-1]) == (
        2,
        f"bertlab: error {CorpusError.code}: {URL}: cannot be read: not found",
    )


def says(memory: fsspec.AbstractFileSystem, **changes: Any) -> dict[str, Any]:
    """Return what the ``store.json`` behind the URL says, perhaps changed."""
    content: dict[str, Any] = json.loads(memory.cat("/there/store/store.json")) | changes
    if changes:
        memory.pipe("/there/store/store.json", json.dumps(content).encode())
    return content


def flip(content: bytes) -> bytes:
    return content[:-2] + bytes([content[-2] ^ 1]) + content[-1:]


@pytest.mark.parametrize("change", [flip, lambda c: c[:-8], lambda c: c + b"more", lambda _: b""])
@pytest.mark.parametrize("name", ["token_counts.npy", "tokenizer/vocab.txt"])
def test_each_file_is_what_the_manifest_says(
    few: TokenStore, memory: fsspec.AbstractFileSystem, tmp_path: Path, name: str, change: Change
) -> None:
    place = f"/there/store/{name}"
    memory.pipe(place, change(memory.cat(place)))
    with pytest.raises(TokenStoreError, match=f"{URL}/{name}: damaged token store: its content"):
        TokenStore.open(URL, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob(f"remote/*/{name}"))
    assert not list((tmp_path / "cache").glob("remote/*/store.json"))


def test_no_more_is_read_than_the_manifest_says(
    few: TokenStore, memory: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    memory.pipe("/there/store/token_counts.npy", b"x" * 2**23)
    read = 0
    opened = UrlFile.open

    class Counted(io.BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            nonlocal read
            found = super().read(size)
            read += len(found)
            return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UrlFile, "open", lambda self: Counted(opened(self).detach()))
        with pytest.raises(TokenStoreError, match=r"token_counts\.npy: damaged token store"):
            TokenStore.open(URL, tmp_path / "cache")
    assert read < 100_000


def test_a_manifest_that_promises_more_than_the_cache_holds(
    few: TokenStore, memory: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    says(memory, bytes=says(memory)["bytes"] | {"token_counts": 10**15})
    with pytest.raises(ConfigError, match=r"BERTLAB_CACHE_GB: .*token_counts\.npy has 1,000,000,0"):
        TokenStore.open(URL, tmp_path / "cache")
    assert whole(tmp_path / "cache") < 10_000


def test_a_manifest_without_end(
    few: TokenStore, memory: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(remote_store, "LARGEST_FILE", 1000)
    with pytest.raises(TokenStoreError, match=r"store\.json: cannot be read: has over 1,000 bytes"):
        TokenStore.open(URL, tmp_path / "cache")


@pytest.mark.parametrize(
    "name", ["../../../stolen", "/tmp/stolen", "a/../../b", ".ssh", "", "a//b"]
)
def test_a_manifest_names_no_file_elsewhere(
    few: TokenStore, memory: fsspec.AbstractFileSystem, tmp_path: Path, name: str
) -> None:
    content = says(memory)
    sizes, hashes = content["bytes"] | {name: 1}, content["sha256"] | {name: "0" * 64}
    says(memory, bytes=sizes, sha256=hashes)
    with pytest.raises(TokenStoreError, match=r"bytes of store\.json has"):
        TokenStore.open(URL, tmp_path / "cache")
    assert {each.name for each in tmp_path.iterdir()} == {"cache", "store"}


def test_a_store_of_before(
    few: TokenStore, memory: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    """Its tokenizer has neither size nor hash."""
    content = says(memory)
    del content["sha256"]
    names = ("document_offsets", "document_token_offsets", "token_counts")
    content["bytes"] = {name: content["bytes"][name] for name in names}
    memory.pipe("/there/store/store.json", json.dumps(content).encode())
    store = TokenStore.open(URL, tmp_path / "cache")
    assert store.tokens[:].tolist() == few.tokens[:].tolist()
    assert store.check(tmp_path / "cache") == few.digest
    memory.pipe("/there/store/token_counts.npy", b"short")
    with pytest.raises(TokenStoreError, match=r"token_counts\.npy: damaged token store"):
        TokenStore.open(URL, tmp_path / "other")


def test_a_web_server_shows_no_folders_and_needs_none(few: TokenStore, tmp_path: Path) -> None:
    with serving(few.path) as address:
        store = TokenStore.open(address, tmp_path / "cache")
        assert store.tokens[:].tolist() == few.tokens[:].tolist()


def test_what_comes_counts_from_its_first_byte_on(
    few: TokenStore, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Two that read all shards in turn never have more in the cache than it holds."""
    cache = tmp_path / "cache"
    TokenStore.open(URL, cache)
    room = whole(cache) + 6_500
    beside = sum(each.stat().st_size for each in cache.glob("remote/*/*.*"))
    monkeypatch.setenv("BERTLAB_CACHE_GB", gigabytes(room))
    monkeypatch.setattr(remote_store, "_WAIT", 0.001)
    # fsspec's memory gives all readers of a file one object, so that two move its place
    monkeypatch.setattr(
        MemoryFileSystem, "_open", lambda self, path, *_, **__: io.BytesIO(self.cat_file(path))
    )
    used = []
    opened = UrlFile.open

    def sizes() -> dict[str, int]:
        found = {}
        for each in cache.glob("remote/*/*/*.*"):
            with contextlib.suppress(FileNotFoundError):  # dropped, or put in its place
                found[each.name] = each.stat().st_size
        return found

    def looked_at(self: UrlFile) -> io.BufferedReader:
        # what is there in both looks was there at once: one look may see a file before it is
        # dropped, and then the one that came in its place
        first, second = sizes(), sizes()
        used.append(sum(first[name] for name in first.keys() & second.keys()) + beside)
        return opened(self)

    class Slow(RemoteStore):
        @contextlib.contextmanager
        def _reserved(self, name: str, size: int) -> Iterator[Any]:
            with super()._reserved(name, size) as target:
                looked_at(UrlFile(f"{URL}/{name}"))
                yield target

    monkeypatch.setattr(sharded_store, "RemoteStore", Slow)

    def read() -> list[int]:
        found: list[int] = TokenStore.open(URL, cache).tokens[:].tolist()
        return found

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.submit(read), pool.submit(read)
    assert one.result() == other.result() == few.tokens[:].tolist()
    assert len(used) >= len(few.metadata.shards)
    assert room - 6_500 < max(used) <= room


def test_what_nobody_fetches_any_more_is_dropped(
    few: TokenStore, tmp_path: Path, monkeypatch: Patch
) -> None:
    cache = tmp_path / "cache"
    store = TokenStore.open(URL, cache)
    left = next(cache.glob("remote/*/shards")) / ".00001.tokens.npy.tfew.7.00.partial"
    left.write_bytes(b"x" * 10_000)
    monkeypatch.setenv("BERTLAB_CACHE_GB", gigabytes(whole(cache) + 10_500))
    store = TokenStore.open(URL, cache)
    os.utime(left, (1, 1))
    assert store.tokens[:].tolist() == few.tokens[:].tolist()
    assert not left.exists()


def test_what_a_killed_process_was_fetching_is_dropped_at_once(
    few: TokenStore, tmp_path: Path, monkeypatch: Patch
) -> None:
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    cache = tmp_path / "cache"
    TokenStore.open(URL, cache)
    shards = next(cache.glob("remote/*/shards"))
    left = shards / f".00099.tokens.npy.{platform.node()}.{killed.pid}.00.partial"
    left.write_bytes(b"x" * 10_000)
    monkeypatch.setenv("BERTLAB_CACHE_GB", gigabytes(whole(cache) + 10_500))
    store = TokenStore.open(URL, cache)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waits for a process that is gone"))
    assert store.tokens[:].tolist() == few.tokens[:].tolist()
    assert not left.exists()


def test_other_stores_are_dropped_whole(
    few: TokenStore, memory: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: Patch
) -> None:
    cache = tmp_path / "cache"
    TokenStore.open(URL, cache)
    for file in cache.glob("remote/*/*.*"):
        os.utime(file, (1, 1))
    before = whole(cache)
    put(write(tmp_path / "new", texts(40, seed=3), 800).path)
    monkeypatch.setenv("BERTLAB_CACHE_GB", gigabytes(before + 1000))
    TokenStore.open(URL, cache)
    assert whole(cache) <= before + 1000
    assert len(list(cache.glob("remote/*/store.json"))) == 1


@pytest.fixture
def shared(few: TokenStore, tmp_path: Path) -> Path:
    """A cache with the whole store, into which others may write."""
    cache = tmp_path / "cache"
    TokenStore.open(URL, cache).tokens[:]
    for folder in (cache, *cache.rglob("*")):
        if folder.is_dir() and not folder.name.startswith("found-"):
            folder.chmod(0o777)
    return cache


@pytest.mark.parametrize(
    "name",
    ["shards/00002.tokens.npy", "token_counts.npy", "tokenizer/tokenizer.json", "store.json"],
)
def test_what_another_user_put_into_the_cache_is_fetched_again(
    few: TokenStore, shared: Path, name: str
) -> None:
    file = next(shared.glob(f"remote/*/{name}"))
    expected = file.read_bytes()
    other = file.with_name(".other")
    other.write_bytes(flip(expected))
    other.rename(file)
    store = TokenStore.open(URL, shared)
    assert store.tokens[:].tolist() == few.tokens[:].tolist()
    assert file.read_bytes() == expected


def test_a_link_that_another_user_put_into_the_cache(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    shards = next(shared.glob("remote/*/shards"))
    shards.rename(shards.with_name("moved"))
    shards.symlink_to(tmp_path / "mine")
    with pytest.raises(OutputError, match="is a link that leads out"):
        TokenStore.open(URL, shared)
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_cache_of_ones_own_is_not_hashed_again(
    few: TokenStore, tmp_path: Path, monkeypatch: Patch
) -> None:
    TokenStore.open(URL, tmp_path / "cache").tokens[:]
    monkeypatch.delattr(remote_store, "sha256_of")
    assert TokenStore.open(URL, tmp_path / "cache").tokens[:].tolist() == few.tokens[:].tolist()


def test_what_is_cut_in_the_cache_is_fetched_again(few: TokenStore, tmp_path: Path) -> None:
    TokenStore.open(URL, tmp_path / "cache").tokens[:]
    for name in ("shards/00002.tokens.npy", "token_counts.npy"):
        os.truncate(next((tmp_path / "cache").glob(f"remote/*/{name}")), 100)
    assert TokenStore.open(URL, tmp_path / "cache").tokens[:].tolist() == few.tokens[:].tolist()


def test_who_may_write(tmp_path: Path) -> None:
    folder = tmp_path / "a/b"
    folder.mkdir(parents=True)
    assert not others_may_write(folder)
    for mode in (0o777, 0o1777, 0o775):
        folder.chmod(mode)
        assert others_may_write(folder)
    folder.chmod(0o755)
    folder.parent.chmod(0o777)  # anybody may put another b there
    assert others_may_write(folder)
    folder.parent.chmod(0o1777)  # as /tmp
    assert not others_may_write(folder)


def test_a_store_that_changes_while_a_run_reads_it(
    few: TokenStore, memory: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    """A data worker that starts later does not get another store."""
    pickled = pickle.dumps(TokenStore.open(URL, tmp_path / "cache"))
    says(memory, words=7)
    with pytest.raises(TokenStoreError, match=r"store\.json: changed while the store was read"):
        pickle.loads(pickled)


def test_a_run_does_not_go_on_with_other_shards(
    few: TokenStore, memory: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    """The digest that ``store.json`` states is not believed: no shard was read for it."""

    def hashes() -> dict[str, str]:
        store = TokenStore.open(URL, tmp_path / "cache")
        return hashes_of({"store": store.check(tmp_path), "store_files": store.recorded})

    there = hashes()
    check_same_data(hashes(), there, {"corpus": URL})
    local = hashes_of({"store": few.check(tmp_path), "store_files": few.recorded})
    check_same_data(hashes(), local, {"corpus": URL})
    place = "/there/store/shards/00003.tokens.npy"
    memory.pipe(place, flip(memory.cat(place)))
    shards = says(memory)["shards"]
    shards[3]["sha256"]["tokens"] = hashlib.sha256(memory.cat(place)).hexdigest()
    says(memory, shards=shards)
    for began in (there, local):
        with pytest.raises(ResumeError, match=rf"data\.corpus: {URL}: .* \(store\.json\)"):
            check_same_data(hashes(), began, {"corpus": URL})


def test_shards_on_the_disk_are_compared(few: TokenStore, tmp_path: Path) -> None:
    few.check(tmp_path / "cache")
    file = few.path / "shards/00002.tokens.npy"
    file.write_bytes(flip(file.read_bytes()))
    with pytest.raises(TokenStoreError, match=r"shards/00002\.tokens\.npy is not what store"):
        TokenStore.open(few.path).check(tmp_path / "cache")
