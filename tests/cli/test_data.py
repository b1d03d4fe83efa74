"""The options and the printed report of ``bertlab tokenizer`` and ``bertlab prepare``."""

import json
import shutil
from pathlib import Path

import pytest

from bertlab.data.corpus.store import TokenStore
from bertlab.data.loader import SamplingReport, report_pretraining
from tests.conftest import Command


@pytest.fixture
def tokenizer(bertlab: Command, corpus_file: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "tokenizer"
    options = ["--corpus", corpus_file, "--corpus_format", "sentences", "--vocab_size", 300]
    assert bertlab("tokenizer", *options, "--output", folder)[0] == 0
    return folder


def test_a_frequency_of_nought(bertlab: Command, corpus_file: Path, tmp_path: Path) -> None:
    options = ["--corpus", corpus_file, "--output", tmp_path / "out", "--min_frequency", 0]
    code, _, error = bertlab("tokenizer", *options)
    assert (code, error) == (
        2,
        "bertlab: error E101: min_frequency: found 0, expected 1 or more\n",
    )
    assert not (tmp_path / "out").exists()


def test_the_report_counts_what_sampling_leaves_out(
    bertlab: Command, corpus_file: Path, tokenizer: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(corpus_file.read_text("utf-8") + "\na.\nb.\n\nc.\nd.\n", "utf-8")
    options = ["--corpus", corpus, "--corpus_format", "sentences", "--tokenizer", tokenizer]
    code, out, _ = bertlab("prepare", *options, "--output", tmp_path / "store")
    assert code == 0
    row = next(line for line in out.splitlines() if "documents too short" in line)
    assert row.split()[-2] == "2"
    sampling = json.loads((tmp_path / "store" / "sampling.json").read_text("utf-8"))
    padded = sampling["sequences"] * 128  # tokens of a batch whose sequences are as long as can be
    assert sampling["mean_length"] * sampling["sequences"] == pytest.approx(
        padded * (1 - sampling["padding_avoided"])
    )


def test_a_corpus_without_pairs_is_prepared_all_the_same(
    bertlab: Command, tokenizer: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("a.\nb.\n\n" * 20, "utf-8")
    options = ["--corpus", corpus, "--corpus_format", "sentences", "--tokenizer", tokenizer]
    code, out, _ = bertlab("prepare", *options, "--output", tmp_path / "store")
    assert code == 0
    assert "not possible: segment_pairs" in out
    assert (tmp_path / "store" / "store.json").is_file()


def test_lengths_are_refused_before_the_work(
    bertlab: Command, corpus_file: Path, tokenizer: Path, tmp_path: Path
) -> None:
    options = ["--corpus", corpus_file, "--tokenizer", tokenizer, "--max_seq_length", 3]
    code, _, error = bertlab("prepare", *options, "--output", tmp_path / "store")
    assert code == 2
    assert "max_seq_length: found 3, expected 8 or more" in error
    assert not (tmp_path / "store").exists()


@pytest.mark.slow
def test_the_same_text_is_reported_on_again_and_another_refused(
    bertlab: Command, corpus_file: Path, tokenizer: Path, tmp_path: Path
) -> None:
    corpus, store = tmp_path / "corpus.txt", tmp_path / "store"
    corpus.write_bytes(corpus_file.read_bytes())
    options = ["--corpus", corpus, "--corpus_format", "sentences", "--tokenizer", tokenizer]
    command = ["prepare", *options, "--output", store]
    first = bertlab(*command)[1]
    (store / "sampling.json").unlink()  # as where it was killed before the report
    files = {path: path.stat().st_mtime_ns for path in store.iterdir()}
    code, out, error = bertlab(*command)
    assert code == 0, error
    assert out == f"{store}: holds this text already\n{first}"
    assert (store / "sampling.json").is_file()
    assert {path: path.stat().st_mtime_ns for path in files} == files
    corpus.write_text("Another text.\n\n" * 20, "utf-8")
    code, _, error = bertlab(*command)
    assert code == 2
    assert f"{store}: holds a token store already" in error


def test_a_store_that_vanishes_before_its_report(
    bertlab: Command,
    corpus_file: Path,
    tokenizer: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def report_and_vanish(store: TokenStore, max_seq_length: int) -> SamplingReport:
        report = report_pretraining(store, max_seq_length)
        shutil.rmtree(store.path)
        return report

    monkeypatch.setattr("bertlab.data.loader.report_pretraining", report_and_vanish)
    options = ["--corpus", corpus_file, "--corpus_format", "sentences", "--tokenizer", tokenizer]
    code, _, error = bertlab("prepare", *options, "--output", tmp_path / "store")
    assert code == 2
    assert error.endswith(f"bertlab: error E104: {tmp_path / 'store'}: is gone (its disk?)\n")
