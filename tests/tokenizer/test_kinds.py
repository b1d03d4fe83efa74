"""Kinds of tokenizer: WordPiece, trained and kept; models that other packages read."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertlab.api.tokenizer import TokenizerKind
from bertlab.data.corpus.corpus import Corpus
from bertlab.data.corpus.prepare import tokenizer_cached
from bertlab.data.pretraining import PretrainingData
from bertlab.errors import ConfigError, PluginError, TokenizerError
from bertlab.plugins import index
from bertlab.plugins.index import make_plugin
from bertlab.tokenizer.files import load_tokenizer, tokenizer_from_json
from bertlab.tokenizer.kinds import WordPiece, train_tokenizer
from tests.plugins.core_alone import leave_the_core_alone
from tests.tokenizer.samples import TEXT, train_wordpiece


def test_no_text_and_vocabularies_out_of_range_are_refused() -> None:
    kind = WordPiece()
    with pytest.raises(TokenizerError, match="text is empty"):
        train_tokenizer(kind, ["", "\n"], 600)
    for size in (10, 2**62):  # tokenizers would panic at the second
        with pytest.raises(ConfigError, match="vocab_size"):
            train_tokenizer(kind, TEXT, size)


def test_the_cache_knows_kinds_and_settings(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(TEXT * 3))
    corpus = Corpus([str(text)], "document")
    kinds = [None, WordPiece(), WordPiece(3)]
    made = [tokenizer_cached(corpus, 600, True, tmp_path / "cache", kind) for kind in kinds]
    assert made[0].fingerprint == made[1].fingerprint
    folders = set((tmp_path / "cache" / "tokenizers").iterdir())
    assert len([each for each in folders if each.is_dir()]) == 2
    again = [tokenizer_cached(corpus, 600, True, tmp_path / "cache", kind) for kind in kinds]
    assert [each.fingerprint for each in again] == [each.fingerprint for each in made]


def test_a_given_tokenizer_and_a_kind_to_train_are_one_too_many(tmp_path: Path) -> None:
    train_wordpiece(TEXT, 300).save(tmp_path)
    data = PretrainingData(tokenizer=str(tmp_path), tokenizer_kind={"name": "wordpiece"})
    with pytest.raises(ConfigError, match=r"data.tokenizer_kind.*leave one of the two out"):
        data.load_tokenizer()


def _with_type(folder: Path, model_type: object) -> Path:
    train_wordpiece(TEXT, 300).save(folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["type"] = model_type
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


@pytest.fixture
def core_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    leave_the_core_alone(monkeypatch)
    yield
    monkeypatch.undo()
    index.forget_installed()


@pytest.mark.usefixtures("core_alone")
@pytest.mark.parametrize("model_type", ["BPE", "Unigram", "WordLevel"])
def test_a_model_of_a_missing_package_names_the_package(tmp_path: Path, model_type: str) -> None:
    folder = _with_type(tmp_path, model_type)
    words = (
        f"model.type: found '{model_type}', expected WordPiece; it comes with bertlab-modern: "
        "pip install bertlab-modern"
    )
    with pytest.raises(TokenizerError, match=re.escape(words)) as caught:
        load_tokenizer(folder)
    assert caught.value.code == "E304"
    text = (folder / "tokenizer.json").read_text()
    with pytest.raises(TokenizerError, match=re.escape(words)):
        tokenizer_from_json(text, "last.ckpt")


@pytest.mark.usefixtures("core_alone")
def test_the_core_alone_trains_and_reads_wordpiece(tmp_path: Path) -> None:
    trained = train_tokenizer(WordPiece(), TEXT, 300)
    trained.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint == trained.fingerprint
    with pytest.raises(PluginError, match=r"'bpe'.*pip install bertlab-modern"):
        make_plugin("tokenizer", {"name": "bpe"}, TokenizerKind)


@pytest.mark.parametrize("model_type", ["os.system", "WordPeace", ["BPE"], None, 3])
def test_a_file_names_no_code(tmp_path: Path, model_type: object) -> None:
    with pytest.raises(TokenizerError, match=r"model\.type: found"):
        load_tokenizer(_with_type(tmp_path, model_type))
