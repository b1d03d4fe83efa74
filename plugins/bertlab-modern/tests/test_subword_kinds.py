"""Byte-level BPE and Unigram: trained, kept, configured, and used by masking and heads."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertlab.api.examples import Example
from bertlab.config.merge import read_request
from bertlab.config.run_config import resolve_request
from bertlab.data.corpus.corpus import Corpus
from bertlab.data.corpus.prepare import tokenizer_cached
from bertlab.data.pretraining import PretrainingData
from bertlab.errors import BertlabError, ConfigError, TokenizerError
from bertlab.objectives.masked_lm import MaskedLM
from bertlab.tokenizer.files import load_tokenizer, tokenizer_from_json
from bertlab.tokenizer.kinds import WordPiece, train_tokenizer
from bertlab_modern.subword_kinds import ByteLevelBPE, Unigram
from bertlab_tasks.span_windows import answer_tokens, context_tokens
from bertlab_tasks.tagging import word_windows
from subword_samples import tokenizer_called
from tests.tokenizer.samples import TEXT

CHARACTER_MAP = {"type": "Precompiled", "precompiled_charsmap": "QUJD"}
ROBERTA = {"sep": ["[SEP]", 2], "cls": ["[CLS]", 1], "trim_offsets": True, "add_prefix_space": True}
KINDS = ("bpe", "bpe-no-prefix", "roberta", "unigram", "unigram-cased")


_TRAIN = """
from bertlab.tokenizer.kinds import train_tokenizer
from bertlab_modern.subword_kinds import ByteLevelBPE, Unigram
from tests.tokenizer.samples import TEXT
for kind in (ByteLevelBPE(), Unigram()):
    print(train_tokenizer(kind, TEXT * 8, 700).fingerprint)
