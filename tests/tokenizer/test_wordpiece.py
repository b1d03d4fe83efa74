"""WordPiece: equal to transformers' BertTokenizerFast, robust to damaged files, fast and exact."""

import json
import math
import pickle
import re
import shutil
import string
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from bertlab.errors import ConfigError, DataError, TokenizerError
from bertlab.tokenizer.files import SPECIAL_TOKENS, WordPieceTokenizer, load_tokenizer
from bertlab.tokenizer.kinds import train_tokenizer
from bertlab.tokenizer.words import WordIds
from tests.tokenizer.samples import train_wordpiece

ALPHABET = string.ascii_letters + string.digits + string.punctuation
FOREIGN = "éüñßøıςσжмируб東京日本語한국어हिन्दीعربيअά😀👍\u0301\u093f\u200d"
WORDS = ["the", "play", "un", "cat", "The", "Cat", "été", "##ing", "##ed", "##s", "##at", "##İ"]
VOCABULARY = list(
    dict.fromkeys(
        [*SPECIAL_TOKENS, *ALPHABET, *FOREIGN, *WORDS, *(f"##{c}" for c in ALPHABET + FOREIGN)]
    )
)
NASTY = [
    "",
    " ",
    "\n\t\r\n",
    'The cats played, un-playing!  (the) "cat\'s"',
    "tab\tnew\nreturn\rvt\x0bff\x0cnel\x85ls\u2028ps\u2029nbsp\xa0ideographic\u3000end",
    "fs\x1cgs\x1drs\x1eus\x1fdel\x7fnul\x00bell\x07esc\x1b[0m",
    "a\ufffdb \ufffd \ufeffbom zero\u200bwidth\u200cnon\u200djoiner word\u2060soft\xadhyphen",
    "cafe\u0301 café \u0301 e\u0301\u0323\u0302 İstanbul ıi ΣΊΣΥΦΟΣ ὈΔΥΣΣΕΎΣ straße STRASSE ﬁ",
    "東京タワーは日本語 \u20000\U0002a6a5 한국어 हिन्दी ภาษาไทย العربية עברית мир",
    "😀👍🏽👨\u200d👩\u200d👧 flags🇩🇪 a😀b",
    "x" * 10_000,
    "catcat" * 20,
    "é" * 101 + " " + "東" * 300,
    "[mask] [Mask] [ MASK ] [MASK",
    "unassigned\u0378 private\ue000 tag\U000e0041 surrogate-range \U0010ffff end",
    "## ##s ##ing # #",
    "«quotes» „low“ ‚x‘ … — – ‐ · ¿que? ؟ 。、！",
    "\u200f\u202aright\u202c \u061c mongolian\u180evowel ogham\u1680space \u2003em",
    "Ａｆｕｌｌ　ｗｉｄｔｈ ½ ² ① ℌ",
    "ǅ ŉ ΐ և ẞ K Å",
]
EVERYTHING = st.text(
    st.one_of(
        st.sampled_from(ALPHABET + FOREIGN + " \t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u2028\x00\x7f\ufffd"),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=60,
)


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def tokenizer(request):
    return WordPieceTokenizer.from_vocabulary(VOCABULARY, lowercase=request.param)


@pytest.fixture(scope="module")
def reference(tokenizer, tmp_path_factory):
    from transformers import BertTokenizerFast

    vocab = tmp_path_factory.mktemp("reference") / "vocab.txt"
    vocab.write_text("".join(f"{token}\n" for token in VOCABULARY), encoding="utf-8")
    return BertTokenizerFast(vocab=str(vocab), do_lower_case=tokenizer.lowercase)


def same_as_reference(tokenizer, reference, text):
    expected = reference(text, add_special_tokens=False, verbose=False)["input_ids"]
    assert tokenizer.encode(text) == expected


@pytest.mark.parametrize("text", [*NASTY, "a [MASK] b[SEP]c [PAD][UNK] [CLS]"])
def test_ids_equal_transformers(tokenizer, reference, text):
    same_as_reference(tokenizer, reference, text)


@given(text=EVERYTHING)
@settings(deadline=None, max_examples=300)
def test_ids_equal_transformers_on_any_text(tokenizer, reference, text):
    same_as_reference(tokenizer, reference, text)


def rows_of(tokenizer, texts):
    """The ids of each text, cut out of what lies end to end."""
    ids, lengths = tokenizer.encode_texts(texts)
    return [row.tolist() for row in np.split(ids, np.cumsum(lengths))[:-1]]


@pytest.mark.first_fast
@given(texts=st.lists(EVERYTHING, max_size=4))
@settings(deadline=None, max_examples=300)
def test_fast_path_is_exact_on_any_text(tokenizer, texts):
    texts = [text for text in texts if not any(token in text for token in SPECIAL_TOKENS)]
    assert rows_of(tokenizer, texts) == [tokenizer.encode(text) for text in texts]


def test_fast_path_is_exact_on_every_kind_of_character(tokenizer):
    ranges = [
        (0, 0x3100),
        (0xAA00, 0xAC00),
        (0xE000, 0xE040),
        (0xF900, 0x10000),
        (0x1F300, 0x1F700),
    ]
    # 64 at a time: adjacent, between letters, and between spaces.
    starts = [start for first, last in ranges for start in range(first, last, 64)]
    blocks = ["".join(map(chr, range(start, start + 64))) for start in starts]
    texts = [f"{block} {'a'.join(block)} {' '.join(block)}" for block in blocks]
    assert rows_of(tokenizer, texts) == [
        row.ids for row in backend_of(tokenizer).encode_batch(texts, add_special_tokens=False)
    ]


def backend_of(tokenizer):
    """A backend made independently, by the tokenizers library."""
    vocabulary = {token: number for number, token in enumerate(VOCABULARY)}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=tokenizer.lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return backend


def test_fast_path_stays_exact_when_its_memory_is_full(tokenizer, monkeypatch):
    monkeypatch.setattr("bertlab.tokenizer.words._MAX_CACHED_CHARACTERS", 40)
    small = pickle.loads(pickle.dumps(tokenizer))
    for _ in range(2):
        assert rows_of(small, NASTY[:-1]) == [tokenizer.encode(text) for text in NASTY[:-1]]
    assert len(small._word_ids) < 40


def test_special_tokens_in_a_corpus_are_plain_text(tokenizer):
    ids, _ = tokenizer.encode_texts(["a [MASK] b[SEP] [UNK]"])
    assert not tokenizer.special_mask[ids].any()
    assert tokenizer.encode("a [MASK]") == [tokenizer.token_id("a"), tokenizer.mask_id]


def test_encode_texts_lays_texts_end_to_end(tokenizer):
    ids, lengths = tokenizer.encode_texts(["the cats", "", " \x0b", "un-cat"])
    assert ids.dtype == np.uint16
    assert lengths.tolist() == [3, 0, 0, 3]
    assert tokenizer.decode(ids[:3]) == "the cats"
    empty_ids, empty_lengths = tokenizer.encode_texts([])
    assert len(empty_ids) == len(empty_lengths) == 0


def test_other_pretokenizers_take_the_slow_path_and_are_exact(tmp_path):
    state = json.loads(backend_of(WordPieceTokenizer.from_vocabulary(VOCABULARY)).to_str())
    state["pre_tokenizer"] = {"type": "WhitespaceSplit"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    tokenizer = load_tokenizer(tmp_path)
    assert rows_of(tokenizer, ["cat. cat", "the\x85cat"]) == [
        tokenizer.encode("cat. cat"),
        tokenizer.encode("the\x85cat"),
    ]
    assert tokenizer.encode("cat.")[1:] == [tokenizer.token_id("##.")]


@pytest.mark.slow
def test_many_ids_need_uint32():
    tokens = [*SPECIAL_TOKENS, *(f"w{number}" for number in range(65_532))]
    tokenizer = WordPieceTokenizer.from_vocabulary(tokens)
    ids, _ = tokenizer.encode_texts(["w65531"])
    assert (ids.dtype, ids.tolist()) == (np.uint32, [65_536])


def test_masks_and_ids(tokenizer):
    assert tokenizer.vocab_size == len(VOCABULARY)
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id) == (0, 1, 2)
    assert (tokenizer.sep_id, tokenizer.mask_id) == (3, 4)
    assert tokenizer.special_ids.tolist() == [0, 1, 2, 3, 4]
    assert tokenizer.special_ids.dtype == np.int64
    assert np.flatnonzero(tokenizer.special_mask).tolist() == [0, 1, 2, 3, 4]
    continuing = [token for token in VOCABULARY if token.startswith("##")]
    found = [tokenizer.token(number) for number in np.flatnonzero(tokenizer.continuation_mask)]
    assert found == continuing
    assert tokenizer.token_id("nowhere") == tokenizer.unk_id


def test_build_inputs(tokenizer, reference):
    a, b = tokenizer.encode("the cat"), tokenizer.encode("un")
    expected = reference("the cat", "un")
    assert tokenizer.build_inputs(a, b) == (expected["input_ids"], expected["token_type_ids"])
    assert tokenizer.build_inputs(a) == ([2, *a, 3], [0] * (len(a) + 2))


def test_pickles_small_and_equal(tokenizer):
    tokenizer.encode_texts(["words " * 100])
    data = pickle.dumps(tokenizer)
    copy = pickle.loads(data)
    assert copy.fingerprint == tokenizer.fingerprint
    assert copy.encode(NASTY[3]) == tokenizer.encode(NASTY[3])
    assert len(data) < 100 * tokenizer.vocab_size


@pytest.mark.parametrize("loader", ["AutoTokenizer", "BertTokenizerFast"])
def test_saved_folder_loads_in_transformers(tokenizer, tmp_path, loader, monkeypatch):
    import transformers

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    tokenizer.save(tmp_path)
    other = getattr(transformers, loader).from_pretrained(tmp_path)
    for text in NASTY:
        assert (
            other(text, verbose=False)["input_ids"]
            == tokenizer.build_inputs(tokenizer.encode(text))[0]
        )
    assert other.mask_token_id == tokenizer.mask_id
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]


