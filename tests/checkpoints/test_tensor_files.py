"""Files of tensors, whole, damaged and hostile."""

import json
import pickle
import random
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from bertlab.checkpoints import tensor_files
from bertlab.checkpoints.tensor_files import check_tensors, load_torch_file, read_tensors
from bertlab.errors import CheckpointError
from tests.reliability.bombs import LEGACY_START, hash_pickles

TENSORS = {
    "a.weight": torch.arange(6, dtype=torch.float32).view(2, 3),
    "half": torch.ones(5, dtype=torch.bfloat16),
    "ids": torch.arange(4)[None],
}


class Intruder:
    """Creates a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.target,)


def refused(path: Path, *words: str) -> None:
    """The file is refused in one line that names it and says why."""
    with pytest.raises(CheckpointError) as error:
        read_tensors(path)
    message = str(error.value)
    assert "\n" not in message
    for word in (path.name, *words):
        assert word in message


def assert_tensors(found: dict[str, torch.Tensor]) -> None:
    assert list(found) == list(TENSORS) or set(found) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_reads_safetensors(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "model.safetensors")
    assert_tensors(read_tensors(tmp_path / "model.safetensors"))


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt"])
def test_reads_pytorch_files_of_both_formats(tmp_path: Path, name: str, zipped: bool) -> None:
    path = tmp_path / name
    torch.save(TENSORS, path, _use_new_zipfile_serialization=zipped)
    assert_tensors(read_tensors(path))


def test_reads_the_state_dict_of_a_lightning_checkpoint(tmp_path: Path) -> None:
    torch.save({"epoch": 3, "state_dict": TENSORS}, tmp_path / "last.ckpt")
    assert_tensors(read_tensors(tmp_path / "last.ckpt"))


def write_shards(folder: Path, suffix: str, index_name: str) -> Path:
    weight_map = {}
    for number, (name, tensor) in enumerate(TENSORS.items()):
        shard = f"part-{number}{suffix}"
        (save_file if suffix == ".safetensors" else torch.save)({name: tensor}, folder / shard)
        weight_map[name] = shard
    index = folder / index_name
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return index


@pytest.mark.parametrize(
    ("suffix", "index"),
    [
        (".safetensors", "model.safetensors.index.json"),
        (".bin", "pytorch_model.bin.index.json"),
    ],
)
def test_reads_sharded_checkpoints(tmp_path: Path, suffix: str, index: str) -> None:
    assert_tensors(read_tensors(write_shards(tmp_path, suffix, index)))


@pytest.mark.parametrize(
    "name", ["../secret.bin", "/etc/passwd", "..", "", "a/b.bin", "..\\x.bin", "C:x.bin"]
)
def test_an_index_cannot_name_a_file_outside_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "model").mkdir()
    torch.save(TENSORS, tmp_path / "secret.bin")
    index = tmp_path / "model" / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name}}))
    refused(index, "same folder")


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": {"a": 1}}'],
)
def test_a_damaged_index_is_refused(tmp_path: Path, content: str) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(content)
    refused(index)


def test_an_index_cannot_name_itself(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": index.name}}))
    refused(index, "plain name")


def test_a_missing_shard_and_a_missing_tensor_are_named(tmp_path: Path) -> None:
    index = write_shards(tmp_path, ".bin", "pytorch_model.bin.index.json")
    content = json.loads(index.read_text())
    content["weight_map"]["absent"] = "part-0.bin"
    index.write_text(json.dumps(content))
    refused(index, "absent", "part-0.bin")
    (tmp_path / "part-1.bin").unlink()
    with pytest.raises(CheckpointError, match=r"part-1\.bin: no such file"):
        read_tensors(index)


@pytest.mark.parametrize("form", ["zip", "legacy", "pickle"])
def test_pickled_code_is_refused_and_never_runs(tmp_path: Path, form: str) -> None:
    intruded = tmp_path / "intruded"
    path = tmp_path / "pytorch_model.bin"
    content = {"a": torch.ones(2), "b": Intruder(intruded)}
    if form == "pickle":
        path.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    refused(path, "not run" if form != "pickle" else "refused")
    assert not intruded.exists()
    if form != "pickle":  # the file is the danger that it is meant to be
        torch.load(path, weights_only=False)
        assert intruded.exists()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=[pytest.mark.nightly] * (each == "sets"))  # seconds to make
        for each in sorted(hash_pickles(random.Random(0)))
    ],
)
@pytest.mark.parametrize("form", ["zip", "legacy"])
def test_values_in_each_other_are_neither_hashed_nor_copied(
    tmp_path: Path, name: str, form: str
) -> None:
    path = tmp_path / "pytorch_model.bin"
    pickled = hash_pickles(random.Random(0))[name]
    if form == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", pickled)
            archive.writestr("archive/version", "3\n")
    else:
        path.write_bytes(LEGACY_START + pickled)
    is_called = name in ("function", "class", "frozen set", "numbers")
    refused(path, "holds pickled code or objects" if is_called else "in each other")


def test_plain_values_of_every_kind_are_read(tmp_path: Path) -> None:
    betas, tied = (0.9, 0.999), torch.ones(2)
    content = {
        "set": {1, 2, (3, 4)},
        "counter": Counter("aab"),
        (1, 2): [b"bytes" * 99, 1j, torch.Size([2, 3]), torch.device("cpu"), torch.float16],
        "groups": [{"betas": betas, "params": [n]} for n in range(99)],
        "tied": [tied] * 99 + [nn.Parameter(tied), torch.ones(3, 3).t()],
        "module": nn.Linear(2, 2).state_dict(),
    }
    for zipped in (True, False):
        torch.save(content, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
        assert str(load_torch_file(tmp_path / "a.pt")) == str(content)


@pytest.mark.parametrize(
    "content",
    [
        [torch.ones(2)],
        {},
        {"a": 1.0},
        {1: torch.ones(2)},
        {"model": {"a": torch.ones(2)}},
        {"a": torch.eye(3).to_sparse()},
        {"a": torch.ones(2, device="meta")},
        {"a": torch.zeros(1).expand(10**12)},
    ],
    ids=["list", "empty", "number", "key", "nested", "sparse", "meta", "terabytes"],
)
def test_anything_but_dense_tensors_by_name_is_refused(tmp_path: Path, content: object) -> None:
    path = tmp_path / "model.pt"
    torch.save(content, path)
    refused(path)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1234\n", "git lfs"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "web page"),
        (b"\n<html>", "web page"),
        (b"not tensors at all", "copy or download"),
    ],
)
def test_stand_ins_for_a_file_are_recognized(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    refused(tmp_path / name, reason)


def test_a_missing_file_a_folder_and_a_foreign_suffix_are_refused(tmp_path: Path) -> None:
    refused(tmp_path / "model.safetensors", "no such file")
    (tmp_path / "folder.bin").mkdir()
    refused(tmp_path / "folder.bin", "directory")
    (tmp_path / "model.h5").write_bytes(b"x")
    refused(tmp_path / "model.h5", "safetensors")


@settings(deadline=None, max_examples=60)
@given(data=st.data(), form=st.sampled_from(["safetensors", "zip", "legacy"]))
def test_damaged_files_end_in_a_checkpoint_error_or_in_tensors(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, form: str
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    path = folder / ("model.safetensors" if form == "safetensors" else "model.bin")
    if form == "safetensors":
        save_file(TENSORS, path)
    else:
        torch.save(TENSORS, path, _use_new_zipfile_serialization=form == "zip")
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[place] ^= data.draw(st.integers(0, 255))
    path.write_bytes(bytes(damaged[:cut]))
    try:
        found = read_tensors(path)
    except CheckpointError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert all(isinstance(tensor, torch.Tensor) for tensor in found.values())


@pytest.mark.parametrize("form", ["safetensors", "zip", "legacy"])
def test_every_truncation_is_refused(tmp_path: Path, form: str) -> None:
    path = tmp_path / ("model.safetensors" if form == "safetensors" else "model.bin")
    if form == "safetensors":
        save_file(TENSORS, path)
    else:
        torch.save(TENSORS, path, _use_new_zipfile_serialization=form == "zip")
    whole = path.read_bytes()
    for length in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:length])
        refused(path)


def test_an_archive_that_says_it_is_encrypted_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    torch.save({"a": torch.arange(3.0)}, path)
    content = bytearray(path.read_bytes())
    content[content.find(b"PK\x03\x04") + 6] |= 1
    content[content.find(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="encrypted"):
        read_tensors(path)


def test_a_flipped_bit_that_makes_a_record_a_packed_one(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    torch.save({"a": torch.arange(6.0)}, path)
    content = bytearray(path.read_bytes())
    # in the list at the end of the file, how a record is packed is told 36 bytes before its name
    place = content.rindex(b"a/data/0") - 36
    assert content[place] == zipfile.ZIP_STORED
    content[place] = zipfile.ZIP_DEFLATED
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="not a whole checkpoint"):
        read_tensors(path)


@pytest.mark.first_fast
@pytest.mark.parametrize("kind", [tuple, list])
def test_few_values_that_stand_for_very_many_are_refused(
    kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tensor_files._MOST_VALUES == 10_000_000  # which takes seconds to count
    monkeypatch.setattr(tensor_files, "_MOST_VALUES", 100_000)
    content: Any = kind(["a", "b"])
    for _ in range(60):  # 2 ** 60, which whoever copies them would wait for
        content = kind([content, content])
    with pytest.raises(CheckpointError, match="stands for over 100,000 values"):
        check_tensors(tmp_path / "last.ckpt", {"optimizer_states": [{"x": content}]})
    holding_itself: list[Any] = []
    holding_itself += [holding_itself] * 1000
    with pytest.raises(CheckpointError, match="stands for over 100,000 values"):
        check_tensors(tmp_path / "last.ckpt", holding_itself)
