"""Folders as ``transformers`` writes them for published kinds of tokenizers are read as they are.

Nothing is downloaded: each is built by the class of ``transformers`` from a vocabulary of our own,
with the normalizer, splitting and special tokens of the published one, and saved by it.
"""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import given, settings
from sentencepiece import SentencePieceTrainer, sentencepiece_model_pb2
from transformers import AlbertTokenizer, RobertaTokenizer, XLMRobertaTokenizer, XLNetTokenizer

from bertlab.api.tokenizer import Tokenizer
from bertlab.errors import TokenizerError
from bertlab.tokenizer.files import load_tokenizer
from subword_samples import as_transformers, tokenizer_called
from tests.tokenizer.samples import HOSTILE, TEXT

CLASSES = [
    *("albert", "albert-cased", "albert-older", "xlm-roberta", "xlm-roberta-older"),
    *("roberta", "roberta-prefix", "roberta-older", "modernbert"),
]


def pieces(special: list[str]) -> list[tuple[str, float]]:
    """Return the pieces of a Unigram of our own behind special tokens."""
    own = tokenizer_called("unigram-unknown")
    words = [own.token(number) for number in range(5, own.vocab_size)]
    scored = [(word, -2.0 - number / 50) for number, word in enumerate(words)]
    return [*((token, 0.0) for token in special), *scored]


def published(name: str, folder: Path) -> Any:
    """Return a tokenizer of ``transformers`` that has saved itself to a folder."""
    if name.startswith("albert"):
        marks = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
        cased = name.endswith("cased")
        made = AlbertTokenizer(
            pieces(marks),
            do_lower_case=not cased,
            keep_accents=cased,
            _spm_precompiled_charsmap=character_map(),
        )
    elif name == "xlnet":
        made = XLNetTokenizer(pieces(["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>"]))
    elif name == "xlm-roberta":
        vocabulary = pieces(["<s>", "<pad>", "</s>", "<unk>"])
        made = XLMRobertaTokenizer([*vocabulary, ("<mask>", 0.0)])
    elif name == "modernbert":  # its class is that of any tokenizer.json
        as_transformers(tokenizer_called("modernbert"), folder)
        made = transformers.AutoTokenizer.from_pretrained(str(folder))
    else:
        model = json.loads(tokenizer_called("roberta").to_json())["tokenizer"]["model"]
        merges = [tuple(each) for each in model["merges"]]
        made = RobertaTokenizer(model["vocab"], merges, add_prefix_space=name != "roberta")
    made.save_pretrained(folder)
    if name.endswith("older"):
        made_older(folder)
        made = transformers.PreTrainedTokenizerFast.from_pretrained(str(folder))
    return made


def character_map() -> bytes:
    """Return SentencePiece's own normalization of characters, as published models have it."""
    found = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=found,
        vocab_size=200,
        hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    model = sentencepiece_model_pb2.ModelProto.FromString(found.getvalue())
    return bytes(model.normalizer_spec.precompiled_charsmap)


def made_older(folder: Path) -> None:
    """Write a ``tokenizer.json`` as files of 2020 to 2022 have it."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    if "merges" in content["model"]:  # a text each, where newer files have two
        content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
        content["model"].pop("byte_fallback")
        content["model"].pop("ignore_merges")
    else:
        content["model"].pop("byte_fallback", None)
        spaces = {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True}
        split = [{"type": "WhitespaceSplit"}, spaces]
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": split}
        content["decoder"] = spaces
        runs = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
        before = content["normalizer"]
        before = [] if before is None else before.get("normalizers", [before])
        content["normalizer"] = {"type": "Sequence", "normalizers": [*before, runs]}
    path.write_text(json.dumps(content, ensure_ascii=False), "utf-8")


@pytest.fixture(scope="module", params=CLASSES)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, Any]:
    """Return ours, read from the folder, and theirs."""
    folder = tmp_path_factory.mktemp(request.param)
    theirs = published(request.param, folder)
    return load_tokenizer(folder), theirs


@pytest.mark.first_fast
@pytest.mark.first_slow
@settings(max_examples=50, deadline=None)
@given(text=HOSTILE, pair=HOSTILE)
def test_ids_are_those_of_the_class_that_wrote_it(
    both: tuple[Tokenizer, Any], text: str, pair: str
) -> None:
    ours, theirs = both
    assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
    assert ours.build_inputs(ours.encode(text))[0] == theirs(text)["input_ids"]
    pair = pair or "the"  # transformers takes an empty one for none
    expected = theirs(text, pair, return_token_type_ids=True)
    made = ours.build_inputs(ours.encode(text), ours.encode(pair))
    assert made == (expected["input_ids"], expected["token_type_ids"])


def test_roles_are_those_of_the_class_that_wrote_it(both: tuple[Tokenizer, Any]) -> None:
    ours, theirs = both
    roles = ("pad", "unk", "cls", "sep", "mask")
    found = [getattr(ours.special, role) for role in roles]
    assert found == [getattr(theirs, f"{role}_token") for role in roles]
    assert ours.vocab_size == len(theirs)
    assert ours.lowercase == (theirs("THE")["input_ids"] == theirs("the")["input_ids"])


def test_xlnet_ends_with_its_class_token_and_is_refused_by_name(tmp_path: Path) -> None:
    published("xlnet", tmp_path)
    with pytest.raises(TokenizerError, match="post_processor: found A <sep> <cls>"):
        load_tokenizer(tmp_path)
