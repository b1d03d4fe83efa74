"""Stores behind URLs: the same runs as from the disk, and never more in the cache than it holds."""

import os
import pickle
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch

from bertlab.api.rng import CounterRNG
from bertlab.data.corpus.store import TokenStore
from bertlab.data.sampler import load_sampler
from bertlab.errors import ConfigError, CorpusError, TokenStoreError
from tests.conftest import Command
from tests.data.corpus.stores import TOKENIZER, texts, write

URL = "memory://there/store"


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


def in_cache(cache: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in cache.glob("remote/*/shards/*.npy")}


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


def test_shards_are_fetched_when_they_are_read(here: TokenStore, tmp_path: Path) -> None:
    store = TokenStore.open(URL, tmp_path / "cache")
    assert in_cache(tmp_path / "cache") == {}
    assert (store.metadata, store.digest) == (here.metadata, here.digest)
    assert store.tokens[5:9].tolist() == here.tokens[5:9].tolist()
    assert list(in_cache(tmp_path / "cache")) == ["00000.tokens.npy"]
    again = pickle.loads(pickle.dumps(store))
    assert again.tokens[:].tolist() == here.tokens[:].tolist()


def test_sequences_are_those_of_the_disk_with_a_cache_that_is_too_small(
    here: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTLAB_CACHE_GB", "0.00002")  # 20 kB: a fifth of the store
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


def test_the_one_that_was_not_read_for_longest_is_dropped(
    here: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [shard.bytes["tokens"] for shard in here.metadata.shards]
    monkeypatch.setenv("BERTLAB_CACHE_GB", str(sum(sizes[:3]) / 1e9))
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


@pytest.mark.parametrize("given", ["nought", "-1", "0", "inf"])
def test_a_cache_without_size(
    here: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("BERTLAB_CACHE_GB", given)
    with pytest.raises(ConfigError, match=f"BERTLAB_CACHE_GB: found '{given}', expected gigabytes"):
        TokenStore.open(URL, tmp_path / "cache")


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