def test_all_forms_of_one_tokenizer_have_one_fingerprint(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    vocab_only = tmp_path / "vocab_only"
    vocab_only.mkdir()
    for name in ("vocab.txt", "tokenizer_config.json"):
        (vocab_only / name).write_bytes((tmp_path / name).read_bytes())
    loaded = [
        load_tokenizer(tmp_path),
        load_tokenizer(tmp_path / "tokenizer.json"),
        load_tokenizer(vocab_only),
    ]
    assert {other.fingerprint for other in loaded} == {tokenizer.fingerprint}


def test_truncation_and_padding_presets_are_ignored(tokenizer, tmp_path):
    backend = Tokenizer.from_str(json.dumps(saved_state(tokenizer, tmp_path)))
    backend.enable_truncation(4)
    backend.enable_padding(length=16, pad_token="[PAD]")
    backend.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).encode("the cat " * 10) == tokenizer.encode("the cat " * 10)


def saved_state(tokenizer, folder):
    tokenizer.save(folder)
    return json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))


def test_settings_of_tokenizer_config_are_read(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    config = {"do_lower_case": True, "strip_accents": False, "tokenize_chinese_chars": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("ÉTÉ") == [tokenizer.token_id("été")]
    assert tokenizer.encode("東京") == [tokenizer.token_id("東"), tokenizer.token_id("##京")]


def test_a_file_that_is_named_has_the_settings_beside_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "vocab.txt").write_text(f"{GOOD}\nThe", encoding="utf-8")
    assert not load_tokenizer("~/vocab.txt").lowercase
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert load_tokenizer("~").lowercase
    assert load_tokenizer("~/vocab.txt").lowercase


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"word_tokenizer_type": "mecab"}, "word_tokenizer_type: found 'mecab', .* 'basic'"),
        ({"subword_tokenizer_type": "character"}, "found 'character', .* 'wordpiece'"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize: found False, .* True"),
    ],
)
def test_words_by_other_rules_than_berts_are_refused(tmp_path, config, message):
    (tmp_path / "vocab.txt").write_text(GOOD)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    for path in (tmp_path, tmp_path / "vocab.txt"):
        with pytest.raises(TokenizerError, match=rf"tokenizer_config\.json: .*{message}"):
            load_tokenizer(path)
    ours = {"word_tokenizer_type": "basic", "subword_tokenizer_type": "wordpiece"}
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(ours | {"do_basic_tokenize": True, next(iter(config)): None})
    )
    assert load_tokenizer(tmp_path).encode("the") == [5]


