"""Preparing: the same store for any number of workers, clear refusals, one process at a time."""

import json
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from bertlab.data.corpus import corpus as corpus_module
from bertlab.data.corpus.corpus import Corpus, read_documents
from bertlab.data.corpus.prepare import (
    default_cache_dir,
    open_prepared,
    prepare,
    prepare_cached,
    tokenizer_cached,
)
from bertlab.data.corpus.store import StoreReport, TokenStore, check_pairs, length_quantiles
from bertlab.data.pretraining import PretrainingData
from bertlab.errors import (
    BertlabError,
    ConfigError,
    CorpusError,
    OutputError,
    TokenStoreError,
    print_table,
)
from bertlab.tokenizer.files import SPECIAL_TOKENS, WordPieceTokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,"
TOKENIZER = WordPieceTokenizer.from_vocabulary(
    [*SPECIAL_TOKENS, "the", "cat", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
)
ARRAYS = ("tokens", "sentence_offsets", "document_offsets", "token_counts")


def corpus_of(tmp_path, text, name="corpus.txt"):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return Corpus([str(file)], format="sentences")


@pytest.fixture
def corpus(tmp_path):
    documents = [
        "".join(f"the cats of document {d} , sentence {s} .\n" for s in range(1 + d % 5))
        for d in range(60)
    ]
    documents[7] = "\u200b\n\x07\n"  # BERT deletes both: no token
    documents[8] = "the cat\n\u200b\nthe end\n"
    return corpus_of(tmp_path, "\n".join(documents))


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr("bertlab.data.corpus.prepare._BATCH_DOCUMENTS", 7)


def test_store_holds_the_sentences_of_the_corpus(corpus, tmp_path):
    store = prepare(corpus, TOKENIZER, tmp_path / "store")
    expected = [
        [ids for sentence in document.sentences if (ids := TOKENIZER.encode(sentence))]
        for document in read_documents(corpus)
    ]
    expected = [sentences for sentences in expected if sentences]
    found = [
        [
            store.tokens[store.sentence_offsets[s] : store.sentence_offsets[s + 1]].tolist()
            for s in range(store.document_offsets[d], store.document_offsets[d + 1])
        ]
        for d in range(len(store))
    ]
    assert found == expected
    assert len(store) == 59


@pytest.mark.slow
def test_store_does_not_depend_on_workers(corpus, tmp_path, small_batches):
    others = multiprocessing.active_children()  # of another test
    stores = [
        prepare(corpus, TOKENIZER, tmp_path / f"store{workers}", workers).path for workers in (1, 2)
    ]
    for name in (*(f"{array}.npy" for array in ARRAYS), "report.json", "store.json"):
        assert (stores[0] / name).read_bytes() == (stores[1] / name).read_bytes()
    assert not set(multiprocessing.active_children()) - set(others)


def test_report(corpus, tmp_path):
    store = prepare(corpus, TOKENIZER, tmp_path / "store")
    report = StoreReport.read(store.path)
    lengths = np.diff(store.document_token_offsets)
    assert (report.documents, report.documents_dropped) == (59, 1)
    assert report.sentences == store.metadata.sentences
    assert report.tokens == len(store.tokens) == lengths.sum()
    assert report.mean_sentence_length == pytest.approx(np.diff(store.sentence_offsets).mean())
    assert report.document_length_quantiles["50 %"] == np.quantile(
        lengths, 0.5, method="inverted_cdf"
    )
    assert report.document_length_quantiles["100 %"] == lengths.max()
    assert report.single_sentence_documents == (np.diff(store.document_offsets) == 1).sum()
    assert report.unk_share == 0
    assert report.vocabulary_used == np.count_nonzero(store.token_counts)
    text = "the cats of document 59"
    assert report.tokens_per_word > 1 < len(TOKENIZER.encode(text)) / len(text.split())
    # Blank lines between documents are not text of a document.
    size = Path(corpus.sources[0]).stat().st_size
    assert 0.9 * size < report.bytes_of_text <= size
    assert (
        json.loads((store.path / "report.json").read_text())["vocab_size"] == TOKENIZER.vocab_size
    )


def test_documents_that_are_repeated_are_counted_and_told(tmp_path, capsys):
    texts = [f"the cats of document {number % 40}\nthe dogs of it\n" for number in range(50)]
    path = tmp_path / "text.txt"
    path.write_text("\n".join([*texts, "the cats of document 7\n"]))  # not the whole of one
    store = prepare(Corpus([str(path)], "sentences"), TOKENIZER, tmp_path / "store")
    assert StoreReport.read(store.path).repeated_documents == 10
    assert "10 of 51 documents are the same as an earlier one" in capsys.readouterr().err
    path.write_text("\n".join(texts[:40]))
    store = prepare(Corpus([str(path)], "sentences"), TOKENIZER, tmp_path / "other")
    assert StoreReport.read(store.path).repeated_documents == 0
    assert not capsys.readouterr().err


def test_report_is_printed(corpus, tmp_path, capsys):
    store = prepare(corpus, TOKENIZER, tmp_path / "store")
    report = StoreReport.read(store.path)
    print_table("Data report", report.rows())
    text = capsys.readouterr().out
    for expected in ("Data report", "documents", "59", "share of [UNK]", "0.000%"):
        assert expected in text


def test_quantiles_equal_numpy():
    lengths = np.random.default_rng(0).integers(1, 50, 333)
    quantiles = length_quantiles(Counter(lengths.tolist()))
    for name, share in (("5 %", 0.05), ("25 %", 0.25), ("75 %", 0.75), ("95 %", 0.95)):
        assert quantiles[name] == np.quantile(lengths, share, method="inverted_cdf")
    assert length_quantiles(Counter()) == {}


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\u200b\n\n\x07\n", r"no document with text .2 were empty"),
        (
            "the cat .\nthe end .\n",
            "a single document; some are held out complete, .* blank lines",
        ),
        (
            "the \u6771 \u4eac\ncat\n\nthe \u6771\nthe \u6771 .\n",
            r"44.4% of the tokens are \[UNK\].* '\u6771', '\u4eac'.*bertlab tokenizer",
        ),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_unfit_corpora_are_refused_and_nothing_is_left(tmp_path, text, message, workers):
    corpus = corpus_of(tmp_path, text)
    with pytest.raises(CorpusError, match=f"corpus.txt: .*{message}"):
        prepare(corpus, TOKENIZER, tmp_path / "store", workers)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]


