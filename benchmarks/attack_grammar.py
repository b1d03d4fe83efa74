"""Draws attacks: what a stranger sends, and the command of the user that reads it."""

import contextlib
import json
import os
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from attack_files import MODULE, SECRET, TABLES, Spoiler, Trap, as_yaml

from bertlab.plugins.index import GROUPS

COMMANDS = {name: lines.strip().splitlines() for name, lines in TABLES["commands"].items()}


@dataclass
class Attack:
    """What a command is given.

    Attributes:
        kind: of the table.
        what: is strange about it.
        argv: the command; None: ``requests`` go to a demo of ``model``.
        writes: places where the command may write, beside its own folder.
        path: folders for ``sys.path``.
    """

    kind: str
    what: str
    argv: list[str] | None
    writes: list[Path] = field(default_factory=list)
    path: list[Path] = field(default_factory=list)
    model: Path = Path()
    requests: list[bytes] = field(default_factory=list)


class Grammar(Spoiler):
    """Draws an attack of a stranger on a copy of what the user has.

    Args:
        seed: of the attack; the same seed makes the same attack.
        world: folder with whole runs, models and data of the user.
        place: an empty folder; ``theirs`` in it is what the stranger sent, ``home`` the user's,
            ``work`` where the command runs.
    """

    def __init__(self, seed: int, world: Path, place: Path) -> None:
        super().__init__(random.Random(seed), place)  # noqa: S311  the same attack each time
        self.seed, self.world = seed, world
        self.known = json.loads((world / "known.json").read_text())
        for folder in (self.theirs, place / "work", place / "tmp", self.home / ".ssh"):
            folder.mkdir(parents=True)
        for name in (".bashrc", ".netrc", ".ssh/id_rsa"):
            (self.home / name).write_text(f"mine {SECRET}_{name[-3:]}\n")
        shutil.copytree(world / "cache", place / "cache")
        (self.theirs / f"{MODULE}.py").write_text("class Trap:\n    pass\n")

    def draw(self) -> Attack:
        """Return the attack."""
        draw: Callable[[], Attack] = getattr(self, KINDS[self.seed % len(KINDS)].replace(" ", "_"))
        return draw()

    def command(self, *rooms: str, **places: Path | str) -> list[str]:
        """Return one of the commands, with paths of the world or those that are given."""
        template = self.rng.choice([each for room in rooms for each in COMMANDS[room]])
        return words_of(template, lambda name: str(places.get(name, self.world / name)))

    def theirs_of(self, name: str) -> Path:
        """Return a copy of something whole, as the stranger sent it."""
        source, copied = self.world / name, self.theirs / name
        shutil.copytree(source, copied, symlinks=True) if source.is_dir() else shutil.copy(
            source, copied
        )
        return copied

    def checkpoint(self) -> Attack:
        """Return a stranger's checkpoint in a run."""
        rng = self.rng
        run = self.theirs_of(rng.choice(("run", "run", "tuned")))
        file = run / "checkpoints" / "last.ckpt"
        content = torch.load(file, weights_only=True)
        ours = content["bertlab"]
        ways = ("config", "states", "states", "tensors", "members", "pickle")
        way = rng.choice(("keys", "keys", "keys", *ways))
        if way == "keys":
            for key in rng.sample(self.known["keys"], rng.randint(1, 4)):
                _put(ours["config"], key, rng.choice(self.hostile))
        elif way == "config":
            self.spoil(ours["config"], self.hostile)
        elif way == "states":
            name = rng.choice(sorted(content.keys() - {"state_dict"}))
            content[name] = self.spoil({name: content[name]}, self.hostile)
            if isinstance(content[name], dict):
                content[name] = content[name].get(name)
            way += f" {name}"
        elif way == "tensors":
            odd = [None, *map(self.tensor, content["state_dict"].values())]
            self.spoil(content["state_dict"], odd)
        torch.save(content, file)
        if way == "members":
            way += f" {self.spoil_members(file)}"
        elif way == "pickle":
            calls = (
                Trap(open, self.sung, "a"),
                Trap(os.system, f"touch {self.sung}"),
                Trap(eval, f"open({self.sung!r}, 'a')"),
                Trap(__import__, MODULE),
                Trap(getattr, str, "upper"),
                Trap(bytearray, 2**40),
            )
            keys = ("callbacks.x", "bertlab.config", "x", "state_dict.x", "loops.y", "epoch")
            _put(content, rng.choice(keys), rng.choice(calls))
            torch.save(content, file, _use_new_zipfile_serialization=rng.random() < 0.7)
        model = rng.choice((run, file))
        return Attack("checkpoint", way, self.command("model", model=model), [run])

    def directory(self) -> Attack:
        """Return a stranger's directory of a run or study."""
        rng = self.rng
        is_study = rng.random() < 0.4
        folder = self.theirs_of("study" if is_study else rng.choice(("run", "run", "tuned")))
        there = sorted(folder.rglob("*"))
        what = []
        for _ in range(rng.randint(1, 3)):
            is_there = rng.random() < 0.75
            file = rng.choice(there) if is_there else folder / rng.choice(TABLES["new"])
            # of a folder that is a link by now
            with contextlib.suppress(NotADirectoryError, FileExistsError):
                if file.is_dir() or rng.random() < 0.5:
                    what.append(self.plant(file))
                elif file.is_file() and not file.is_symlink():
                    what.append(self.spoil_file(file, self.hostile))
        rooms = ["study"] if is_study else ["model", "run"]
        command = self.command(*rooms, model=folder, study=folder)
        return Attack("directory", ", ".join(what), command, [folder])

    def config(self) -> Attack:
        """Return a stranger's config: it may name what it likes, but not be a bomb or a tag."""
        rng = self.rng
        name = rng.choice(("config.yaml", "config.yaml", "study.yaml"))
        content = yaml.safe_load((self.world / name).read_text())
        way = rng.choice(("keys", "keys", "values", "values", "bomb"))
        if way == "keys":
            for key in rng.sample(self.known["keys"], rng.randint(1, 4)):
                _put(content, key, rng.choice(TABLES["values"]))
        elif way == "values":
            content = self.spoil(content, TABLES["values"])
        text = as_yaml(content)
        if way == "bomb":
            bomb = rng.choice(TABLES["bombs"])
            inside = f"{text}\nmodel:\n  encoder:\n    " + bomb.splitlines()[0]
            text = rng.choice((bomb, f"{text}\n{bomb}", inside))
        file = self.theirs / name
        file.write_bytes(text.encode(errors="surrogatepass"))
        command = self.command("configs", data=file, run=self.theirs_of("run"))
        return Attack("config", f"{name} {way}", command, [self.place])

    def model_folder(self) -> Attack:
        """Return a stranger's tokenizer or Hugging Face folder."""
        rng = self.rng
        folder = self.theirs_of(rng.choice(("hf", "hf", "tok")))
        what = []
        if folder.name == "hf" and rng.random() < 0.35:
            what.append(self.spoil_weights(folder))
        for _ in range(rng.randint(not what, 2)):
            files = sorted(each for each in folder.iterdir() if each.suffix != ".py")
            what.append(self.spoil_file(rng.choice(files), self.hostile))
        room = "tokenizer" if folder.name == "tok" else "model"
        return Attack("model folder", ", ".join(what), self.command(room, model=folder))

    def data(self) -> Attack:
        """Return a stranger's texts, rows, archive or token store."""
        rng = self.rng
        rows = ("rows.csv", "rows.jsonl", "rows.json", "squad.json", "rows.parquet", "pairs.jsonl")
        form = rng.choice(("text.txt", *rows, "store", "store", "saved"))
        file = self.theirs_of(form)
        if file.is_dir():
            what = self.spoil_file(rng.choice(sorted(file.iterdir())), self.hostile)
            room = "corpus" if form == "store" else "rows"
            return Attack("data", f"{form}: {what}", self.command(room, data=file))
        what = self.spoil_file(file, self.hostile) if rng.random() < 0.7 else "whole"
        if rng.random() < 0.4 and file.is_file():
            file, packed = self.pack(file)
            what += f", {packed}"
        likely, other = ("corpus", "rows") if form == "text.txt" else ("rows", "corpus")
        room = rng.choice((likely, likely, other))
        return Attack("data", what, self.command(room, data=file))

    def package(self) -> Attack:
        """Return an installed package that is broken."""
        rng, table = self.rng, TABLES["package"]
        folder = self.theirs / "site"
        info = folder / "strange-1.0.dist-info"
        info.mkdir(parents=True)
        hooks = ["import sys", "from bertlab.plugins.hooks import hookimpl"]
        for name in rng.sample(self.known["hooks"], 5):
            arguments, returned = (
                rng.choice(("", "", "nothing", "*a")),
                rng.choice(table["returns"]),
            )
            hooks.append(f"@hookimpl\ndef {name}({arguments}):\n    return {returned}\n")
        body = rng.choice(table["bodies"])
        groups = (
            *GROUPS.values(),
            *("bertlab.hooks", "bertlab.hooks", "bertlab.hookspecs", "bertlab.names"),
            *("bertlab.contract", "bertlab.no_such"),
        )
        contracts = ("contract = v3", "contract = v3", "contract = v9", "contract = x", "contract")
        lines = ["[bertlab.contract]", rng.choice(contracts)]
        for _ in range(rng.randint(1, 6)):
            group, name = rng.choice(groups), rng.choice(table["names"])
            lines += [f"[{group}]", f"{name} = {rng.choice(table['targets'])}"]
        files = {
            info / "METADATA": rng.choice(table["metadata"]).encode("latin1"),
            info / "entry_points.txt": "\n".join(lines).encode(errors="surrogatepass"),
            folder / "strange.py": body.encode(),
            folder / "strange_hooks.py": "\n".join(hooks).encode(),
        }
        for file, content in files.items():
            file.write_bytes(content)
        if rng.random() < 0.25:
            self.damage(info / "entry_points.txt")
        elif rng.random() < 0.2:
            self.plant(rng.choice((info / "METADATA", info / "entry_points.txt", info)))
        study = self.theirs_of("study")
        command = self.command("packages", study=study)
        return Attack("package", " ".join(lines[2:4])[:60], command, [study], [folder])

    def secret(self) -> Attack:
        """Return a command of the user, with a secret in a URL in the place of a path."""
        rng, port = self.rng, (self.world / "port").read_text()
        url = rng.choice(TABLES["urls"]).replace("PORT", port)
        room = rng.choice(("model", "corpus", "rows", "tokenizer", "configs", "study", "run"))
        study, run = self.theirs_of("study"), self.theirs_of("run")
        places = {"model": run, "run": run, "data": self.world / "rows.csv", "study": study}
        command = self.command(room, **places)
        if rng.random() < 0.25:  # in a file of the user's
            name = rng.choice(("config.yaml", "study.yaml"))
            content = yaml.safe_load((self.world / name).read_text())
            key = rng.choice(TABLES["keys of URLs"][name])
            _put(content, key, url.replace("NAME", "text.txt"))
            (self.place / "work" / name).write_text(as_yaml(content))
            command = self.command("configs", data=name, run=run)
            return Attack("secret", f"{key} of {name}", command, [self.place])
        slots = [
            number
            for number, word in enumerate(command)
            if "/" in word
            or command[number - 1] in ("--run_dir", "--output", "--format", "--text")
            or ("." in word and not word.startswith("--"))
        ]
        at = rng.choice(slots or [len(command) - 1])
        before, is_option, _ = command[at].partition("=")
        name = Path(command[at]).name if "/" in command[at] else "text.txt"
        command[at] = (f"{before}=" if is_option and before[:2] == "--" else "") + url
        command[at] = command[at].replace("NAME", name)
        return Attack("secret", f"argument {at} of {command[0]}", command, [study, run])

    def http(self) -> Attack:
        """Return requests to the demo, which has to answer after them."""
        rng, table = self.rng, TABLES["http"]
        length = str(rng.choice((-1, 5, 10**10, "x", 2**70)))
        lines = [each.replace("NUMBER", length) for each in table["lines"]]
        requests = []
        for _ in range(6):
            body = rng.choice(table["bodies"]).encode("latin1")
            method = rng.choice(("GET", "POST", "PUT", "X" * 9000, "", "OPTIONS", "HEAD"))
            version = rng.choice(("HTTP/1.1", "HTTP/1.0", "HTTP/9", ""))
            head = [f"{method} {rng.choice(table['paths'])} {version}"]
            if rng.random() < 0.6:
                head = [f"POST {rng.choice(('/predict', '/layers'))} HTTP/1.1", lines[0]]
                head += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
            head += rng.choices(lines, k=rng.randrange(3))
            requests.append("\r\n".join(head).encode("latin1") + b"\r\n\r\n" + body)
        model = self.world / rng.choice(("run", "tuned", "hf"))
        return Attack("http", model.name, None, model=model, requests=requests)

    def argument(self) -> Attack:
        """Return a command with a mistake of its user: a value that is wrong somewhere in it."""
        rng = self.rng
        data = rng.choice(("rows.csv", "text.txt", "pairs.jsonl", "config.yaml"))
        model, run = self.theirs_of(rng.choice(("tuned", "hf"))), self.theirs_of("run")
        places = {"model": rng.choice((model, run)), "run": run, "study": self.theirs_of("study")}
        command = self.command(*COMMANDS, data=self.world / data, **places)
        paths = (str(self.world / "port"), "", ".")
        value = rng.choice((*TABLES["values"], *paths, *TABLES["arguments"]))
        text = value if isinstance(value, str) else json.dumps(value)
        if rng.random() < 0.4:
            command.append(f"--{rng.choice(self.known['keys'])}={text}")
        else:
            at = rng.randrange(1, len(command)) if len(command) > 1 else 0
            before, is_option, _ = command[at].partition("=")
            command[at] = f"{before}={text}" if is_option and before[:2] == "--" else text
        return Attack("argument", command[0], command, [self.place])


KINDS = (
    *("checkpoint", "directory", "config", "model folder", "data", "package", "secret", "http"),
    "argument",
)


def words_of(template: str, path: Callable[[str], str]) -> list[str]:
    """Return the words of a command, each ``{name}`` as a path."""
    words = template.split(" ")
    return [re.sub(r"\{([\w.]+)\}", lambda found: path(found[1]), word) for word in words]


def _put(content: Any, key: str, value: Any) -> None:  # noqa: ANN401
    """Set a dotted key of nested mappings."""
    *sections, name = key.split(".")
    for each in sections:
        if not isinstance(content.get(each), dict):
            content[each] = {}
        content = content[each]
    content[name] = value