def test_case_is_guessed_from_the_vocabulary(tmp_path):
    file = tmp_path / "vocab.txt"
    cased = ("The", "Это", "Και", "##Ж", "Été")
    uncased = ("the", "это", "και", "[unused1]", "ℝ", "東京", "ß")  # ℝ has no lower case
    for extra in (*cased, *uncased):
        file.write_text("\n".join([*SPECIAL_TOKENS, extra, "[X]", ""]), encoding="utf-8")
        lowercase = extra in uncased
        assert load_tokenizer(file).lowercase is lowercase, extra


def test_windows_line_ends(tmp_path):
    file = tmp_path / "vocab.txt"
    file.write_bytes("\r\n".join([*SPECIAL_TOKENS, "the", ""]).encode())
    tokenizer = load_tokenizer(file)
    assert (tokenizer.vocab_size, tokenizer.encode("the")) == (6, [5])


GOOD = "\n".join([*SPECIAL_TOKENS, "the"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", "", "empty"),
        ("vocab.txt", "\n\n", "empty"),
        ("vocab.txt", "[PAD]\n[UNK]\nthe", r"no \[CLS\], \[SEP\], \[MASK\]; BERT needs"),
        ("vocab.txt", GOOD + "\ncat\nthe", "'the' stands in line 6 and again in line 8"),
        ("vocab.txt", GOOD.encode() + b"\n\xff", r"not UTF-8 at byte 35 \(0xff\)"),
        ("tokenizer.json", "{", "damaged JSON"),
        ("tokenizer.json", "[" * 100_000, "damaged JSON"),
        ("tokenizer.json", "[]", "expected a JSON object, found list"),
        ("tokenizer.json", "{}", "model.type: found None, expected"),
        ("tokenizer.json", '{"model": {"type": "WordPiece", "vocab": {}}}', "empty"),
        ("tokenizer.json", '{"model": {"vocab": {"a": "x"}}}', "'a' has the id 'x'"),
        ("tokenizer.json", '{"model": {"vocab": {"a": 0}}}', r"no \[PAD\], \[UNK\]"),
    ],
)
def test_damaged_files(tmp_path, name, content, message):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    for path in (file, tmp_path):
        with pytest.raises(TokenizerError, match=message) as caught:
            load_tokenizer(path)
        assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"vocab": {"[PAD]": 0}}}, r"no \[UNK\];"),
        ({"model": {"continuing_subword_prefix": ["##"], "vocab": {"[UNK]": 1}}}, "not usable"),
        ({"normalizer": {"type": "Nonsense"}}, "not usable"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AA"}}, "SentencePiece"),
        ({"pre_tokenizer": 3}, "not usable"),
        ({"added_tokens": [{"content": "x"}]}, "added_tokens"),
        ({"added_tokens": [{"content": "x", "id": math.inf}]}, "added_tokens: expected a list"),
        ({"added_tokens": [{"content": "[PAD]", "id": 3}]}, "id 3 in added_tokens and 0"),
        ({"added_tokens": [{"content": "new", "id": 10**6}]}, "gaps or repetitions"),
    ],
)
def test_damaged_parts_of_tokenizer_json(tmp_path, changes, message):
    state = saved_state(WordPieceTokenizer.from_vocabulary(GOOD.split("\n")), tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps(state | changes))
    with pytest.raises(TokenizerError, match=message) as caught:
        load_tokenizer(tmp_path)
    assert str(tmp_path / "tokenizer.json") in str(caught.value)


