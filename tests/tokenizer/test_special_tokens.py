"""Special tokens that tasks ask for: trained, cached, kept in files, and refused where missing."""

import re
from pathlib import Path

import pytest
import transformers

from bertlab.api.tokenizer import TokenizerKind
from bertlab.cli.data import make_tokenizer
from bertlab.data.corpus.corpus import Corpus
from bertlab.data.pretraining import PretrainingData
from bertlab.errors import TokenizerError
from bertlab.tokenizer.files import load_tokenizer, tokenizer_from_json
from bertlab.tokenizer.kinds import WordPiece, train_tokenizer, with_special_tokens
from bertlab_modern.subword_kinds import ByteLevelBPE, Unigram
from tests.tokenizer.samples import TEXT

ASKED = ("[E1]", "[/E1]")


@pytest.mark.parametrize(
    ("kind", "size"), [(WordPiece(), 300), (ByteLevelBPE(), 300), (Unigram(), 330)]
)
def test_a_trained_tokenizer_has_them(kind: TokenizerKind, size: int, tmp_path: Path) -> None:
    # asked for twice, and one that is there by its role
    made = train_tokenizer(
        kind, TEXT, size, special_tokens=[*ASKED, "[E1]", kind.special_tokens.sep]
    )
    plain = train_tokenizer(kind, TEXT, size - len(ASKED))
    assert made.vocab_size == plain.vocab_size + len(ASKED)
    assert [made.token(n) for n in range(plain.vocab_size)] == [
        plain.token(n) for n in range(plain.vocab_size)
    ]
    ids = [made.token_id(each) for each in ASKED]
    assert ids == [plain.vocab_size, plain.vocab_size + 1]
    assert made.special_mask[ids].all()
    found = made.encode("the [E1]cat[/E1] sat")
    assert [each for each in found if each in ids] == ids
    assert ids[0] not in made.encode_texts(["the [E1] cat"])[0]  # of a corpus: plain text
    again = tokenizer_from_json(made.to_json(), "last.ckpt")
    made.save(tmp_path)
    assert made.fingerprint == again.fingerprint == load_tokenizer(tmp_path).fingerprint
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "the [E1]cat[/E1] sat"
    assert theirs(text)["input_ids"] == made.build_inputs(made.encode(text))[0]
    assert "E1" not in theirs.decode(theirs(text)["input_ids"], skip_special_tokens=True)


def test_a_run_trains_one_with_them_and_the_cache_tells_it_from_others(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(TEXT * 3))
    made = []
    for asked in ((), ASKED):
        data = PretrainingData(str(text), vocab_size=300, cache_dir=str(tmp_path / "cache"))
        data.special_tokens = asked
        made.append(data.load_tokenizer())
    made[1].require_special(ASKED, "marked")
    words = (
        r"lacks [E1] [/E1], special tokens that marked needs; `bertlab tokenizer --extend MODEL "
        "--special_tokens '[E1] [/E1]' --output FOLDER`"
    )
    with pytest.raises(TokenizerError, match=re.escape(words)):
        made[0].require_special(ASKED, "marked")
    assert with_special_tokens(made[1], ASKED).fingerprint == made[1].fingerprint
    make_tokenizer(Corpus([str(text)]), str(tmp_path / "new"), special_tokens=" ".join(ASKED))
    load_tokenizer(tmp_path / "new").require_special(ASKED, "marked")
