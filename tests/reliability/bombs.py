"""Files that are small and would become large in memory, drawn by a seed, in each format.

A maker writes what it draws into a folder and returns the command that is given it.
"""

import bz2
import gzip
import json
import lzma
import os
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

MB = 2**20
Chunks = Iterator[bytes]
Maker = Callable[[Path, Path, random.Random], list[str]]
_CPU = "--trainer.accelerator=cpu"
_ONE_STEP = ("--trainer.max_steps=1", "--trainer.val_check_interval=1", _CPU)


def _write(path: Path, chunks: Chunks) -> None:
    """Write chunks, packed as the name says."""
    match path.suffix:
        case ".gz":
            file = gzip.open(path, "wb", compresslevel=1)  # noqa: SIM115
        case ".bz2":
            file = bz2.open(path, "wb", compresslevel=1)  # noqa: SIM115
        case ".xz":
            file = lzma.open(path, "wb", preset=0)  # noqa: SIM115
        case ".zst":
            file = pa.CompressedOutputStream(path, "zstd")
        case ".zip":
            with (
                zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
                archive.open(path.stem, "w", force_zip64=True) as member,
            ):
                member.writelines(chunks)
            return
        case _:
            file = path.open("wb")
    with file:
        for chunk in chunks:
            file.write(chunk)


def _packed(rng: random.Random) -> str:
    return rng.choice([".gz", ".gz", ".bz2", ".xz", ".zst", ".zip"])


def _fit(run: Path, file: Path, head: str = "single_sentence") -> list[str]:
    return [
        *("fit", "--model.init_from", str(run), "--model.head", head, *_ONE_STEP),
        *("--data.source", str(file), "--data.validation_fraction=0.3", "--data.max_seq_length=32"),
        *("--run_dir", str(file.parent / "run")),
    ]


def _prepare(run: Path, file: Path, tokenizer: Path | None = None) -> list[str]:
    tokenizer = tokenizer or run / "tokenizer"
    store = str(file.parent / "store")
    return ["prepare", "--corpus", str(file), "--tokenizer", str(tokenizer), "--output", store]


