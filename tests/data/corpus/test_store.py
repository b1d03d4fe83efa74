"""The token store: what goes in comes out, and nothing half-written is taken for a store."""

import errno
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertlab.data.corpus.store import TokenStore
from bertlab.data.corpus.store_writer import TokenStoreWriter
from bertlab.errors import OutputError, TokenStoreError
from bertlab.tokenizer.files import SPECIAL_TOKENS, WordPieceTokenizer

TOKENIZER = WordPieceTokenizer.from_vocabulary([*SPECIAL_TOKENS, *"abcdefghijklmno"])
DOCUMENTS = [[[5, 6, 7], [8]], [[9, 9]], [[10], [11, 12], [13]]]


def write(path, documents=DOCUMENTS, tokenizer=TOKENIZER):
    with TokenStoreWriter(path, tokenizer, "corpus") as writer:
        for sentences in documents:
            writer.add_documents(
                np.concatenate([np.array(s, tokenizer.dtype) for s in sentences]),
                [len(sentence) for sentence in sentences],
                [len(sentences)],
            )
    return TokenStore.open(path)


def read(store):
    return [
        [
            store.tokens[store.sentence_offsets[s] : store.sentence_offsets[s + 1]].tolist()
            for s in range(store.document_offsets[d], store.document_offsets[d + 1])
        ]
        for d in range(len(store))
    ]


@given(
    documents=st.lists(
        st.lists(st.lists(st.integers(0, 19), min_size=1, max_size=5), min_size=1, max_size=4),
        max_size=6,
    )
)
@settings(deadline=None, max_examples=40)
def test_what_goes_in_comes_out(documents, tmp_path_factory):
    store = write(tmp_path_factory.mktemp("stores") / "store", documents)
    assert read(store) == documents
    tokens = [token for document in documents for sentence in document for token in sentence]
    assert store.token_counts.tolist() == np.bincount(tokens, minlength=20).tolist()
    for d, sentences in enumerate(documents):
        start, end = store.document_token_offsets[d : d + 2]
        assert store.tokens[start:end].tolist() == [t for sentence in sentences for t in sentence]


def test_batches_of_documents_equal_single_documents(tmp_path):
    write(tmp_path / "single")
    flat = [token for document in DOCUMENTS for sentence in document for token in sentence]
    with TokenStoreWriter(tmp_path / "batch", TOKENIZER, "corpus") as writer:
        writer.add_documents([], [], [])
        writer.add_documents(flat, [3, 1, 2, 1, 2, 1], [2, 1, 3])
    assert writer.single_sentence_documents == 1
    assert writer.document_lengths == {4: 2, 2: 1}
    for name in ("tokens", "sentence_offsets", "document_offsets", "token_counts"):
        files = [tmp_path / kind / f"{name}.npy" for kind in ("single", "batch")]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_form_on_disk(tmp_path):
    store = write(tmp_path / "store")
    tokens = np.load(tmp_path / "store" / "tokens.npy")
    assert (tokens.dtype, tokens.shape) == (np.uint16, (10,))
    assert np.load(tmp_path / "store" / "sentence_offsets.npy").tolist() == [0, 3, 4, 6, 7, 9, 10]
    assert np.load(tmp_path / "store" / "document_offsets.npy").tolist() == [0, 2, 3, 6]
    assert len(store) == store.metadata.documents == 3
    assert (store.metadata.sentences, store.metadata.tokens) == (6, 10)
    assert store.metadata.corpus_fingerprint == "corpus"
    assert store.tokenizer.fingerprint == TOKENIZER.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_arrays_are_memory_mapped_read_only_and_pickled_as_a_path(tmp_path):
    store = write(tmp_path / "store")
    assert isinstance(store.tokens.base, np.memmap)
    assert not store.tokens.flags.writeable
    data = pickle.dumps(store)
    assert len(data) < 500
    assert read(pickle.loads(data)) == DOCUMENTS


@pytest.mark.slow
def test_large_vocabularies_use_uint32(tmp_path):
    tokens = [*SPECIAL_TOKENS, *(f"w{number}" for number in range(65_532))]
    store = write(tmp_path / "s", [[[65_536]]], WordPieceTokenizer.from_vocabulary(tokens))
    assert (store.tokens.dtype, store.tokens.tolist()) == (np.uint32, [65_536])