"""


@pytest.mark.slow
def test_another_process_trains_the_same() -> None:
    here = [train_tokenizer(kind, TEXT * 8, 700) for kind in (ByteLevelBPE(), Unigram())]
    command = [sys.executable, "-c", _TRAIN]
    there = subprocess.run(command, capture_output=True, text=True, check=True)
    assert there.stdout.split() == [each.fingerprint for each in here]


@pytest.mark.parametrize("kind", [ByteLevelBPE(), Unigram()])
def test_no_text_and_vocabularies_out_of_range_are_refused(kind: Any) -> None:
    with pytest.raises(TokenizerError, match="text is empty"):
        train_tokenizer(kind, ["", "\n"], 600)
    for size in (10, 2**62):  # tokenizers would panic at the second
        with pytest.raises(ConfigError, match="vocab_size"):
            train_tokenizer(kind, TEXT, size)


@pytest.mark.parametrize(
    ("settings", "size", "message"),
    [
        ({"shrinking_factor": 1.5}, 300, "^shrinking_factor: found 1.5, expected 0.5 to 0.95$"),
        ({"max_piece_length": 0}, 300, "^max_piece_length: found 0, expected 1 to 512$"),
        ({}, 263, "^data.vocab_size: Unigram cannot be trained to 258 pieces: Vocabulary size is "),
    ],
)
def test_what_sentencepiece_cannot_do_is_told(
    settings: dict[str, Any], size: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        train_tokenizer(Unigram(**settings), TEXT, size)


@pytest.mark.slow
def test_the_cache_knows_kinds_and_settings(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(TEXT * 3))
    corpus = Corpus([str(text)], "document")
    kinds = [None, WordPiece(), WordPiece(3), ByteLevelBPE(), ByteLevelBPE(3), Unigram()]
    made = [tokenizer_cached(corpus, 600, True, tmp_path / "cache", kind) for kind in kinds]
    assert made[0].fingerprint == made[1].fingerprint
    assert len({each.fingerprint for each in made}) == 3
    folders = set((tmp_path / "cache" / "tokenizers").iterdir())
    assert len([each for each in folders if each.is_dir()]) == 5
    again = [tokenizer_cached(corpus, 600, True, tmp_path / "cache", kind) for kind in kinds]
    assert [each.fingerprint for each in again] == [each.fingerprint for each in made]


@pytest.mark.slow
def test_a_config_names_a_kind_and_its_settings(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("data: {tokenizer_kind: {name: bpe, min_frequency: 3}}\n")
    plain = resolve_request(read_request(["--config", str(config)]))
    assert plain["data"]["tokenizer_kind"] == {
        "name": "bpe",
        "min_frequency": 3,
        "add_prefix_space": True,
        "special_names": "bert",
    }
    plain = resolve_request(
        read_request(["--config", str(config), "--data.tokenizer_kind", "wordpiece"])
    )
    kind = {"name": "wordpiece", "min_frequency": 2, "strip_accents": None}
    assert plain["data"]["tokenizer_kind"] == kind
    mapping = "{name: unigram, byte_fallback: false}"
    plain = resolve_request(
        read_request(["--config", str(config), "--data.tokenizer_kind", mapping])
    )
    assert plain["data"]["tokenizer_kind"]["byte_fallback"] is False
    assert "tokenizer_kind" not in resolve_request(read_request([]))["data"]
    with pytest.raises(BertlabError, match="did you mean 'bpe'"):
        resolve_request(read_request(["--data.tokenizer_kind", "bpee"]))


def test_a_given_tokenizer_and_a_kind_to_train_are_one_too_many(tmp_path: Path) -> None:
    tokenizer_called("bpe").save(tmp_path)
    data = PretrainingData(tokenizer=str(tmp_path), tokenizer_kind={"name": "bpe"})
    with pytest.raises(ConfigError, match=r"data.tokenizer_kind.*leave one of the two out"):
        data.load_tokenizer()


def _without(tmp_path: Path, change: Any) -> Path:
    tokenizer_called("bpe").save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    change(content)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "tokenizer_config.json").unlink()
    return tmp_path


def test_mlm_needs_a_mask(tmp_path: Path) -> None:
    def rename(content: Any) -> None:
        content["model"]["vocab"]["[X]"] = content["model"]["vocab"].pop("[MASK]")
        for token in content["added_tokens"]:
            token["content"] = token["content"].replace("[MASK]", "[X]")

    tokenizer = load_tokenizer(_without(tmp_path, rename))
    assert (tokenizer.special.mask, tokenizer.mask_id) == (None, -1)
    with pytest.raises(TokenizerError, match=r"data.tokenizer: .*no mask token.*objectives.mlm"):
        PretrainingData().connect(tokenizer, {"mlm": MaskedLM()})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["model"].update(type="BPEE"), "model.type: found 'BPEE'.*did you mean 'BPE'"),
        (lambda c: c["model"]["vocab"].update(more=9000), "need the ids 0 to"),
        (lambda c: c["model"].update(vocab={}), "vocabulary is empty"),
        (lambda c: c["model"].update(unk_token="no?"), r"model.unk_token: found 'no\?'"),
        (lambda c: c.update(pre_tokenizer={"type": "Whitespace"}), "start a word"),
        (lambda c: c.update(pre_tokenizer={"type": "os.system"}), "not usable"),
        (lambda c: c.update(normalizer=CHARACTER_MAP), "precompiled_charsmap is damaged"),
        (lambda c: c["post_processor"].update(single=[]), "post_processor: found"),
        (lambda c: c["post_processor"].update(type=["x"]), "post_processor.type: found .*'x'"),
        (lambda c: c["post_processor"].update(type="Template"), "mean 'TemplateProcessing'"),
        # the backend would take it for RoBERTa's
        (lambda c: c.update(post_processor=ROBERTA), "post_processor.type: found none, expected"),
        (lambda c: c.update(post_processor="ByteLevel"), "post_processor: found 'ByteLevel'"),
        (
            lambda c: c.update(post_processor={"type": "Sequence", "processors": [ROBERTA]}),
            "post_processor.type: found none, expected",
        ),
        (lambda c: c.update(added_tokens=[{"id": 1}]), "added_tokens"),
        (lambda c: c["model"].update(unk_token=["a"]), r"model.unk_token: found \['a'\]"),
        # the backend would abort the process
        (lambda c: c["model"].update(continuing_subword_prefix="x"), "model.merges: found .*'x'"),
    ],
)
def test_damaged_files_are_refused_in_one_message(
    tmp_path: Path, change: Any, message: str
) -> None:
    with pytest.raises(TokenizerError, match=message) as caught:
        load_tokenizer(_without(tmp_path, change))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("given", [["[CLS]"], {"content": {}}, {"content": ["[CLS]"]}, 3])
def test_a_role_that_is_no_text_is_refused(tmp_path: Path, given: object) -> None:
    tokenizer_called("bpe").save(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"cls_token": given}))
    with pytest.raises(TokenizerError, match=r"cls_token of tokenizer_config\.json is "):
        load_tokenizer(tmp_path)


def test_a_checkpoint_holds_the_tokenizer() -> None:
    for name in KINDS:
        tokenizer = tokenizer_called(name)
        again = tokenizer_from_json(tokenizer.to_json(), "checkpoint")
        assert again.fingerprint == tokenizer.fingerprint
    with pytest.raises(TokenizerError, match="checkpoint: damaged tokenizer"):
        tokenizer_from_json("[]", "checkpoint")


@pytest.mark.parametrize("name", KINDS)
def test_tagging_predicts_at_the_first_token_of_each_word(name: str) -> None:
    tokenizer = tokenizer_called(name)
    words = ["The", "unmasked", "player,", "don't", "\u200d", "play"]
    (window,) = word_windows(words, tokenizer, 64)
    firsts = np.flatnonzero(window.word >= 0)
    assert window.word[firsts].tolist() == list(range(6))
    for place, word in zip(firsts[:3], words, strict=False):
        text = tokenizer.decode(window.input_ids[place:][:1]).strip()
        assert word.lower().startswith(text.lower())
    assert window.input_ids[0] == tokenizer.cls_id
    assert window.input_ids[-1] == tokenizer.sep_id


@pytest.mark.parametrize("name", KINDS)
def test_answers_are_found_and_read_back(name: str) -> None:
    context = "The  quick player’s Café in Zürich, \U0001f600 don't you think?"
    tokens = context_tokens(tokenizer_called(name), context)
    for answer in ("quick", "Café", "Zürich", "\U0001f600", "don't"):
        start = context.index(answer)
        span = answer_tokens(tokens, start, start + len(answer))
        assert span is not None
        assert context[tokens.char_start[span[0]] : tokens.char_end[span[1]]] == answer


def test_pairs_fit_whatever_joins_them() -> None:
    from bertlab.heads.sentences import SentencePair

    head = SentencePair()
    texts = [column.name for column in SentencePair.columns if column.kind == "text"]
    row = Example({name: "the player masks " * 30 for name in texts}, "row")
    for name in ("bpe", "roberta", "xlm-r"):
        (features,) = head.encode(row, tokenizer_called(name), 20)
        assert len(features.input_ids) == 20