def test_documents_of_one_sentence_are_refused_where_pairs_are_made(tmp_path):
    store = prepare(corpus_of(tmp_path, "the cat .\n\n" * 30), TOKENIZER, tmp_path / "store")
    with pytest.raises(CorpusError, match=r"30 of 30 documents .* blank line follows"):
        check_pairs(StoreReport.read(store.path))


def test_rows_without_a_text_are_counted(tmp_path):
    texts = ["the cat . the end .", None, "", " ", "the end . the cat ."]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "a.ndjson").write_text(lines)
    corpus = Corpus([str(tmp_path / "a.ndjson")])
    report = StoreReport.read(prepare(corpus, TOKENIZER, tmp_path / "store").path)
    assert (report.documents, report.documents_dropped) == (2, 3)


def test_wrong_arguments(corpus, tmp_path):
    with pytest.raises(ConfigError, match="workers: found 0, expected 1 or more"):
        prepare(corpus, TOKENIZER, tmp_path / "store", workers=0)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "file").touch()
    with pytest.raises(OutputError, match="holds something else already"):
        prepare(corpus, TOKENIZER, tmp_path / "store")


@pytest.mark.slow
def test_an_error_of_the_corpus_ends_the_workers(corpus, tmp_path, small_batches, monkeypatch):
    def broken(_, with_empty):
        from bertlab.api.examples import RawDocument

        for _ in range(30):
            yield RawDocument("the cat\nthe end", True, "x")
        raise CorpusError("broken.txt: not UTF-8 at byte 7")

    monkeypatch.setattr("bertlab.data.corpus.prepare.read_raw_documents", broken)
    others = multiprocessing.active_children()  # of another test
    with pytest.raises(CorpusError, match="not UTF-8 at byte 7"):
        prepare(corpus, TOKENIZER, tmp_path / "store", 2)
    assert not set(multiprocessing.active_children()) - set(others)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]


@pytest.mark.slow
def test_a_killed_worker_is_an_error_and_no_hang(corpus, tmp_path, small_batches, monkeypatch):
    def endless(_, with_empty):
        from bertlab.api.examples import RawDocument

        while True:
            yield RawDocument("the cat\nthe end", True, "x")

    others = set(multiprocessing.active_children())  # of another test

    def kill_one():
        while not (workers := set(multiprocessing.active_children()) - others):
            time.sleep(0.01)
        time.sleep(0.5)
        os.kill(workers.pop().pid, signal.SIGKILL)

    monkeypatch.setattr("bertlab.data.corpus.prepare.read_raw_documents", endless)
    killer = threading.Thread(target=kill_one)
    killer.start()
    with pytest.raises(TokenStoreError, match=r"one of 2 processes .* died"):
        prepare(corpus, TOKENIZER, tmp_path / "store", 2)
    killer.join()
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]


