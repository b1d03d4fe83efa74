"""Spoils files: values by their format, bytes, archives, links in their place."""

import bz2
import contextlib
import copy
import gzip
import io
import itertools
import json
import lzma
import os
import random
import re
import shutil
import socket
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
import yaml

SECRET = "c4n4ry"  # noqa: S105  in each secret, and in nothing else
MODULE = "sung_of_the_walk"  # a module that no command has a reason to import


def _grown(value: Any) -> Any:  # noqa: ANN401, PLR0911
    """Return what a value of attacks.yaml stands for."""
    match value:
        case str():
            return re.sub(
                "⟦(.*?)×(\\d+)⟧", lambda found: found[1] * int(found[2]), value, flags=re.S
            )
        case {"anchors": int(count)}:  # b: &b [*a,*a], c: &c [*b,*b] …
            names = [chr(97 + n) for n in range(count + 1)]
            lines = [
                f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in itertools.pairwise(names)
            ]
            return "a: &a [x,x]\n" + "".join(lines)
        case {"keys": int(count)}:
            return "".join(f"k{n}: {n}\n" for n in range(count))
        case {"deep": int(depth)}:
            nested: Any = 1
            for _ in range(depth):
                nested = [nested]
            return nested
        case {"many": each, "times": int(count)}:
            return [each] * count
        case dict():
            return {_grown(key): _grown(each) for key, each in value.items()}
        case list():
            return [_grown(each) for each in value]
    return value


_TEXT = Path(__file__).with_name("attacks.yaml").read_text("utf-8")
TABLES = _grown(yaml.safe_load(_TEXT.replace("SECRET", SECRET).replace("MODULE", MODULE)))


class Trap:
    """Pickled, it is a call."""

    def __init__(self, function: Callable[..., object], *given: object) -> None:
        self.call = function, given

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