def _repeated(part: bytes, size: int) -> Chunks:
    """Yield about ``size`` bytes of one part again and again."""
    chunk = part * max(1, MB // len(part))
    return (chunk for _ in range(max(1, size // len(chunk))))


def a_table(folder: Path, run: Path, rng: random.Random) -> list[str]:
    """A long line, many cells, a row without an end, a wide header, many rows, large rows."""
    ending = rng.choice([".csv", ".tsv"])
    cut = "\t" if ending == ".tsv" else ","
    size = rng.randrange(64, 128) * MB
    word = rng.choice(["a", "\u00e9", "\u4e2d", "\U0001f600", "it is "])
    shapes: dict[str, tuple[str, str]] = {
        "line": ("", word),
        "cells": ("", f"{rng.choice(['', '1', '12', 'abc'])}{cut}"),
        "endless": ("", f'"{word}\n{word}"{cut}'),
        "rows": ("", f"it is {word}{cut}red\nit is not{cut}blue\n"),
        "large": ("", word * (MB // 2) + f"{cut}red\n" + word * (MB // 2) + f"{cut}blue\n"),
    }
    begin, part = shapes[rng.choice(sorted(shapes))]
    header = "" if rng.random() < 0.1 else f"text{cut}label\n"
    path = folder / f"rows{ending}{_packed(rng)}"
    _write(path, iter([(header + begin).encode(), *_repeated(part.encode(), size)]))
    return _fit(run, path)


def json_rows(folder: Path, run: Path, rng: random.Random) -> list[str]:
    """Objects with long lists of small things, in lines or an array; many objects; long texts."""
    small = rng.choice(["[]", "{}", '{"a":0}', "[[]]", "1.5", '"ab"', "null", '"\\ud83d\\ude00"'])
    inside = ",".join([small] * rng.randrange(4, 40))
    row = '{"text":"it is","label":"red","x":[' + inside
    size = rng.randrange(32, 80) * MB
    path = folder / f"rows{rng.choice(['.jsonl', '.json'])}{_packed(rng)}"
    opening, closing = ("[", "]") if path.name.startswith("rows.json.") else ("", "")
    if rng.random() < 0.5:  # one object
        parts = [(opening + row).encode(), *_repeated(f",{small}".encode(), size)]
        _write(path, iter([*parts, f"]}}{closing}\n".encode()]))
    else:
        between = rng.choice([",\n", ","]) if opening else "\n"
        parts = [(opening + row + "]}").encode(), *_repeated((between + row + "]}").encode(), size)]
        _write(path, iter([*parts, f"{closing}\n".encode()]))
    return _fit(run, path)


def named_formats(folder: Path, run: Path, rng: random.Random) -> list[str]:
    """SQuAD's JSON with too much in it, and a sentence of CoNLL's without an end."""
    size = rng.randrange(48, 96) * MB
    if rng.random() < 0.5:
        path = folder / f"rows.conll{_packed(rng)}"
        _write(path, _repeated(b"a O\n", size))
        return _fit(run, path, "tagging")
    path = folder / f"rows.json{_packed(rng)}"
    small = rng.choice([b"[],", b"[],\n", b'{"paragraphs":[]},\n', b'"",'])
    _write(path, iter([b'{"data":[', *_repeated(small, size), b"[]]}\n"]))
    return _fit(run, path, "span")


def parquet(folder: Path, run: Path, rng: random.Random) -> list[str]:
    """Dictionaries with a large text, long lists, lists in lists, large pages, many rows."""
    rows, longest = rng.randrange(500, 1500), rng.randrange(1, 6) * MB
    labels = pa.DictionaryArray.from_arrays(pa.array(np.arange(rows) % 2), ["red", "blue"])
    small = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), ["it is"])
    large = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), ["a" * longest])
    columns = {"text": small, "label": labels}
    shape = rng.choice(["dictionary", "list", "lists", "plain", "rows"])
    if shape == "dictionary":
        columns["text"] = large
    elif shape == "list":
        values = pa.array(np.zeros(rows * 50_000, np.int8))
        ends = pa.array(np.arange(rows + 1, dtype=np.int32) * 50_000)
        columns["x"] = pa.ListArray.from_arrays(ends, values)
    elif shape == "lists":
        few = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows * 50, np.int32)), ["a" * MB])
        ends = pa.array(np.arange(rows + 1, dtype=np.int32) * 50)
        columns["x"] = pa.ListArray.from_arrays(ends, few)
    elif shape == "plain":
        columns["text"] = pa.array(["it is " * 50_000] * rows)
    else:
        rows = rng.randrange(1, 3) * 1_000_000
        columns["text"] = small.take(pa.array(np.zeros(rows, np.int64)))
        columns["label"] = labels.take(pa.array(np.arange(rows) % 2))
    path = folder / "rows.parquet"
    pa.parquet.write_table(
        pa.table(columns),
        path,
        compression="zstd",
        use_dictionary=shape != "plain",
        row_group_size=rng.choice([1000, 2**26]),
    )
    return _fit(run, path) if rng.random() < 0.7 else _prepare(run, path)