def test_cache_is_keyed_by_content(corpus, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    first = prepare_cached(corpus, TOKENIZER, cache)
    monkeypatch.setattr("bertlab.data.corpus.prepare.read_raw_documents", None)  # not read again
    assert prepare_cached(corpus, TOKENIZER, cache).path == first.path
    monkeypatch.undo()
    other = WordPieceTokenizer.from_vocabulary(
        [TOKENIZER.token(number) for number in range(TOKENIZER.vocab_size)], lowercase=False
    )
    assert prepare_cached(corpus, other, cache).path != first.path
    with Path(corpus.sources[0]).open("a") as file:
        file.write("the cat again\n")
    changed = replace(corpus)
    assert prepare_cached(changed, TOKENIZER, cache).path != first.path


@pytest.mark.filterwarnings("ignore:the text gives only")
def test_the_corpus_is_hashed_once_for_tokenizer_and_store(corpus, tmp_path, monkeypatch):
    hashed = []
    digest = corpus_module._File.fingerprint
    monkeypatch.setattr(
        corpus_module._File, "fingerprint", lambda file: hashed.append(file) or digest(file)
    )
    tokenizer = tokenizer_cached(corpus, 120, True, tmp_path / "cache")
    prepare_cached(corpus, tokenizer, tmp_path / "cache")
    assert len(hashed) == 1


def cached_path(arguments):
    corpus, cache = arguments
    store = prepare_cached(corpus, TOKENIZER, cache)
    return str(store.path), (store.path / "store.json").stat().st_ino, len(store)


@pytest.mark.nightly
def test_of_several_processes_one_prepares_and_the_others_wait(corpus, tmp_path):
    with ProcessPoolExecutor(3, get_context("spawn")) as pool:
        results = set(pool.map(cached_path, [(corpus, tmp_path / "cache")] * 3))
    assert len(results) == 1
    assert {path.suffix for path in (tmp_path / "cache" / "stores").iterdir()} <= {"", ".lock"}


def test_threads_wait_too_and_leftovers_are_removed(corpus, tmp_path):
    cache = tmp_path / "cache"
    key = prepare_cached(corpus, TOKENIZER, cache).path
    fresh = tmp_path / "fresh" / "stores"
    leftover = fresh / f".{key.name}.1.abc.partial"
    leftover.mkdir(parents=True)
    with ThreadPoolExecutor(3) as pool:
        results = set(pool.map(cached_path, [(corpus, fresh.parent)] * 3))
    assert len(results) == 1
    assert not leftover.exists()


def test_a_failed_preparation_leaves_the_cache_clean(tmp_path):
    corpus = corpus_of(tmp_path, "the cat\nthe end\n")
    for _ in range(2):
        with pytest.raises(CorpusError, match="single document"):
            prepare_cached(corpus, TOKENIZER, tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache" / "stores").iterdir() if path.is_dir()]


def test_a_cache_that_cannot_be_written(corpus, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BertlabError, match=r"cannot write the cache.*BERTLAB_CACHE"):
        prepare_cached(corpus, TOKENIZER, tmp_path / "file")


@pytest.mark.filterwarnings("ignore:the text gives only")
def test_tokenizer_is_trained_once(corpus, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    first = tokenizer_cached(corpus, 120, True, cache)
    assert first.lowercase
    monkeypatch.setattr("bertlab.data.corpus.prepare.train_tokenizer", None)
    assert tokenizer_cached(corpus, 120, True, cache).fingerprint == first.fingerprint
    monkeypatch.undo()
    assert not tokenizer_cached(corpus, 120, False, cache).lowercase
    store = prepare_cached(corpus, first, cache)
    assert TokenStore.open(store.path).tokenizer.fingerprint == first.fingerprint


def test_places_below_the_home_folder(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    prepare(corpus, TOKENIZER, tmp_path / "store")
    opened = open_prepared(Corpus(["~/store"]))
    assert opened is not None
    assert opened.path == tmp_path / "store"
    with pytest.raises(ConfigError, match="is the output of bertlab prepare, which stands alone"):
        open_prepared(Corpus(["~/store", *corpus.sources]))
    assert PretrainingData(cache_dir="~/cache").cache_dir == tmp_path / "cache"


def test_default_cache_dir(monkeypatch, tmp_path):
    monkeypatch.setenv("BERTLAB_CACHE", str(tmp_path))
    assert default_cache_dir() == tmp_path
    monkeypatch.delenv("BERTLAB_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / ".cache" / "bertlab"


def test_a_report_of_another_version_is_read(tmp_path: Path):
    written = StoreReport(1, 0, 0, 2, 9, 4.5, {"5 %": 9}, 40, 0.2, 1.1, 0.0, 100, 9)
    fields = asdict(written)
    (tmp_path / "report.json").write_text(json.dumps(fields | {"figure_of_tomorrow": 1}))
    assert StoreReport.read(tmp_path) == written
    del fields["words"]  # of an older bertlab
    (tmp_path / "report.json").write_text(json.dumps(fields))
    assert StoreReport.read(tmp_path) == written


@pytest.mark.parametrize("text", ["{", "[1]", "{}", '{"documents": 1}'])
def test_a_damaged_report_names_its_file(tmp_path: Path, text: str):
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(CorpusError, match=r"report.json: found no data report"):
        StoreReport.read(tmp_path)