BERTS = processors.TemplateProcessing(
    single="[CLS] $A [SEP]",
    pair="[CLS] $A [SEP] $B:1 [SEP]:1",
    special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
)
OTHERS = {
    "A:0 [SEP]:0 A:0 [SEP]:0 B:1 [SEP]:1": processors.TemplateProcessing(
        single="$A [SEP]", pair="$A [SEP] $B:1 [SEP]:1", special_tokens=[("[SEP]", 3)]
    ),
    "[CLS]:0 A:0 [SEP]:0 [CLS]:0 A:0 [SEP]:0 B:0 [SEP]:0": processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    ),
    "{'type': 'BertProcessing', 'sep': ['[CLS]', 2]": processors.BertProcessing(
        ("[CLS]", 2), ("[SEP]", 3)
    ),
    "{'type': 'RobertaProcessing'": processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2)),
}


def with_layout(processor, folder):
    """A ``tokenizer.json`` of BERT's tokenizer, with another post-processor or with none."""
    tokenizer = WordPieceTokenizer.from_vocabulary(GOOD.split("\n"))
    backend = Tokenizer.from_str(json.dumps(saved_state(tokenizer, folder)))
    backend.post_processor = processor
    backend.save(str(folder / "tokenizer.json"))
    return backend, folder / "tokenizer.json"