def arrow(folder: Path, run: Path, rng: random.Random) -> list[str]:
    """Packed batches, dictionaries with a large text, lists of nothing."""
    rows = rng.randrange(300, 1500)
    labels = ["red", "blue"] * (rows // 2) + ["red"] * (rows % 2)
    columns = {"text": pa.array(["it is"] * rows), "label": pa.array(labels)}
    shape = rng.choice(["dictionary", "packed", "nothing"])
    if shape == "dictionary":
        indices = pa.array(np.zeros(rows, np.int32))
        columns["text"] = pa.DictionaryArray.from_arrays(indices, ["a" * (3 * MB)])
    elif shape == "packed":
        columns["text"] = pa.array(["it is " * 200_000] * rows)
    else:
        ends = pa.array(np.arange(rows + 1, dtype=np.int64) * 10_000_000)
        columns["x"] = pa.LargeListArray.from_arrays(ends, pa.nulls(rows * 10_000_000))
    path = folder / "rows.arrow"
    packed = "zstd" if shape == "packed" else "uncompressed"
    pa.feather.write_feather(pa.table(columns), path, compression=packed, chunksize=2**20)
    return _fit(run, path)


def saved_data_sets(folder: Path, run: Path, rng: random.Random) -> list[str]:
    """Folders of ``save_to_disk`` with packed batches, a large dictionary, lists of nothing."""
    rows = rng.randrange(300, 1500)
    columns = {"text": pa.array(["it is"] * rows), "label": pa.array(["red", "blue"] * rows)[:rows]}
    shape = rng.choice(["dictionary", "packed", "nothing", "rows", "files"])
    times = rng.randrange(2, 9)
    if shape == "dictionary":
        indices = pa.array(np.zeros(rows, np.int32))
        columns["text"] = pa.DictionaryArray.from_arrays(indices, ["a" * (times * MB)])
    elif shape in ("packed", "files"):
        columns["text"] = pa.array(["it is " * (times * 40_000)] * min(rows, 400))
        columns["label"] = columns["label"][: len(columns["text"])]
    elif shape == "nothing":
        long = (2**31 - 1) // rows
        ends = pa.array(np.arange(rows + 1, dtype=np.int64) * long)
        columns["x"] = pa.LargeListArray.from_arrays(ends, pa.nulls(rows * long))
    else:
        rows = rng.randrange(1, 3) * 1_000_000
        columns = {
            name: pa.array(each.to_pylist()[:2] * (rows // 2)) for name, each in columns.items()
        }
    saved = folder / "saved"
    part = saved / "train" if rng.random() < 0.5 else saved
    part.mkdir(parents=True)
    table = pa.table(columns)
    names = [f"data-{n}.arrow" for n in range(times if shape == "files" else 1)]
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    for name in names:
        with pa.ipc.new_stream(part / name, table.schema, options=options) as writer:
            writer.write_table(table, rng.choice([100, MB]))
    state = {"_data_files": [{"filename": name} for name in names], "_split": "train"}
    (part / "state.json").write_text(json.dumps(state), "utf-8")
    if part != saved:
        (saved / "dataset_dict.json").write_text('{"splits": ["train"]}', "utf-8")
    return _fit(run, saved)


def hub(folder: Path, run: Path, rng: random.Random) -> list[str]:
    """Data sets of the hub with few rows of a large text, and with many rows.

    The rows stand in a file of the cache, which is mapped into memory.
    """
    there = folder / "set"
    there.mkdir()
    rows, size = rng.choice([(20, 3 * MB), (400_000, 1), (1_500_000, 1)])
    label = pa.array(["red", "blue"] * (rows // 2))
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), ["it" * size])
    pa.parquet.write_table(pa.table({"text": texts, "label": label}), there / "train.parquet")
    command = _prepare(run, there) if rng.random() < 0.3 else _fit(run, there)
    return [f"hf:{there}" if each == str(there) else each for each in command]


def text(folder: Path, run: Path, rng: random.Random) -> list[str]:
    """A word without an end, short lines, long words of which no two are equal."""
    size = rng.randrange(24, 48) * MB
    path = folder / f"text.txt{_packed(rng)}"
    end = b"\n\nIt is a text. And more of it.\n\nAnother one.\n"
    if rng.random() < 0.3:
        words = (b"a" * 100_000 + b"%d " % number for number in range(size // 100_000))
        _write(path, iter([*words, end]))
    else:
        part = rng.choice([b"a", b"ab\n", b"\xf0\x9f\x98\x80", b"a. ", b"a, b! "])
        _write(path, iter([*_repeated(part, size), end]))
    if rng.random() < 0.3:
        words = ["tokenizer", "--corpus", str(path), "--vocab_size", "300"]
        return [*words, "--output", str(folder / "tokenizer")]
    return _prepare(run, path)


def tokenizer_json(folder: Path, run: Path, rng: random.Random) -> list[str]:
    """Normalizers and pre-tokenizers that make more and more of a text, too many tokens."""
    content = json.loads((run / "tokenizer" / "tokenizer.json").read_text("utf-8"))
    letter, times = rng.choice("eaio"), rng.randrange(6, 40)
    grow = {"type": "Replace", "pattern": {"String": letter}, "content": letter * 9}
    bytes_ = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
    chains = {
        "replace": [grow] * times,
        "regex": [{"type": "Replace", "pattern": {"Regex": "(?:)"}, "content": "ab"}] * times,
        "prepend": [{"type": "Prepend", "prepend": letter * 1000}] * times,
        "unicode": [grow | {"content": "\ufdfa"}, {"type": "NFKC"}] * times,
    }
    kind = rng.choice([*chains, "bytes", "tokens", "added", "objects"])
    if kind in chains:
        content["normalizer"] = {"type": "Sequence", "normalizers": chains[kind]}
    elif kind == "bytes":
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [bytes_] * times}
    elif kind == "tokens":
        vocabulary = content["model"]["vocab"]
        vocabulary |= {f"q{n}": len(vocabulary) + n for n in range(rng.randrange(1, 3) * 1_000_000)}
    elif kind == "added":
        token = content["added_tokens"][0] | {"content": letter * (times * MB), "special": False}
        content["added_tokens"].append(token | {"id": len(content["model"]["vocab"])})
    else:
        content["decoder"] = [[]] * (times * MB // 2)
    (folder / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    (folder / "text.txt").write_text("It is a text. And more of it.\n\nAnother one.\n" * 9, "utf-8")
    return _prepare(run, folder / "text.txt", folder / "tokenizer.json")


def checkpoint(folder: Path, run: Path, rng: random.Random) -> list[str]:
    """Objects that are made of a number, many of them, tuples in each other, packed records."""
    kind = rng.choice(["bytearray", "objects", "tuples", "packed"])
    nested = b")" + b"".join(b"q%c" % n + b"h%c\x86" % n for n in range(rng.randrange(30, 90)))
    pickles = {
        "bytearray": b"\x80\x02cbuiltins\nbytearray\nJ\x00\x00\x00\x7f\x85R.",
        "objects": b"\x80\x02](" + rng.choice([b"}", b"]", b"\x8f"]) * (rng.randrange(8, 40) * MB),
        "tuples": b"\x80\x02}X\x07\x00\x00\x00bertlab" + nested + b"s.",
        "packed": b"\x80\x02X" + (150 * MB).to_bytes(4, "little") + b"a" * (150 * MB) + b".",
    }
    path = folder / "last.ckpt"
    method = zipfile.ZIP_DEFLATED if kind == "packed" else zipfile.ZIP_STORED
    with (
        zipfile.ZipFile(run / "checkpoints" / "last.ckpt") as whole,
        zipfile.ZipFile(path, "w", method, compresslevel=1) as spoilt,
    ):
        for each in whole.namelist():
            pickled = each.endswith("data.pkl")
            spoilt.writestr(each, pickles[kind] if pickled else whole.read(each))
    return ["validate", "--ckpt_path", str(path), _CPU]


# PyTorch's format before 1.6 is pickles one after another: two numbers, what wrote it, the content
LEGACY_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + b"\x80\x02M\xe9\x03." + b"\x80\x02}."


def hash_pickles(rng: random.Random) -> dict[str, bytes]:
    """Return pickles of few bytes that take ages to hash or print, or that copy a text."""
    depth = rng.randrange(30, 90)
    pairs = b"".join(b"h%ch%c\x86q%c" % (n, n, n + 1) for n in range(depth))  # t = (t, t)
    nested = b"h%c" % depth
    text = rng.randrange(1, 3) * MB
    copied = b"X" + text.to_bytes(4, "little") + b"a" * text + b"q\xf1X\6\0\0\0latin1q\xf2"
    ordered = b"ccollections\nOrderedDict\n"
    sets = b"c__builtin__\nset\n"
    steps = {
        "key": b"}" + nested + b"K\1s",
        "keys": b"}(" + nested + b"K\1u",
        "ordered key": ordered + b")R" + nested + b"K\1s",
        "pairs": ordered + b"]" + nested + b"K\1\x86a\x85R",
        "set": rng.choice([b"cbuiltins\nset\n", sets]) + b"]" + nested + b"a\x85R",
        "counter": b"ccollections\nCounter\n]" + nested + b"a\x85R",
        "frozen set": b"cbuiltins\nfrozenset\n]" + nested + b"a\x85R",
        "storage": b"(X\7\0\0\0storagectorch\nFloatStorage\n" + nested + b"X\3\0\0\0cpuK\1tQ",
        "state": ordered + b")R}" + nested + b"K\1sb",
        "function": nested + b")R",
        "class": nested + b")\x81",
        "copies": copied + b"c_codecs\nencode\nq\3" + b"h\3h\xf1h\xf2\x86R" * 2000,
        "sets": b"](" + b"K\1" * text + b"eq\xf1" + sets + b"q\xf2" + b"h\xf2h\xf1\x85R" * 20_000,
        "numbers": b"ctorch\nFloatTensor\nJ\0\0\0\x7f\x85R",
    }
    return {name: b"\x80\x02](" + b")q\0" + pairs + each + b"e." for name, each in steps.items()}


def hashes(folder: Path, run: Path, rng: random.Random) -> list[str]:
    """Checkpoints of :func:`hash_pickles`, old and new, for each command that reads one."""
    pickle = rng.choice(sorted(hash_pickles(rng).items()))[1]
    path = folder / rng.choice(["last.ckpt", "pytorch_model.bin"])
    if rng.random() < 0.3:
        path.write_bytes(LEGACY_START + pickle + b"\x80\x02].")
    else:
        with (
            zipfile.ZipFile(run / "checkpoints" / "last.ckpt") as whole,
            zipfile.ZipFile(path, "w") as spoilt,
        ):
            for each in whole.namelist():
                pickled = each.endswith("data.pkl")
                spoilt.writestr(each, pickle if pickled else whole.read(each))
    given = str(path)
    if path.suffix == ".bin":
        (folder / "config.json").write_text('{"model_type": "bert"}', "utf-8")
        given = str(folder)
    new = str(folder / "new")
    evaluated = ["--evaluation", "held_out_loss", "--data", str(run / "config.yaml")]
    ways = [
        ["predict", "--ckpt_path", given, "--text", "it is", _CPU],
        [*_fit_again(run), "--model.init_from", given, "--run_dir", new],
        ["export", given, new],
        ["evaluate", "--ckpt_path", given, *evaluated],
    ]
    if path.suffix == ".ckpt":
        ways += [
            [*_fit_again(run), "--ckpt_path", given, "--run_dir", new],
            ["validate", "--ckpt_path", given, _CPU],
        ]
    return rng.choice(ways)


def _fit_again(run: Path) -> list[str]:
    return ["fit", "--config", str(run / "config.yaml"), *_ONE_STEP]


def config(folder: Path, run: Path, rng: random.Random) -> list[str]:
    """Aliases of aliases, long lists, deep ones, a device, a file that is too large."""
    path = folder / "config.yaml"
    kind = rng.choice(["aliases", "list", "deep", "device", "large"])
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "aliases":
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
        for n in range(1, rng.randrange(8, 30)):
            lines.append(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]")
        path.write_text("\n".join(lines), "utf-8")
    else:
        whole = {"list": "a: [" + "x," * 400_000, "deep": "[" * 900_000, "large": "x" * (80 * MB)}
        path.write_text(whole[kind], "utf-8")
    return ["fit", "--config", str(path)]


_RECORDS = ("results.json", "manifest.json", "best.json", "complaints.json", "samples.jsonl")


def records(folder: Path, run: Path, rng: random.Random) -> list[str]:
    """Records of a run with too much in them, or devices and pipes in their places."""
    there = folder / "run"
    shutil.copytree(run, there)
    path = there / rng.choice(_RECORDS)
    if rng.random() < 0.3:
        path = next(there.glob("csv/version_*/metrics.csv"))
    path.unlink(missing_ok=True)
    kind = rng.choice(["device", "pipe", "objects", "cells", "line"])
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "objects":
        path.write_text('{"a":[' + "[]," * (rng.randrange(8, 20) * MB) + "[]]}", "utf-8")
    elif kind == "cells":
        path.write_text("step," + "12," * (rng.randrange(8, 20) * MB) + "\n1,2\n", "utf-8")
    else:
        path.write_text("a" * (rng.randrange(20, 90) * MB), "utf-8")
    ways = (["report", str(there)], ["validate", "--ckpt_path", str(there), _CPU])
    return rng.choice(ways)


def study(folder: Path, run: Path, rng: random.Random) -> list[str]:
    """Files of a study with too much in them, or devices in their places."""
    there = folder / "study"
    (there / "attempts").mkdir(parents=True)
    plain = "base: base.yaml\nseeds: 2\nvariants: {both: {}, mlm: {objectives: {nsp: null}}}\n"
    (there / "base.yaml").write_text((run / "config.yaml").read_text("utf-8"), "utf-8")
    (there / "study.yaml").write_text(plain, "utf-8")
    names = ["study.yaml", "plan.json", "base.yaml", "analysis.json"]
    path = there / rng.choice([*names, "attempts/both-s1.json"])
    path.unlink(missing_ok=True)
    kind = rng.choice(["device", "objects", "list"])
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "objects":
        path.write_text('{"a":[' + "[]," * (rng.randrange(8, 20) * MB) + "[]]}", "utf-8")
    else:
        path.write_text("a: [" + "x," * 400_000 + "x]", "utf-8")
    return ["study", rng.choice(["status", "report", "plan"]), str(there)]


MAKERS: tuple[Maker, ...] = (
    *(a_table, json_rows, named_formats, parquet, arrow, saved_data_sets, hub, text),
    *(tokenizer_json, checkpoint, hashes, config, records, study),
)
