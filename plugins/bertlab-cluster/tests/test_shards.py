"""Stores of many shards: the same arrays, sequences and hashes as of one; opened when read."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertlab.api.rng import CounterRNG
from bertlab.data.corpus.corpus import Corpus
from bertlab.data.corpus.prepare import prepare
from bertlab.data.corpus.store import TokenStore
from bertlab.data.sampler import load_sampler
from bertlab.errors import ConfigError, TokenStoreError
from bertlab.plugins.index import installed
from bertlab_cluster import shards as shards_module
from bertlab_cluster.sharded_store import ShardedWriter
from tests.data.corpus.stores import LETTERS, TOKENIZER, texts, write

ARRAYS = ("tokens", "sentence_offsets", "document_offsets", "document_token_offsets")


def of_shards(store: TokenStore) -> list[int]:
    return [shard.tokens for shard in getattr(store.metadata, "shards", ())]


def handles_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


lengths = st.lists(st.integers(1, 6), min_size=1, max_size=4)


@pytest.mark.slow
@given(
    documents=st.lists(lengths, min_size=1, max_size=12),
    shard_tokens=st.integers(1, 40),
    batch=st.integers(1, 5),
    data=st.data(),
)
@settings(deadline=None, max_examples=25)
def test_the_arrays_are_those_of_one_file(
    documents: list[list[int]],
    shard_tokens: int,
    batch: int,
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("stores")
    one = write(folder / "one", documents, 10**6)
    many = write(folder / "many", documents, shard_tokens, len(documents))
    other = write(folder / "other", documents, shard_tokens, len(documents))
    assert many.metadata == other.metadata
    assert type(one) is TokenStore
    for name in ARRAYS:
        there, here = getattr(one, name), getattr(many, name)
        assert here[:].tolist() == there.tolist()
        places = data.draw(st.lists(st.integers(0, len(there) - 1), max_size=8))
        assert here[np.array(places, np.int64)].tolist() == there[places].tolist()
        assert (len(here), here.dtype, here.shape) == (len(there), there.dtype, there.shape)
    asked = np.array(data.draw(st.lists(st.integers(0, len(one.tokens) + 1), max_size=8)), np.int64)
    for side in ("left", "right"):
        found = many.sentence_offsets.searchsorted(asked, side)
        assert found.tolist() == one.sentence_offsets.searchsorted(asked, side).tolist()
    assert many.digest == one.digest
    # no shard is larger than asked for, unless it is one document; each but the last is full
    totals = [sum(each) for each in documents]
    sizes = of_shards(many) or [sum(totals)]
    place = 0
    for size in sizes:
        start = place
        while sum(totals[start:place]) < size:
            place += 1
        assert sum(totals[start:place]) == size
        assert size <= shard_tokens or place == start + 1
        assert place == len(totals) or size + totals[place] > shard_tokens


@pytest.mark.first_fast
@pytest.mark.parametrize("input_format", installed("input_format"))
def test_the_sequences_are_those_of_one_file(tmp_path: Path, input_format: str) -> None:
    documents = texts(120)
    stores = [write(tmp_path / "one", documents, 10**6), write(tmp_path / "many", documents, 300)]
    assert len(stores[1].metadata.shards) > 30
    one, many = (
        load_sampler(input_format)(
            store, TOKENIZER, np.arange(0, 120, 2), 64, 0.3, CounterRNG(4, "sampler")
        )
        for store in stores
    )
    assert len(one) == len(many)
    indices = np.arange(len(one))
    for epoch in range(3):
        for max_length in (None, 16):
            epochs = np.full_like(indices, epoch)
            here, there = (each.sample(epochs, indices, max_length) for each in (many, one))
            for name in ("input_ids", "token_type_ids", "cu_seqlens", "corpus_offsets", "indices"):
                assert np.array_equal(getattr(here, name), getattr(there, name)), name


@pytest.mark.slow
def test_the_store_is_the_same_for_any_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertlab.data.corpus.prepare._BATCH_DOCUMENTS", 5)
    text = "\n".join(
        "".join(f"{' '.join(LETTERS[: 2 + (d * s) % 9])}\n" for s in range(1 + d % 4))
        for d in range(60)
    )
    (tmp_path / "text.txt").write_text(text, "utf-8")
    corpus = Corpus([str(tmp_path / "text.txt")], format="sentences")
    for workers in (1, 2):
        prepare(corpus, TOKENIZER, tmp_path / f"{workers}", workers, shard_tokens=60)
    files = [
        {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        for folder in (tmp_path / "1", tmp_path / "2")
    ]
    assert files[0] == files[1]
    assert sum(name.endswith(".tokens.npy") for name in files[0]) > 5


def test_a_shard_is_opened_when_it_is_read_and_then_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = shards_module.mapped

    def counting(file: Path, *arguments: object) -> object:
        opened.append(file.name)
        return real(file, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(shards_module, "mapped", counting)
    write(tmp_path / "store", texts(200), 100)
    opened.clear()  # those that were hashed
    store = pickle.loads(pickle.dumps(TokenStore.open(tmp_path / "store")))
    handles = handles_open()
    assert (len(store.metadata.shards) > 150, opened) == (True, [])
    sampler = load_sampler("segment_pairs")(
        store, TOKENIZER, np.arange(200), 32, 0.1, CounterRNG(1, "sampler")
    )
    assert opened == []
    indices = np.arange(4)
    sampler.sample(np.zeros_like(indices), indices)
    # 4 sequences of two segments: tokens and offsets of 8 shards, and of a neighbour each
    assert 0 < len(opened) <= 4 * 2 * 2 * 2
    assert handles_open() <= handles
    before = list(opened)
    sampler.sample(np.zeros_like(indices), indices)
    assert opened == before == list(dict.fromkeys(before))


def test_only_so_many_shards_are_held_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "OPEN", 3)
    store = write(tmp_path / "store", texts(40), 100)
    assert store.tokens[:].tolist() == store.tokens[:].tolist()
    assert store.tokens.open_shard.cache_info().currsize == 3


def damage(path: Path, how: str) -> None:
    manifest = json.loads((path / "store.json").read_bytes())
    file = path / "shards" / "00003.tokens.npy"
    if how == "missing":
        file.unlink()
    elif how == "cut":
        file.write_bytes(file.read_bytes()[:-2])
    elif how == "one less":
        del manifest["shards"][3]
    elif how == "none":
        manifest["shards"] = []
    elif how == "negative":
        manifest["shards"][3]["tokens"] *= -1
    elif how == "no number":
        manifest["shards"][3]["bytes"] = "many"
    elif how == "a number":
        manifest["shards"] = 7
    (path / "store.json").write_text(json.dumps(manifest), "utf-8")


@pytest.mark.parametrize(
    "how", ["missing", "cut", "one less", "none", "negative", "no number", "a number"]
)
def test_a_damaged_store_is_refused_when_it_is_opened(tmp_path: Path, how: str) -> None:
    write(tmp_path / "store", texts(40), 100)
    damage(tmp_path / "store", how)
    with pytest.raises(TokenStoreError, match=r"store: damaged token store: .*shard"):
        TokenStore.open(tmp_path / "store")


@pytest.mark.parametrize("place", [0, 3, -1])
def test_damaged_offsets_are_refused_when_they_are_read(tmp_path: Path, place: int) -> None:
    write(tmp_path / "store", texts(40), 100)
    file = tmp_path / "store" / "shards" / "00003.sentence_offsets.npy"
    offsets = np.load(file)
    offsets[place] += 10**6
    np.save(file, offsets)
    store = TokenStore.open(tmp_path / "store")
    with pytest.raises(TokenStoreError, match=r"00003.sentence_offsets.npy does not rise"):
        store.sentence_offsets[:]


@pytest.mark.parametrize("name", ["tokens", "sentence_offsets"])
def test_a_shard_of_fewer_items_than_it_says_is_refused(tmp_path: Path, name: str) -> None:
    """Its header and the sizes in store.json agree with what is there."""
    write(tmp_path / "store", texts(40), 100)
    file, manifest = tmp_path / "store" / f"shards/00003.{name}.npy", tmp_path / "store/store.json"
    items = np.load(file)
    file.write_bytes(file.read_bytes()[: -items.itemsize])
    content = json.loads(manifest.read_bytes())
    content["shards"][3]["bytes"][name] = file.stat().st_size
    manifest.write_text(json.dumps(content), "utf-8")
    store = TokenStore.open(tmp_path / "store")
    words = f"damaged token store: 00003.{name}.npy cannot be read: it holds {len(items) - 1} items"
    with pytest.raises(TokenStoreError, match=words):
        getattr(store, name)[:]


def test_shards_of_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="shard_tokens: found 0, expected 1 or more"):
        ShardedWriter(tmp_path / "store", TOKENIZER, "", 0)


@pytest.mark.nightly
def test_ten_thousand_shards(tmp_path: Path) -> None:
    """Files opened, handles and memory: of a batch's shards, not of the store's."""
    documents = [[20, 20]] * 10_000
    write(tmp_path / "store", documents, 40, 1000)
    store = TokenStore.open(tmp_path / "store")
    handles = handles_open()
    assert len(store.metadata.shards) == 10_000
    sampler = load_sampler("segment_pairs")(
        store, TOKENIZER, np.arange(10_000), 32, 0.1, CounterRNG(1, "sampler")
    )
    assert store.tokens.open_shard.cache_info().currsize == 0
    indices = np.arange(64)
    sampler.sample(np.zeros_like(indices), indices)
    assert 64 <= store.tokens.open_shard.cache_info().currsize <= 256
    assert handles_open() <= handles
    indices = np.arange(len(sampler))
    sampler.sample(np.zeros_like(indices), indices)
    assert store.tokens.open_shard.cache_info().currsize == shards_module.OPEN
    assert handles_open() <= handles