def test_what_tokenizer_json_puts_around_texts_is_berts(tmp_path):
    backend, file = with_layout(BERTS, tmp_path)
    tokenizer = load_tokenizer(file)
    assert backend.encode("the", "the the").ids == [2, 5, 3, 5, 5, 3]
    unsaid = load_tokenizer(with_layout(None, tmp_path)[1])
    assert tokenizer.fingerprint == unsaid.fingerprint
    assert json.loads(tokenizer.to_json())["post_processor"]["cls"] == ["[CLS]", 2]


@pytest.mark.parametrize("found", OTHERS)
def test_other_special_tokens_around_texts_are_refused(tmp_path, found):
    _, file = with_layout(OTHERS[found], tmp_path)
    with pytest.raises(TokenizerError) as caught:
        load_tokenizer(file)
    assert f"{file}: post_processor: found {found}" in str(caught.value)
    assert str(caught.value).endswith("BERT's: [CLS]:0 A:0 [SEP]:0 [CLS]:0 A:0 [SEP]:0 B:1 [SEP]:1")


REPLACED = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
QUOTES = {"type": "Replace", "pattern": {"String": "``"}, "content": '"'}
LONGER = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}


@pytest.mark.parametrize(
    ("normalizers", "pre_tokenizer"),
    [
        ([QUOTES, REPLACED, {"type": "NFKD"}, {"type": "Lowercase"}], {"type": "Whitespace"}),
        ([{"type": "Prepend", "prepend": " "}, REPLACED], {"type": "BertPreTokenizer"}),
        ([LONGER], {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"}),
        ([], {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}),
        ([{"type": "BertNormalizer"}] * 3, {"type": "BertPreTokenizer"}),
    ],
)
def test_other_normalizers_are_read_as_tokenizers_reads_them(tmp_path, normalizers, pre_tokenizer):
    state = saved_state(WordPieceTokenizer.from_vocabulary(GOOD.split("\n")), tmp_path)
    whole = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    whole |= {"strip_accents": None, "lowercase": True}
    normalizers = [whole if each["type"] == "BertNormalizer" else each for each in normalizers]
    state |= {"normalizer": {"type": "Sequence", "normalizers": normalizers}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(state | {"pre_tokenizer": pre_tokenizer}))
    text = "``A  cat'' ran"
    expected = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode(text).ids[1:-1]
    assert load_tokenizer(tmp_path).encode(text) == expected


@pytest.mark.parametrize(
    "normalizers",
    [
        [LONGER] * 2,
        [{"type": "Replace", "pattern": {"Regex": "(?:)"}, "content": "ab"}] * 4,
        [{"type": "Prepend", "prepend": "a" * 64}],
        [LONGER | {"content": "\ufdfa\ufdfa"}],
        [{"type": "BertNormalizer"}] * 9,
        [{"type": "ByteLevel"}] * 7,
    ],
)
def test_what_makes_very_much_of_a_text_is_refused(tmp_path, normalizers):
    state = saved_state(WordPieceTokenizer.from_vocabulary(GOOD.split("\n")), tmp_path)
    state["normalizer"] = {"type": "Sequence", "normalizers": normalizers}
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    with pytest.raises(TokenizerError, match=r"tokenizer.json: normalizer, .* expected at most 64"):
        load_tokenizer(tmp_path)


def test_tokens_that_a_slow_tokenizer_keeps_beside_its_vocabulary(tmp_path):
    (tmp_path / "vocab.txt").write_text(GOOD)
    size = load_tokenizer(tmp_path).vocab_size
    (tmp_path / "added_tokens.json").write_text(
        json.dumps({"[MASK]": GOOD.split().index("[MASK]")})
    )
    assert load_tokenizer(tmp_path).vocab_size == size
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[NEW]": size}))
    with pytest.raises(TokenizerError, match=r"added_tokens.json: .* '\[NEW\]'.*save_pretrained"):
        load_tokenizer(tmp_path)


def test_tokens_that_tokenizer_config_adds_to_a_vocabulary(tmp_path):
    (tmp_path / "vocab.txt").write_text(GOOD)
    size, config = load_tokenizer(tmp_path).vocab_size, tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"added_tokens_decoder": {"0": {"content": "[MASK]"}}}))
    assert load_tokenizer(tmp_path).vocab_size == size
    added = {"0": {"content": "[MASK]"}, str(size): {"content": "<extra>", "special": False}}
    config.write_text(json.dumps({"added_tokens_decoder": added}))
    with pytest.raises(TokenizerError, match=r"tokenizer_config.json: holds 1 .* '<extra>'"):
        load_tokenizer(tmp_path)
    for damaged in ([7], {"7": "<extra>"}):
        config.write_text(json.dumps({"added_tokens_decoder": damaged}))
        with pytest.raises(TokenizerError, match=r"config.json: added_tokens_decoder: expected"):
            load_tokenizer(tmp_path)


