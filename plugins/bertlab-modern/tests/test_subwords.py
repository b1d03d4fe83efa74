"""Byte-level BPE and Unigram: ids, offsets and words, beside ``transformers``' on hostile text."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertlab.objectives.masking import TokenClasses
from bertlab.tokenizer.files import load_tokenizer, tokenizer_from_json
from subword_samples import NAMES, as_transformers, tokenizer_called
from tests.tokenizer.samples import HOSTILE

_PEERS: dict[str, Any] = {}


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not _PEERS:
        for name in NAMES:
            folder = tmp_path_factory.mktemp(name)
            _PEERS[name] = as_transformers(tokenizer_called(name), folder)
    return _PEERS


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(text=HOSTILE, pair=HOSTILE)
def test_ids_are_those_of_transformers(
    name: str, peers: dict[str, Any], text: str, pair: str
) -> None:
    ours, theirs = tokenizer_called(name), peers[name]
    assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
    assert ours.build_inputs(ours.encode(text))[0] == theirs(text)["input_ids"]
    pair = pair or "the"  # transformers takes an empty one for none
    expected = theirs(text, pair, return_token_type_ids=True)
    made = ours.build_inputs(ours.encode(text), ours.encode(pair))
    assert made == (expected["input_ids"], expected["token_type_ids"])


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(text=HOSTILE)
def test_offsets_lie_in_the_text_and_ascend(name: str, text: str) -> None:
    tokenizer = tokenizer_called(name)
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    assert all(0 <= start <= end <= len(text) for start, end in offsets)
    assert [start for start, _ in offsets] == sorted(start for start, _ in offsets)


@pytest.mark.parametrize("name", NAMES[:-1])  # to the last one's, "▁" stands for "T" as well
def test_offsets_are_those_of_the_words_without_their_spaces(name: str) -> None:
    text = "  The masked  player, don't\tplay!"
    _, offsets = tokenizer_called(name).encode_with_offsets(text)
    pieces = [text[start:end] for start, end in offsets]
    assert "".join(pieces).replace(" ", "").replace("\t", "") == "Themaskedplayer,don'tplay!"
    assert all(piece.strip() == piece for piece in pieces if not piece.isspace())


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(text=HOSTILE)
def test_running_text_never_has_special_ids(name: str, text: str) -> None:
    tokenizer = tokenizer_called(name)
    ids, lengths = tokenizer.encode_texts([text, "the", text])
    special = set(tokenizer.special_ids.tolist()) - {tokenizer.unk_id}
    assert not special & set(ids.tolist())
    assert ids.dtype == tokenizer.dtype
    first, last = ids[: lengths[0]].tolist(), ids[lengths[0] + lengths[1] :].tolist()
    assert first == last
    assert lengths.sum() == len(ids)


@pytest.mark.parametrize("name", NAMES)
def test_a_sentence_of_running_text_is_read_as_behind_a_space(name: str) -> None:
    tokenizer = tokenizer_called(name)
    whole = tokenizer.encode_texts(["the playing the masked"])[0]
    parts = tokenizer.encode_texts(["the playing", "the masked"])[0]
    assert whole.tolist() == parts.tolist()
    if tokenizer.encode("a") == tokenizer.encode(" a"):
        assert whole.tolist() == tokenizer.encode("the playing the masked")


@pytest.mark.parametrize("name", NAMES)
def test_saved_and_pickled_tokenizers_are_equal(name: str, tmp_path: Path) -> None:
    tokenizer = tokenizer_called(name)
    tokenizer.save(tmp_path / "once")
    loaded = load_tokenizer(tmp_path / "once")
    loaded.save(tmp_path / "twice")
    for file in (tmp_path / "once").iterdir():
        assert file.read_bytes() == (tmp_path / "twice" / file.name).read_bytes()
    text = "The player's Café <s> [MASK] <mask>"
    for other in (
        loaded,
        tokenizer_from_json(tokenizer.to_json(), "checkpoint"),
        pickle.loads(pickle.dumps(tokenizer)),
    ):
        assert other.fingerprint == tokenizer.fingerprint
        assert other.special == tokenizer.special
        assert other.encode(text) == tokenizer.encode(text)
        assert (other.continuation_mask == tokenizer.continuation_mask).all()


def _words(name: str, text: str) -> list[str]:
    """Return the words of a text by the stored ids, as whole-word masking has them."""
    tokenizer = tokenizer_called(name)
    ids = tokenizer.encode_texts([text])[0]
    starts = np.flatnonzero(TokenClasses.of(tokenizer).word_starts(ids))
    words = [tokenizer.decode(part) for part in np.split(ids, starts)]
    return [word.strip() for word in words if word.strip()]


@pytest.mark.parametrize(
    "name", [each for each in NAMES if each not in ("unigram-unknown", "xlm-r")]
)
def test_words_are_whole(name: str) -> None:
    found = _words(name, "unmasked player: don't retrain (naïve) 15 東京は Привет!")
    uncased = tokenizer_called(name).lowercase
    words = {"retrain", ":", "(", ")", "15", "東", "京", "は", "!"}
    words |= {"naive", "привет"} if uncased else {"naïve", "Привет"}
    assert found[:2] == ["unmasked", "player"]
    assert words <= set(found)


def test_roles_are_read_from_the_config_beside_it(tmp_path: Path) -> None:
    tokenizer_called("bpe").save(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config |= {"mask_token": {"content": "the", "__type": "AddedToken"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    ids = content["model"]["vocab"]
    ids["the"] = ids.pop("Ġthe")
    content["model"]["merges"] = []
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    loaded = load_tokenizer(tmp_path)
    assert loaded.special.mask == "the"
    assert loaded.special_mask[loaded.mask_id]


def test_text_of_predictions_is_readable() -> None:
    for name in ("bpe", "unigram"):
        tokenizer = tokenizer_called(name)
        (the,) = tokenizer.encode("the")
        assert tokenizer.readable(the) == " the"
        assert tokenizer.readable(tokenizer.mask_id) == "[MASK]"


@settings(max_examples=40, deadline=None)
@given(text=st.text(max_size=20))
def test_cased_bytes_come_back(text: str) -> None:
    tokenizer = tokenizer_called("roberta")
    plain = text.replace("<", "").replace("[", "")
    assert tokenizer.decode(tokenizer.encode(plain)) == plain
