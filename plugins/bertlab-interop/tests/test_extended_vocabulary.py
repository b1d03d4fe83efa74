"""Vocabularies with further pieces: old text has equal states, and new pieces begin as means."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

import bertlab as package
from bertlab import load_tokenizer
from bertlab.api import ConfigError, SpecialTokens, Tokenizer, TokenizerError
from bertlab.checkpoints.pretrained_model import load
from bertlab.extend import build_encoder, tokenizer_from_json
from bertlab.tokenizer.kinds import WordPiece, tokenizer_of, train_tokenizer
from bertlab_interop.extend_vocabulary import extend_vocabulary
from bertlab_interop.new_pieces import Vocabulary, pieces_of_corpus, pieces_of_words
from bertlab_interop.piece_joins import Joining
from bertlab_modern.subword_kinds import ByteLevelBPE, Unigram
from tests.checkpoints.peers import export_huggingface
from tests.conftest import Command

OLD = ["the cat sat on the mat", "a dog ran over the road", "cardinal points of a radio map"] * 20
NEW = ["a cardiogram shows the cardiology of the cat"] * 5 + ["cardiograms and radiology"] * 3
WORDS = ["cardiogram", "cardiology", "xylophone"]
KINDS: dict[str, Any] = {
    "wordpiece": (WordPiece(), 80),
    "bpe": (ByteLevelBPE(), 300),
    "unigram": (Unigram(byte_fallback=False), 60),
    "unigram-bytes": (Unigram(), 330),
}


def trained(name: str) -> Tokenizer:
    """Return a tokenizer of a kind whose vocabulary has the alphabet."""
    kind, size = KINDS[name]
    return train_tokenizer(kind, [*OLD, "abcdefghijklmnopqrstuvwxyz " * 3], size)


def model_with(tokenizer: Tokenizer, folder: Path, rows: int = 0) -> Path:
    """Write a small model with a decoder; its embedding may have more rows than there are ids."""
    torch.manual_seed(1)
    roberta = tokenizer.layout.separators == 2
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    name = "bert" if not roberta else "modern"
    more = {"intermediate_size": 32, "max_position_embeddings": 40, "hidden_dropout_prob": 0.0}
    encoder = build_encoder({"name": name} | sizes | more, rows or tokenizer.vocab_size)
    count = encoder.vocab_size
    mlm = {
        "dense.weight": torch.randn(16, 16),
        "dense.bias": torch.randn(16),
        "layer_norm.weight": torch.ones(16),
        "layer_norm.bias": torch.zeros(16),
        "bias": torch.randn(count),
    }
    tasks = {"mlm": mlm}
    export_huggingface(encoder, tasks, tokenizer, folder)
    return folder


@pytest.mark.first_fast
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("by", ["words", "add"])
def test_old_text_has_equal_states_in_transformers(name: str, by: str, tmp_path: Path) -> None:
    old = model_with(trained(name), tmp_path / "old")
    given: dict[str, Any] = {"words": WORDS} if by == "words" else {"add": 4}
    report = extend_vocabulary(old, tmp_path / "new", corpus=NEW, **given)
    before, after = load_tokenizer(old), load_tokenizer(tmp_path / "new")
    assert report.before == before.vocab_size
    assert after.vocab_size == before.vocab_size + len(report.pieces)
    for number in range(before.vocab_size):
        assert after.token(number) == before.token(number)
    assert [after.token(report.before + n) for n in range(len(report.pieces))] == list(
        report.pieces
    )
    assert report.pieces_a_word is not None
    assert report.pieces_a_word[1] < report.pieces_a_word[0]
    text = "the dog sat on a mat over the road"
    assert before.encode(text) == after.encode(text)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "new")
    assert theirs(text)["input_ids"] == after.build_inputs(after.encode(text))[0]
    assert theirs(NEW[0])["input_ids"] == after.build_inputs(after.encode(NEW[0]))[0]
    states = []
    for folder in (old, tmp_path / "new"):
        model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
        with torch.no_grad():
            found = model(**theirs(text, return_tensors="pt"), output_hidden_states=True)
        states.append((found.hidden_states[-1], found.logits[..., : report.before]))
    assert torch.equal(states[0][0], states[1][0])
    torch.testing.assert_close(states[0][1], states[1][1], atol=0, rtol=0)


@pytest.mark.first_fast
@pytest.mark.parametrize("name", KINDS)
def test_words_become_one_piece_that_begins_as_the_mean(name: str, tmp_path: Path) -> None:
    old = model_with(trained(name), tmp_path / "old")
    extend_vocabulary(old, tmp_path / "new", words=WORDS)
    before, after = load(old), load(tmp_path / "new")
    table = after.encoder.token_embedding.weight.detach()
    bias = after.tasks["mlm"].state_dict()["bias"]
    for word in WORDS:
        (new,) = after.tokenizer.encode_texts([word])[0].tolist()
        ids = before.tokenizer.encode_texts([word])[0].astype(np.int64)
        assert new >= before.tokenizer.vocab_size
        expected = before.encoder.token_embedding.weight.detach()[ids].double().mean(0)
        torch.testing.assert_close(table[new].double(), expected)
        theirs = before.tasks["mlm"].state_dict()["bias"][ids].double().mean()
        torch.testing.assert_close(bias[new].double(), theirs)


def test_pieces_are_the_joins_that_are_used() -> None:
    # "ab" is made on the way to "abc" and stands alone nowhere
    joining = Joining({("a", "##b", "##c"): 3}, "##", least=2, keeps_all=False)
    while joining.step():
        pass
    assert joining.joins == [("##b", "##c"), ("a", "##bc")]
    assert [each for each in ("##bc", "abc") if joining.keeps(each)] == ["abc"]
    assert joining.kept == 1
    twice = Joining({("a", "a", "a"): 2}, "")
    while twice.step():
        pass
    assert twice.joins == [("a", "a"), ("aa", "a")]


def test_a_bpe_splits_words_as_its_joins_did() -> None:
    tokenizer = trained("bpe")
    vocabulary = Vocabulary(tokenizer)
    words = Counter(word for text in NEW for word in vocabulary.words(text))
    after = Vocabulary(vocabulary.with_pieces(pieces_of_corpus(vocabulary, words, 6, 2, "x")))
    joining = Joining(
        Counter({tuple(vocabulary.pieces(word)[0]): count for word, count in words.items()}), "", 2
    )
    while joining.kept < 6:
        assert joining.step(vocabulary.ids)
    assert sorted(tuple(after.pieces(word)[0]) for word in words) == sorted(
        map(tuple, joining._words)
    )


def test_padding_rows_are_taken_first(tmp_path: Path) -> None:
    tokenizer = trained("wordpiece")
    old = model_with(tokenizer, tmp_path / "old", rows=tokenizer.vocab_size + 2)
    extend_vocabulary(old, tmp_path / "two", words=WORDS[:2])
    assert load(tmp_path / "two").encoder.vocab_size == tokenizer.vocab_size + 2
    extend_vocabulary(old, tmp_path / "three", words=WORDS)
    assert load(tmp_path / "three").encoder.vocab_size == tokenizer.vocab_size + 3
    (new,) = load_tokenizer(tmp_path / "two").encode("cardiology")
    weight = load(tmp_path / "two").encoder.token_embedding.weight.detach()
    ids = tokenizer.encode("cardiology")
    torch.testing.assert_close(weight[new], weight[ids].mean(0))


def test_an_older_form_of_merges_stays_as_it_is() -> None:
    content = json.loads(trained("bpe").to_json())
    model = content["tokenizer"]["model"]
    model["merges"] = [" ".join(each) for each in model["merges"]]
    vocabulary = Vocabulary(tokenizer_from_json(json.dumps(content), "old"))
    after = vocabulary.with_pieces(pieces_of_words(vocabulary, ["cardiogram"], "x"))
    assert len(after.encode("cardiogram")) == 1


REFUSALS = {
    "the\ncardiology": r"1 of 2 are pieces already; leave them out: 'the'",
    "cardiology\ncardiology": r"1 of 2 stand there twice; each needs one line: 'cardiology'",
    "heart attack": r"1 of 1 are several words to this tokenizer, or none: 'heart attack'",
    "Cardiology": r"1 of 1 are changed by the tokenizer's normalizer; 'Cardiology' is read as "
    r"'cardiology': 'Cardiology'",
    "x" * 101: r"1 of 1 are longer than 100 characters: 'x{40}'",
    "\n\n": r"is empty, expected one word a line",
}


@pytest.mark.parametrize("text", REFUSALS)
def test_words_that_cannot_be_pieces_are_refused(
    text: str, tmp_path: Path, bertlab: Command
) -> None:
    old = model_with(trained("wordpiece"), tmp_path / "old")
    (tmp_path / "words").write_text(text)
    code, printed, error = bertlab(
        *("tokenizer", "--extend", old, "--output", tmp_path / "new", "--words", tmp_path / "words")
    )
    assert (code, printed) == (2, "")
    assert error.count("\n") == 1
    with pytest.raises(TokenizerError, match=REFUSALS[text]):
        extend_vocabulary(old, tmp_path / "new", words=tmp_path / "words")
    assert not (tmp_path / "new").exists()


def test_the_command_says_what_it_did(tmp_path: Path, bertlab: Command) -> None:
    old = model_with(trained("wordpiece"), tmp_path / "old")
    (tmp_path / "text").write_text("\n".join(NEW))
    given = ["--output", tmp_path / "new", "--corpus", tmp_path / "text"]
    code, printed, error = bertlab("tokenizer", "--extend", old, *given, "--add", 3)
    assert (code, error) == (0, "")
    assert printed.startswith(f"{tmp_path / 'new'}: 3 new pieces, 83 tokens; ")
    # a list needs no text, and is measured on one
    (tmp_path / "words").write_text("cardiogram\n")
    code, printed, _ = bertlab(
        *("extend-vocabulary", "--model", old, *given, "--words", tmp_path / "words"),
        *("--overwrite", "true"),
    )
    assert code == 0
    assert "1 new pieces, 81 tokens; " in printed
    many = bertlab("tokenizer", f"--extend={old}", *given, "--add", 1000, "--overwrite", "true")
    assert many[0] == 2
    assert "gives only" in many[2]
    assert "expected 1,000" in many[2]
    assert bertlab("tokenizer", "--extend", old, *given)[0] == 2
    assert bertlab("tokenizer", "--extend", old, "--output", tmp_path / "x", "--add", 3)[0] == 2


def test_numbers_and_types_are_checked(tmp_path: Path) -> None:
    old = model_with(trained("wordpiece"), tmp_path / "old")
    with pytest.raises(ConfigError, match="add: found 0"):
        extend_vocabulary(old, tmp_path / "new", corpus=NEW, add=0)
    with pytest.raises(TokenizerError, match="the text is empty"):
        extend_vocabulary(old, tmp_path / "new", corpus=[" "], add=1)
    words = {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3, "<mask>": 4, "the": 5}
    backend = Backend(models.WordLevel(words, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    special = SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>")
    with pytest.raises(TokenizerError, match="of type WordLevel has no pieces to join"):
        Vocabulary(tokenizer_of(backend, special, "words"))


@pytest.mark.slow
def test_a_run_starts_from_the_folder(tiny_run: Path, tiny_config: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    package.extend_vocabulary(tiny_run, new, words=["cardiogram"])  # type: ignore[attr-defined]
    run = package.fit(
        tiny_config,
        {
            "run_dir": str(tmp_path / "run"),
            "model.init_from": str(new),
            "data.tokenizer": str(new),
            "data.max_seq_length": 32,
        },
    )
    assert load(run.directory).tokenizer.vocab_size == load(tiny_run).tokenizer.vocab_size + 1


@pytest.mark.parametrize("token", ["\ue000", "\u200b"])
def test_a_special_token_that_the_normalizer_strips_begins_as_the_unknown_one(
    token: str, tmp_path: Path
) -> None:
    old = model_with(trained("wordpiece"), tmp_path / "old")
    extend_vocabulary(old, tmp_path / "new", special_tokens=[token])
    after = load(tmp_path / "new")
    new, unknown = after.tokenizer.token_id(token), after.tokenizer.unk_id
    table, bias = after.encoder.token_embedding.weight, after.tasks["mlm"].state_dict()["bias"]
    assert torch.equal(table[new], table[unknown])
    assert bias[new] == bias[unknown]


@pytest.mark.parametrize(
    ("tokens", "error", "message"),
    [
        ("[E1]", ConfigError, r"special_tokens: found '\[E1\]', expected a list, \['\[E1\]'\]"),
        (["[E1]", ""], TokenizerError, "special_tokens: found '', expected tokens with"),
        ([" "], TokenizerError, "special_tokens: found ' ', expected tokens with"),
    ],
)
def test_special_tokens_that_are_none(
    tokens: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        extend_vocabulary("nowhere", tmp_path / "new", special_tokens=tokens)


@pytest.mark.parametrize("form", [str, Path])
def test_a_corpus_may_be_named_by_its_file(form: type[str | Path], tmp_path: Path) -> None:
    old = model_with(trained("wordpiece"), tmp_path / "old")
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join(NEW) + "\n", "utf-8")
    by_file = extend_vocabulary(old, tmp_path / "a", corpus=form(file), words=["cardiogram"])
    by_texts = extend_vocabulary(old, tmp_path / "b", corpus=NEW, words=["cardiogram"])
    assert by_file.pieces_a_word == by_texts.pieces_a_word