def test_a_run_is_a_folder_with_a_tokenizer(tiny_run, tmp_path):
    of_run = load_tokenizer(tiny_run)
    assert of_run.fingerprint == load_tokenizer(tiny_run / "tokenizer").fingerprint
    shutil.copytree(tiny_run / "tokenizer", tmp_path / "tokenizer")
    own = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word"]
    (tmp_path / "vocab.txt").write_text("\n".join(own), "utf-8")
    assert load_tokenizer(tmp_path).vocab_size == len(own)  # its own, before one further down


def test_missing_files(tmp_path):
    with pytest.raises(TokenizerError, match=r"nothing.txt: no such file .* expected a vocab"):
        load_tokenizer(tmp_path / "nothing.txt")
    (tmp_path / "readme").touch()
    with pytest.raises(TokenizerError, match=r"no tokenizer.json and no vocab.txt .*\(readme\)"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocab.txt").write_text(GOOD)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": "no"}')
    with pytest.raises(TokenizerError, match=r"do_lower_case is 'no', expected true or false"):
        load_tokenizer(tmp_path)


TEXT = [
    f"the {adjective} {animal}s {verb}ed , and {adjective}er {animal}s were {verb}ing !"
    for adjective in ("quick", "slow", "green", "old")
    for animal in ("cat", "dog", "bird", "Été")
    for verb in ("play", "jump", "talk", "walk", "scream")
]


@pytest.mark.filterwarnings("ignore:the text gives only")
def test_training_gives_equal_ids_in_every_run():
    tokenizers = [train_wordpiece(iter(TEXT), 150) for _ in range(5)]
    assert len({tokenizer.fingerprint for tokenizer in tokenizers}) == 1
    assert [tokenizers[0].token(number) for number in range(5)] == list(SPECIAL_TOKENS)
    assert tokenizers[0].encode("the cats") != tokenizers[0].encode("the dogs")


@pytest.mark.parametrize("lowercase", [True, False])
def test_training_learns_what_the_tokenizers_trainer_learns(lowercase):
    vocab_size = 110
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, min_frequency=2, special_tokens=list(SPECIAL_TOKENS)
    )
    backend.train_from_iterator(TEXT, trainer)
    ours = train_wordpiece(TEXT, vocab_size, lowercase)
    alphabet = {token for token in backend.get_vocab() if len(token.removeprefix("##")) == 1}
    found = {ours.token(number) for number in range(ours.vocab_size)}
    # Ties are broken otherwise, so compare the letters and how well both compress.
    assert {token for token in found if len(token.removeprefix("##")) == 1} == alphabet
    assert ours.vocab_size == backend.get_vocab_size() == vocab_size
    ours_length = len(ours.encode_texts(TEXT)[0])
    assert ours_length == pytest.approx(sum(len(backend.encode(t).ids) for t in TEXT), rel=0.05)


@pytest.mark.filterwarnings("ignore:the text gives only")
def test_training_reads_words_as_bert_does():
    tokenizer = train_wordpiece(["ca\x0bt \x1cca\u200bt東 É\u0301"] * 5 + ["x" * 101] * 9, 32, True)
    found = {tokenizer.token(number) for number in range(tokenizer.vocab_size)}
    assert {"cat", "東", "e"} <= found
    assert "x" not in found