class Spoiler:
    """Spoils what a stranger sends.

    Args:
        rng: that draws how.
        place: the sandbox; ``theirs`` in it is what the stranger sends, ``home`` the user's.
    """

    def __init__(self, rng: random.Random, place: Path) -> None:
        self.rng, self.place = rng, place
        self.theirs, self.home = place / "theirs", place / "home"
        self.sung, outside = str(place / "sung"), str(self.home / ".bashrc")
        trap = f"{MODULE}.Trap"
        self.hostile = [
            *TABLES["values"],
            {"class_path": trap},
            yaml.safe_dump({"class_path": trap}),
            trap,
            f"!!python/name:{trap} x",
            [{"class_path": trap, "init_args": {"path": outside}}],
            {"_target_": trap, "auto_map": {"A": trap}},
            *(outside, "../home/.bashrc", "../../home", str(self.home), f"file://{outside}"),
            *("~/.bashrc", {"path": outside}, f"{MODULE}:Trap", "../" * 20 + outside),
        ]

    def spoil(self, content: Any, odd: list[Any]) -> Any:  # noqa: ANN401
        """Change some values anywhere in mappings and lists."""
        rng = self.rng
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            slots = list(_slots(content))
            if not slots:
                return rng.choice(odd)
            holder, key = rng.choice(slots)
            value = holder[key]
            match rng.randrange(10):
                case 0:
                    del holder[key]
                case 1 if isinstance(holder, dict):
                    holder[rng.choice(TABLES["names"])] = rng.choice(odd)
                case 2 | 6 | 7 if type(value) in (int, float):
                    near = (-value, value + 1, value - 1, 0, value * 10**6)
                    holder[key] = rng.choice((*near, str(value), float(value), [value]))
                case 3 | 6 if isinstance(value, list | str):
                    holder[key] = value * rng.choice((0, 2, 50))
                case 7 | 8 if isinstance(value, str | list | tuple) and len(value):
                    parts = (value[:-1], value[1:], value[::-1], value[:1], [value])
                    holder[key] = rng.choice(parts)
                case 4:
                    other, where = rng.choice(slots)
                    with contextlib.suppress(LookupError):  # gone with what held it
                        holder[key] = copy.deepcopy(other[where])
                case 5 if isinstance(value, torch.Tensor):
                    holder[key] = self.tensor(value)
                case _:
                    holder[key] = rng.choice(odd)
        return content

    def tensor(self, like: torch.Tensor) -> torch.Tensor | None:
        """Return a tensor that is not as it should be."""
        made: tuple[Callable[[], torch.Tensor], ...] = (
            lambda: like.float() * float("nan"),
            lambda: like[:-1] if like.dim() else like.expand(3),
            lambda: torch.zeros(1).expand(10**6, 10**6),
            lambda: like.to(torch.complex64),
            like.bool,
            like.double,
            lambda: torch.zeros(0),
            lambda: torch.tensor(-3),
            lambda: torch.empty(2**20, 2**20, device="meta"),
            lambda: torch.eye(3).to_sparse(),
            lambda: like.reshape(-1),
            like.half,
            lambda: torch.nn.Parameter(like.float()),
        )
        with contextlib.suppress(RuntimeError, TypeError):
            return self.rng.choice(made)()
        return None

    def spoil_file(self, file: Path, odd: list[Any]) -> str:
        """Change a file by its format or its bytes, or put something else in its place."""
        how = self.rng.random()
        if how < 0.2:
            return self.plant(file)
        if how >= 0.4 and file.is_file():
            with contextlib.suppress(Exception):  # it is spoilt already
                self._spoil_values(file, odd)
                return f"{file.name}: values"
        return self.damage(file)

    def _spoil_values(self, file: Path, odd: list[Any]) -> None:
        if file.suffix in (".ckpt", ".bin"):
            torch.save(self.spoil(torch.load(file, weights_only=True), odd), file)
            return
        if file.suffix == ".safetensors":
            data = file.read_bytes()
            end = 8 + int.from_bytes(data[:8], "little")
            header = json.dumps(self.spoil(json.loads(data[8:end]), odd)).encode()
            size = len(header)
            if self.rng.random() < 0.2:
                size = self.rng.choice((size, 2**63, 2**31, 1))
            file.write_bytes(size.to_bytes(8, "little") + header + data[end:])
            return
        text = file.read_text()
        match file.suffix:
            case ".json":
                text = json.dumps(self.spoil(json.loads(text), odd))
            case ".jsonl":
                lines = self.spoil([json.loads(line) for line in text.splitlines()], odd)
                text = "\n".join(map(json.dumps, lines)) + "\n"
            case ".yaml":
                text = as_yaml(self.spoil(yaml.safe_load(text), odd))
            case _:
                text = self._spoil_lines(text)
        file.write_bytes(text.encode(errors="surrogatepass"))

    def _spoil_lines(self, text: str) -> str:
        lines, rng = text.splitlines() or [""], self.rng
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(lines))
            changed = (lines[at] * 3, lines[at][::-1], lines[at][: len(lines[at]) // 2])
            lines[at] = rng.choice((*TABLES["lines"], *changed))
        return rng.choice(("\n", "\n", "\r", "\r\n")).join(lines * rng.choice((1, 1, 1, 0, 40)))

    def damage(self, file: Path) -> str:
        """Change bytes of a file."""
        data, rng = (file.read_bytes() if file.is_file() else b""), self.rng
        at = rng.randrange(len(data) + 1)
        others = (b"", b"\xff\xfe", b"\x00" * 9, rng.randbytes(20), b"[" * 10**5, b"1" * 5000)
        new = rng.choice((*others, b"{" * 999))
        before, after = data[:at], data[at:]
        if not file.is_dir() and not file.is_symlink():
            file.parent.mkdir(parents=True, exist_ok=True)
            ways = (before, before + new + after, before + new + after[len(new) :], new, data * 2)
            file.write_bytes(rng.choice(ways))
        return f"{file.name}: bytes"

    def plant(self, file: Path) -> str:
        """Put a link, pipe, device, folder or socket in the place of a file or folder."""
        rng, home = self.rng, self.home
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        what = rng.choice(TABLES["links"])
        match what:
            case "hard":
                os.link(home / ".bashrc", file)
            case "pipe":
                os.mkfifo(file)
            case "device":
                with contextlib.suppress(PermissionError):
                    kind = rng.choice((3, 5, 7))  # null, zero, full
                    os.mknod(file, 0o20666, os.makedev(1, kind))
            case "empty folder":
                file.mkdir()
            case "socket":
                here = Path.cwd()
                os.chdir(file.parent)  # names of sockets are short
                with socket.socket(socket.AF_UNIX) as listening, contextlib.suppress(OSError):
                    listening.bind(file.name)
                os.chdir(here)
            case _:
                targets = {"file": home / ".bashrc", "folder": home, "dangling": home / "new"}
                targets |= {"loop": file, "up": Path(".."), "key": home / ".ssh" / "id_rsa"}
                file.symlink_to(targets.get(what, Path("/proc/self/environ")))
        return f"{file.name}: {what}"

    def spoil_members(self, file: Path) -> str:
        """Rename, repeat, pack or drop members of a zip."""
        rng = self.rng
        with zipfile.ZipFile(file) as zipped:
            members = [(each.filename, zipped.read(each)) for each in zipped.infolist()]
        way = rng.choice(("renamed", "dropped", "twice", "swapped", "packed", "bomb", "pickle"))
        at, to = rng.randrange(len(members)), rng.randrange(len(members))
        name, data = members[at]
        if way == "renamed":
            odd = ("../x", "/abs", "a/" * 300, "archive/data.pkl", "x\x00", "../../home/.bashrc")
            members[at] = (rng.choice(odd), data)
        elif way == "dropped":
            del members[at]
        elif way == "twice":
            members.append((name, members[to][1]))
        elif way == "swapped":
            members[at] = (name, members[to][1])
        elif way == "bomb":
            members[at] = (name, bytes(300 * 2**20))
        elif way == "pickle":
            at = next(n for n, (each, _) in enumerate(members) if each.endswith("data.pkl"))
            pickles = (
                b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R.",
                b"\x80\x02" + b"]" * 10**6 + b".",
                b"\x80\x02]q\x00" + b"(h\x00h\x00lq\x00" * 60 + b".",  # each twice the one before
                b"\x80\x02\x8a\xff" + b"\x7f" * 255 + b".",
                b"\x80\x02" + b"(" * 10**6,
                b"\x80\x04\x95" + b"\xff" * 8 + b".",
                b".",
            )
            members[at] = (members[at][0], rng.choice(pickles))
        packing = zipfile.ZIP_DEFLATED if way in ("packed", "bomb") else zipfile.ZIP_STORED
        with zipfile.ZipFile(file, "w", packing) as zipped, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that are there twice
            for name, data in members:
                zipped.writestr(name, data)
        return way

    def spoil_weights(self, folder: Path) -> str:
        """Put weights of another form in the place of those that are there."""
        rng, file = self.rng, folder / "model.safetensors"
        way = rng.choice(("index", "pickle", "tensorflow", "code"))
        if way == "index":
            outside = ("../../home/.bashrc", str(self.home / ".bashrc"), "model-1.safetensors")
            names = (*outside, "../hf/x.safetensors", "", "\x00", "x" * 300, 3, None)
            file.rename(folder / "model-1.safetensors")
            of = {f"bert.{n}.weight": rng.choice(names) for n in range(rng.randint(1, 5))}
            index = self.spoil({"metadata": {}, "weight_map": of}, self.hostile)
            (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        elif way == "pickle":
            file.unlink()
            content = {"x": Trap(os.system, f"touch {self.sung}"), "y": torch.ones(2)}
            torch.save(content, folder / "pytorch_model.bin")
        elif way == "tensorflow":
            file.unlink()
            for name in ("index", "data-00000-of-00001", "meta"):
                noise = rng.randbytes(rng.choice((0, 10, 60, 5000)))
                (folder / f"bert_model.ckpt.{name}").write_bytes(noise)
            if rng.random() < 0.3:
                return self.plant(folder / "bert_model.ckpt.index")
        else:
            config = json.loads((folder / "config.json").read_text())
            config["auto_map"] = dict.fromkeys(("AutoModel", "AutoConfig"), f"{MODULE}.Trap")
            config["trust_remote_code"] = True
            (folder / "config.json").write_text(json.dumps(config))
            shutil.copy(self.theirs / f"{MODULE}.py", folder)
        return way

    def pack(self, file: Path) -> tuple[Path, str]:
        """Pack a file into an archive with odd names, or into one that expands."""
        rng = self.rng
        way = rng.choice(("whole", "names", "bomb", "cut", "bytes"))
        form = rng.choice(("gz", "bz2", "xz", "zst", "zip", "tar", "tar.gz"))
        packed = file.with_name(f"{file.name}.{form}")
        content, name = file.read_bytes(), file.name
        if way == "bomb":
            content = rng.choice((b"a", b" ", b'{"text": "a"}')) * (15 * 2**20)
        if way == "names":
            odd = ("../../home/.bashrc", str(self.home / "x"), "a/../b", name, "\x1b[2J", "")
            name = rng.choice(odd)
        if form == "zip":
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zipped:
                zipped.writestr(name or "x", content)
                zipped.writestr("second", b"x")
        elif form.startswith("tar"):
            with tarfile.open(packed, "w:gz" if form.endswith("gz") else "w") as tarred:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                if way == "names" and rng.random() < 0.5:
                    info.type = rng.choice((tarfile.SYMTYPE, tarfile.LNKTYPE))
                    info.linkname, info.size = str(self.home / ".bashrc"), 0
                tarred.addfile(info, io.BytesIO(content))
        else:
            pack: dict[str, Callable[[bytes], bytes]] = {
                **{"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress},
                "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
            }
            packed.write_bytes(pack[form](content))
        if way in ("cut", "bytes"):
            data = packed.read_bytes()
            rest = b"" if way == "cut" else b"\xff" * 5 + data[len(data) // 2 :]
            packed.write_bytes(data[: len(data) // 2] + rest)
        return packed, f"{form} {way}"


def _slots(content: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401
    """Yield each holder and key of nested mappings and lists."""
    pairs: list[tuple[Any, Any]] = []
    if isinstance(content, dict | list):
        pairs = list(content.items() if isinstance(content, dict) else enumerate(content))
    for key, value in pairs:
        yield content, key
        yield from _slots(value)


def as_yaml(content: Any) -> str:  # noqa: ANN401
    """Return YAML, with odd values as they would be written by hand: tags and anchors count."""
    text = yaml.safe_dump(content, sort_keys=False, width=10**9)
    return re.sub(r"'([!&*\[{%](?:[^'\n]|'')*)'", lambda found: found[1].replace("''", "'"), text)