def write_and_then(path, action):
    with TokenStoreWriter(path, TOKENIZER, "") as writer:
        writer.add_documents([5], [1], [1])
        action(writer)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_leaves_nothing_behind(tmp_path, error):
    def fail(writer):
        raise error

    with pytest.raises(error):
        write_and_then(tmp_path / "store", fail)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_clear_error(tmp_path):
    def fill_disk(writer):
        writer.add_documents([5] * 100_000, [100_000], [1])  # of 2 bytes each
        writer._columns["tokens"]._file.close()
        writer._columns["tokens"]._file = Path("/dev/full").open("wb")  # noqa: SIM115
        writer.add_documents([5] * 100_000, [100_000], [1])

    with pytest.raises(OutputError, match=r"full: 2 documents took 0\.2 MB .* MB are free"):
        write_and_then(tmp_path / "store", fill_disk)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_at_the_end_is_the_same(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OutputError, match="the disk is full"):
        write_and_then(tmp_path / "store", lambda _: monkeypatch.setattr("os.fsync", full))
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_not_overwritten(tmp_path):
    write(tmp_path / "store")
    with pytest.raises(OutputError, match="holds a token store already"):
        write(tmp_path / "store")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="holds something else already"):
        write(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert read(write(tmp_path / "empty")) == DOCUMENTS


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write the token store"):
        write(tmp_path / "file" / "store")


@pytest.mark.parametrize(
    ("tokens", "lengths", "sentences", "message"),
    [
        ([5, 6], [1], [1], "add up"),
        ([5, 6], [1, 1], [1], "add up"),
        ([5], [1, 0], [2], "no empty sentence"),
        ([5], [1], [1, 0], "no empty document"),
        ([20], [1], [1], "ids from 0 to 19"),
    ],
)
def test_wrong_lengths_are_refused(tmp_path, tokens, lengths, sentences, message):
    with (
        pytest.raises(ValueError, match=message),
        TokenStoreWriter(tmp_path / "store", TOKENIZER, "") as writer,
    ):
        writer.add_documents(tokens, lengths, sentences)


def edit(store, **changes):
    file = store / "store.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def cut(name):
    return lambda store: (store / name).write_bytes((store / name).read_bytes()[:-3])


def overwrite(name, position, value):
    def damage(store):
        array = np.load(store / f"{name}.npy")
        array[position] = value
        np.save(store / f"{name}.npy", array)
        edit(store, bytes={p.stem: p.stat().st_size for p in store.glob("*.npy")})

    return damage


DAMAGE = {
    "no store.json in it": lambda store: (store / "store.json").unlink(),
    "store.json cannot be read": cut("store.json"),
    "format version 99, this bertlab reads": lambda store: edit(store, format_version=99),
    "dtype of store.json is 'float64'": lambda store: edit(store, dtype="float64"),
    "documents of store.json is '3'": lambda store: edit(store, documents="3"),
    "tokens.npy has 145 bytes, expected 148": cut("tokens.npy"),
    "tokens.npy cannot be read": lambda store: (store / "tokens.npy").unlink(),
    "sentence_offsets.npy cannot be read": lambda store: (
        store / "sentence_offsets.npy"
    ).write_bytes(b"x" * (store / "sentence_offsets.npy").stat().st_size),
    "tokens.npy holds uint16 .10,., expected uint32": lambda store: edit(store, dtype="uint32"),
    "tokens.npy holds id 20 but the vocabulary ends at 19": overwrite("tokens", 3, 20),
    "sentence_offsets.npy goes from 0 to 9, expected": overwrite("sentence_offsets", -1, 9),
    "document_offsets.npy goes from 1": overwrite("document_offsets", 0, 1),
    "sentence_offsets.npy goes back from 0 on": overwrite("sentence_offsets", 1, 1 << 40),
    "document_offsets.npy goes back from 0 on": overwrite("document_offsets", 1, -3),
    "token_counts.npy does not add up": overwrite("token_counts", 0, 1),
    "tokenizer.json: damaged JSON": cut("tokenizer/tokenizer.json"),
    "its tokenizer/ is not the one": lambda store: edit(store, tokenizer_fingerprint="0"),
}


@pytest.mark.parametrize("message", DAMAGE)
def test_damaged_stores_are_refused(tmp_path, message):
    path = tmp_path / "store"
    write(path)
    DAMAGE[message](path)
    with pytest.raises(TokenStoreError, match=message) as caught:
        TokenStore.open(path)
    assert str(path) in str(caught.value)


def test_no_store_at_all(tmp_path):
    with pytest.raises(TokenStoreError, match=r"not a token store .no such folder.; make one with"):
        TokenStore.open(tmp_path / "nowhere")