def test_training_refuses_what_cannot_work(capsys):
    with pytest.raises(TokenizerError, match="the text is empty"):
        train_wordpiece(["", " \n"], 100)
    with pytest.raises(ConfigError, match="vocab_size: found 5, expected 32 or more"):
        train_wordpiece(TEXT, 5)
    with pytest.raises(ConfigError, match="min_frequency: found 0, expected 1 or more"):
        train_wordpiece(TEXT, 100, min_frequency=0)
    kind = Mock(train=Mock(side_effect=KeyError))
    with pytest.raises(ConfigError, match="found 10000001, expected at most 10,000,000"):
        train_tokenizer(kind, TEXT, 10_000_001)
    with pytest.raises(KeyError):  # the kind is asked for the most that there may be
        train_tokenizer(kind, TEXT, 10_000_000)
    train_wordpiece(TEXT, 30_000)
    told = capsys.readouterr().err
    assert re.search(r"bertlab: warning: the text gives only \d+ of the 30,000 tokens", told)


def tokens_of(tokenizer):
    """All tokens in the order of their ids."""
    return [tokenizer.token(number) for number in range(tokenizer.vocab_size)]


@pytest.mark.slow
def test_characters_that_are_words_fill_the_vocabulary(capsys):
    """Chinese: each character is a word, so there is nothing to join and no ##form."""
    common = [chr(0x4E00 + number) for number in range(1200)]
    rare = [chr(0x6000 + number) for number in range(300)]
    text = ["".join(common) * 40, "".join(rare)]
    trained = train_wordpiece(text, 1600)
    assert trained.vocab_size == len(SPECIAL_TOKENS) + 1500
    assert trained.unk_id not in trained.encode_texts(text)[0]
    assert "only 1,505 of the 1,600 tokens" not in capsys.readouterr().err
    # too few places: the commonest have them
    small = train_wordpiece(text, 1205)
    assert set(tokens_of(small)) == {*SPECIAL_TOKENS, *common}
    # beside words of letters, both have their characters and the words their joins
    mixed = train_wordpiece([*text, "the theory of the thing " * 99], 1540)
    assert {"the", "theory", "thing", common[0], rare[299]} <= set(tokens_of(mixed))


@pytest.mark.parametrize("text", ["\ud800 a", "a cut emoji: \ud83d", "\udfff"])
def test_half_a_character_is_a_mistake_in_the_data(tokenizer, text):
    for encode in (tokenizer.encode, tokenizer.encode_with_offsets):
        with pytest.raises(DataError, match=r"found '.*\\ud.*, expected text of whole characters"):
            encode(text)


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [None, True, False])
def test_accents_are_stripped_as_in_transformers(tmp_path, lowercase, strip_accents):
    from transformers import BertTokenizerFast

    trained = train_wordpiece(TEXT, 300, lowercase, strip_accents=strip_accents)
    (tmp_path / "vocab.txt").write_text(
        "".join(f"{each}\n" for each in tokens_of(trained)), "utf-8"
    )
    peer = BertTokenizerFast(
        vocab=str(tmp_path / "vocab.txt"), do_lower_case=lowercase, strip_accents=strip_accents
    )
    trained.save(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    for text in NASTY:
        ids = peer(text, add_special_tokens=False, verbose=False)["input_ids"]
        assert trained.encode_texts([text])[0].tolist() == ids
        assert again.encode_texts([text])[0].tolist() == ids


@pytest.mark.parametrize(
    ("text", "word"),
    [("हिन्दी में पानी", "हिन्दी"), ("ハンダが パンダ", "ハンダが"), ("tiếng Việt nam", "tiếng")],
)
def test_words_that_lose_their_marks_are_named(capsys, text, word):
    train_wordpiece([f"{text} "] * 9, 100)
    assert f"of the words lose their marks ({word}" in capsys.readouterr().err
    train_wordpiece([f"{text} "] * 9, 100, strip_accents=False)
    assert "lose their marks" not in capsys.readouterr().err


def test_word_ids_is_a_plain_lookup_after_the_first_time(tokenizer):
    words = WordIds(Tokenizer.from_str(tokenizer._json), tokenizer.lowercase, np.uint16)
    assert words["Cat."] is words["Cat."]
