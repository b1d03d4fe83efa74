"""Checkpoints of TensorFlow 1: its own, those of a writer of the tests, and damaged ones."""

import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import BertForPreTraining

from bertlab.checkpoints.restore import read_pretrained
from bertlab.errors import CheckpointError, DamagedCheckpointError
from bertlab_interop import sstable
from bertlab_interop.sstable import DamagedTableError, crc32c, read_table, unpack_snappy
from bundle_writer import HEADER, block, crc, entry, field, packed, table, table_of, write_bundle
from tests.checkpoints.peers import SIZES, TOKENIZER, assert_bit_equal, peer
from tests.conftest import Command

TENSORFLOWS = Path(__file__).parent / "tensorflow_bert"
Arrays = dict[str, npt.NDArray[np.generic]]


def tensorflow_arrays(model: torch.nn.Module) -> Arrays:
    """The tensors of a transformers model as TensorFlow names and turns them."""
    found: Arrays = {"global_step": np.array(7)}
    for name, tensor in model.state_dict().items():
        if "position_ids" in name or "decoder" in name:
            continue
        parts = name.replace("layer.", "layer_").split(".")
        values = tensor.numpy()
        if parts[-2] == "LayerNorm":
            parts[-1] = {"weight": "gamma", "bias": "beta"}[parts[-1]]
        elif parts[-2].endswith("_embeddings"):
            parts.pop()
        elif parts[-2] == "seq_relationship":
            parts[-1] = {"weight": "output_weights", "bias": "output_bias"}[parts[-1]]
        elif name == "cls.predictions.bias":
            parts[-1] = "output_bias"
        elif parts[-1] == "weight":
            parts[-1], values = "kernel", values.T.copy()
        found["/".join(parts)] = values
        found["/".join(parts) + "/adam_v"] = values[:1]
    return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of one model: ``tf`` in TensorFlow's form, ``peer`` as transformers writes it."""
    place = tmp_path_factory.mktemp("written")
    model = peer(BertForPreTraining)
    model.save_pretrained(place / "peer")
    (place / "tf").mkdir()
    TOKENIZER.save(place / "vocabulary")
    for each in ("peer", "tf"):
        shutil.copy(place / "vocabulary" / "vocab.txt", place / each)
    write_bundle(place / "tf" / "bert_model.ckpt", tensorflow_arrays(model))
    content = SIZES | {"hidden_act": "gelu", "type_vocab_size": 2}
    (place / "tf" / "bert_config.json").write_text(json.dumps(content))
    return place


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """The checkpoint in TensorFlow's form, to be changed, beside ``peer``."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path / "tf"


def test_what_tensorflow_wrote_is_read() -> None:
    found = read_pretrained(str(TENSORFLOWS))
    assert found.unused == []
    assert found.tokenizer is not None
    assert found.tokenizer.vocab_size == found.vocab_size == 16
    state = found.encoder_state

    def written(number: int, *shape: int) -> torch.Tensor:
        values = ((31 * number + np.arange(np.prod(shape))) % 97 - 48) / 64
        return torch.from_numpy(values.reshape(shape).astype("float32"))

    assert torch.equal(state["token_embedding.weight"], written(0, 16, 8))
    assert torch.equal(state["position_embedding.weight"], written(1, 12, 8))
    assert torch.equal(state["embedding_norm.weight"], written(3, 8))
    # (inputs, outputs) there, (outputs, inputs) here
    qkv = torch.cat([written(number, 8, 8).T for number in (5, 7, 9)])
    assert torch.equal(state["layers.0.attention.qkv.weight"], qkv)
    assert torch.equal(state["layers.0.intermediate.weight"], written(15, 8, 16).T)
    assert torch.equal(state["layers.1.output.weight"], written(33, 16, 8).T)
    assert torch.equal(found.task_states["nsp"]["classifier.weight"], written(44, 2, 8))


@pytest.mark.slow
def test_it_is_the_model_that_transformers_writes(folder: Path) -> None:
    found, expected = read_pretrained(str(folder)), read_pretrained(str(folder.parent / "peer"))
    assert_bit_equal(found.state, expected.state)
    assert found.unused == expected.unused == []
    same = found.encoder_config.keys() & expected.encoder_config.keys()
    assert all(found.encoder_config[key] == expected.encoder_config[key] for key in same)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert_model.ckpt", "bert_model.ckpt.index"])
def test_it_may_be_named_as_berts_code_names_it(folder: Path, name: str) -> None:
    found = read_pretrained(str(folder / name))
    assert_bit_equal(found.state, read_pretrained(str(folder)).state)


@pytest.mark.slow
def test_commands_read_it(bertlab: Command, folder: Path, tmp_path: Path) -> None:
    code, printed, error = bertlab("predict", "--ckpt_path", folder, "--text", "w1 [MASK] w2")
    assert code == 0, error
    assert len(json.loads(printed)["fillers"]) == 1
    assert bertlab("export", folder, tmp_path / "out")[1].startswith(
        f"{tmp_path / 'out'}: BertForPreTraining"
    )


def test_several_checkpoints_and_missing_files_are_told(folder: Path) -> None:
    data = folder / "bert_model.ckpt.data-00000-of-00001"
    data.rename(folder / "kept")
    with pytest.raises(CheckpointError, match=r"data-00000-of-00001: no such file"):
        read_pretrained(str(folder))
    index = folder / "bert_model.ckpt.index"
    shutil.copy(index, folder / "model.ckpt-9.index")
    index.rename(folder / "model.ckpt-10.index")
    with pytest.raises(CheckpointError, match=r"found 2 TensorFlow checkpoints"):
        read_pretrained(str(folder))


@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00001"])
@pytest.mark.parametrize("seed", range(8))
def test_a_flipped_bit_or_a_lost_end_is_found(folder: Path, suffix: str, seed: int) -> None:
    path = folder / f"bert_model.ckpt{suffix}"
    content, draw = bytearray(path.read_bytes()), random.Random(seed)
    if seed % 2:
        del content[draw.randrange(len(content)) :]
    else:
        # not in the optimiser's tensors, which nobody reads
        place = 100 if suffix != ".index" else draw.randrange(len(content) - 48)
        content[place] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    with pytest.raises(DamagedCheckpointError, match=r"bert_model\.ckpt\.index"):
        read_pretrained(str(folder))


ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3)
LIES = {
    "a size that is not its shape's": entry(ARRAY, 0, shape=field(2, field(1, 2**20))),
    "a shape of terabytes": entry(ARRAY, 0, size=2**42, shape=field(2, field(1, 2**40))),
    "a negative dimension": entry(ARRAY, 0, shape=field(2, field(1, 2**64 - 1))),
    "a place beyond the end": entry(ARRAY, 2**40),
    "other numbers": entry(ARRAY + 1, 0),
    "a field without end": b"\x22\xff\x01",
    "a varint without end": b"\x08" + b"\xff" * 12,
    "slices": entry(ARRAY, 0) + field(7, b""),
}


@pytest.mark.parametrize("lie", LIES)
def test_entries_that_lie_are_refused(folder: Path, lie: str) -> None:
    arrays: Arrays = {"bert/embeddings/word_embeddings": ARRAY}
    changed = {b"bert/embeddings/word_embeddings": LIES[lie]}
    write_bundle(folder / "bert_model.ckpt", arrays, changed=changed)
    with pytest.raises(DamagedCheckpointError, match=r"not a whole TensorFlow checkpoint"):
        read_pretrained(str(folder))


@pytest.mark.parametrize(
    "header", [field(1, 2), field(1, 1) + field(2, 1), b""], ids=["shards", "big-endian", "none"]
)
def test_other_forms_are_refused(folder: Path, header: bytes) -> None:
    write_bundle(folder / "bert_model.ckpt", {"x": ARRAY}, changed={b"": header})
    with pytest.raises(DamagedCheckpointError, match=r"big-endian|files of data"):
        read_pretrained(str(folder))


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("a_block", [1, 7, 200])
def test_tables_come_back(kind: int, a_block: int) -> None:
    entries = {f"layer_{n}/kernel".encode(): bytes([n % 7]) * (n % 50) for n in range(90)}
    entries[b""] = HEADER
    assert read_table(table(entries, a_block, kind)) == entries


def test_sums_are_those_of_the_definition() -> None:
    assert crc32c(np.frombuffer(b"123456789", np.uint8)) == 0xE3069283  # RFC 3720, app. B.4
    data = np.random.default_rng(0).integers(0, 256, 3 * 4096 + 77, np.uint8)
    for size in (0, 1, 4096, 8192, 8193, len(data)):
        assert crc32c(data[:size]) == crc(data[:size].tobytes()), size


@pytest.mark.parametrize("data", [b"", b"a" * 100, bytes(range(200)), b"abcdefgh" * 9 + b"x"])
def test_snappy_comes_back(data: bytes) -> None:
    assert unpack_snappy(packed(data)) == data


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff\x0f",  # 4 GB to come
        b"\x10\x00",  # one byte of 16
        b"\x08\x01\x00",  # a copy from before the start
        b"\x02\x10abcde",  # more than was said
        b"\x40\x00a\xfe\x01\x00\xfe\x01\x00",  # a copy that goes beyond the end
        b"",
    ],
)
def test_damaged_snappy_is_refused(data: bytes) -> None:
    with pytest.raises(DamagedTableError):
        unpack_snappy(data)


@pytest.mark.slow
def test_long_keys_that_grow_from_a_few_bytes_are_refused() -> None:
    entries = {b"a" * n: b"" for n in range(1, 1500)}
    with pytest.raises(DamagedTableError, match="beyond its block"):
        read_table(table(entries, 2000))


def test_a_block_that_is_named_again_and_again_is_read_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    same = {b"k%03d" % n: block({}) for n in range(60)}
    assert read_table(table_of(same)) == {}
    monkeypatch.setattr(sstable, "_MOST_ENTRIES", 50)
    with pytest.raises(DamagedTableError, match="over 50 entries"):
        read_table(table_of(same))


def test_pipes_are_not_waited_for(folder: Path) -> None:
    data = folder / "bert_model.ckpt.data-00000-of-00001"
    data.unlink()
    os.mkfifo(data)
    with pytest.raises(CheckpointError, match="data-00000-of-00001: not a file"):
        read_pretrained(str(folder))
