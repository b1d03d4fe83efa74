"""Attacks on every command, drawn by a grammar, each in a sandbox with canaries.

    python benchmarks/attacks.py --seeds 0:2000
    python benchmarks/attacks.py --seeds 17 --show          # one of them, with all that it said

A stranger's checkpoint, run, study, config, tokenizer, weights, rows, store, package or HTTP
request, a secret in a URL, or a mistake of the user is given to a real command, in a process forked
from one that has imported torch. It is taken (exit code 0; 3 of predictions) or refused (2, and one
message with a code). Faults: code or a process of the stranger's ran; something was written outside
the places that the user named; a secret of the environment, the home or a URL was printed or
written; an internal error; more than 60 s or 1 GB; files left behind by a mistake. An audit hook
sees writes, processes, imports and connections, and the home is compared before and after. Exit
code 1 if there is a fault.
"""

import argparse
import atexit
import contextlib
import importlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from attack_files import MODULE, SECRET
from attack_grammar import COMMANDS, KINDS, Attack, Grammar, words_of
from forked_commands import start, wait
from werkzeug.serving import BaseWSGIServer

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the tests' files

import bertlab.files
from bertlab.plugins.hooks import hook_modules
from bertlab.plugins.index import forget_installed
from tests.reliability.bad_files import FORMATS

FAULTS = (
    *("executed", "outside", "secret", "internal error", "over 60 s", "over 1 GB"),
    "left behind",
)
SECONDS, BYTES = 60.0, 2**30
ERROR = re.compile(r"^bertlab: error E[1-6]\d\d: ", re.MULTILINE)
SECRETS = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "OPENAI_API_KEY", "MY_PASSWORD")
CONFIG: dict[str, Any] = {
    "seed_everything": 1,
    "model": {
        "encoder": {"name": "bert", "preset": "tiny", "hidden_size": 32, "num_attention_heads": 2},
        "objectives": ["mlm", "nsp"],
    },
    "data": {"vocab_size": 300, "max_seq_length": 32, "batch_size": 4, "validation_sequences": 4},
    "trainer": {"max_steps": 2, "val_check_interval": 1, "accelerator": "cpu"},
    "checkpoint": {"save_top_k": -1},
}
MADE = """
fit --config {config.yaml} --run_dir {run}
export {run} {hf}
tokenizer --corpus {text.txt} --output {tok} --vocab_size=200
prepare --corpus {text.txt} --tokenizer {tok} --output {store}
fit --config {tuned.yaml} --model.init_from {run} --data.source {rows.csv} --run_dir {tuned}
study run {study.yaml} --study_dir {study}
"""
TUNED = {
    "model": {"head": "single_sentence"},
    "data": {"batch_size": 8, "validation_fraction": 0.25},
    "trainer": {"accelerator": "cpu", "max_epochs": 1},
    "checkpoint": {"save_top_k": -1},
}


def make_world(world: Path) -> None:
    """Fill a folder with texts, rows, a run, a fine-tuned one, exports, a store and a study."""
    lines = [f"The {word} number {n} is here." for n in range(60) for word in ("red", "blue")]
    parts = ["\n".join(lines[n : n + 4]) + "\n" for n in range(0, len(lines), 4)]
    rows = [
        {"text": f"a {'red' if n % 2 else 'blue'} {n}", "label": "rb"[n % 2]} for n in range(16)
    ]
    CONFIG["data"]["corpus"] = str(world / "text.txt")
    study = {"base": "config.yaml", "variants": {"a": {}, "b": {"data.batch_size": 2}}, "seeds": 1}
    texts = {
        "text.txt": "\n".join(parts),
        "rows.csv": "text,label\n" + "".join(f"{each['text']},{each['label']}\n" for each in rows),
        "rows.jsonl": "".join(json.dumps(each) + "\n" for each in rows),
        "rows.json": json.dumps(rows),
        "squad.json": next(form.whole for form in FORMATS if form.file == "squad.json"),
        "pairs.jsonl": '{"good": "the red", "bad": "red the"}\n' * 4,
        "config.yaml": yaml.safe_dump(CONFIG),
        "tuned.yaml": yaml.safe_dump(TUNED),
        "study.yaml": yaml.safe_dump(study),
    }
    for name, text in texts.items():
        (world / name).write_text(text)
    pq.write_table(pa.Table.from_pylist(rows), world / "rows.parquet")
    (world / "shared").mkdir()  # where commands and libraries keep what they may
    for line in MADE.strip().splitlines():
        if wait(start(words_of(line, lambda name: str(world / name)), world / "log")):
            raise SystemExit(f"{line} failed:\n{(world / 'log').read_text()}")
    if wait(start(partial(find_out, world, rows), world / "log")):
        raise SystemExit((world / "log").read_text())
    for name in json.loads((world / "known.json").read_text())["modules"]:
        with contextlib.suppress(Exception):
            importlib.import_module(name)  # once, and not in each attack
    atexit.register(os.kill, start(partial(serve, world), world / "log"), signal.SIGKILL)
    while not (world / "port").exists():
        time.sleep(0.01)


def find_out(world: Path, rows: list[dict[str, str]]) -> int:
    """Write down keys, hooks and modules, in a process that is thrown away."""
    import datasets  # noqa: PLC0415

    import bertlab_pages.demo.server  # noqa: F401, PLC0415
    from bertlab.cli.main import main  # noqa: PLC0415
    from bertlab.config.merge import read_request  # noqa: PLC0415
    from bertlab.config.parser import build_parser  # noqa: PLC0415
    from bertlab.plugins.hooks import spec_modules  # noqa: PLC0415

    datasets.Dataset.from_list(rows).save_to_disk(str(world / "saved"))
    keys = set()
    for given in ("--model.objectives=[mlm,nsp]", "--model.head=single_sentence"):
        for command in ("fit", "predict"):
            actions = build_parser(command, read_request([given]))._actions
            keys |= {each.dest for each in actions if not each.dest.endswith("help")}
    hooks = {name for module in spec_modules() for name in vars(module)}
    places = {"model": "run", "data": "rows.csv"}
    for number, line in enumerate(each for room in COMMANDS.values() for each in room):
        if not line.startswith(
            ("demo", "fit --ckpt_path", "fit --config {config.yaml} --run_dir {m")
        ):
            (world / "shared" / str(number)).mkdir()
            os.chdir(world / "shared" / str(number))
            main(words_of(line, lambda name: str(world / places.get(name, name))))
    known = {
        "keys": sorted(keys),
        "hooks": sorted(name for name in hooks if name.startswith("bertlab_")),
        "modules": sorted(sys.modules),
    }
    (world / "known.json").write_text(json.dumps(known))
    return 0


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def serve(folder: Path) -> int:
    """Serve a folder on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        (folder / "port.new").write_text(str(server.server_port))
        (folder / "port.new").rename(folder / "port")
        server.serve_forever()
    return 0


def ask_demo(model: Path, requests: list[bytes]) -> int:
    """Serve a model, send requests, and see that it still answers; return an exit code."""
    from bertlab import load  # noqa: PLC0415
    from bertlab_pages import local_server  # noqa: PLC0415
    from bertlab_pages.demo import server as demo  # noqa: PLC0415
    from bertlab_pages.demo.model_view import ModelView  # noqa: PLC0415

    local_server._LONGEST_REQUEST = local_server._Handler.timeout = 1
    server = demo.new_server(ModelView(load(str(model)), "theirs"), 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    last = b"GET /model HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nConnection: close\r\n\r\n"
    answers = []
    for request in (*requests, last):
        answer = b""
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection,
            contextlib.suppress(ConnectionError),
        ):
            connection.sendall(request.replace(b"PORT", str(server.port).encode()))
            while part := connection.recv(65_536):
                answer += part
        answers.append(answer.partition(b"\r\n")[0])
        print(request[:60], answers[-1], answer[-150:])
    failed = [each for each in answers if each.startswith(b"HTTP") and each.split()[1] >= b"500"]
    return int(bool(failed) or b" 200 " not in answers[-1])


# --- the sandbox ----------------------------------------------------------------------------------

CHANGES = (
    *("os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime"),
    *("os.setxattr", "shutil.rmtree"),
)
CHANGES_OF_TWO = ("os.rename", "shutil.move")
NEW_NAMES = ("os.symlink", "os.link")
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn")
# what libraries ask of the machine
HARMLESS = ("lscpu", "uname", "nvidia-smi", "git", "file", "ldconfig", "gcc", "cc")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CALLABLES = ("os", "posix", "builtins", "subprocess", MODULE)


class Watch:
    """Notes writes outside allowed places, and processes, imports and connections of a stranger.

    Args:
        allowed: real paths where may be written.
        notes: descriptor of the file that gets a line for each.
        starts_runs: the command starts processes of bertlab.
    """

    def __init__(self, allowed: list[str], notes: int, starts_runs: bool) -> None:
        self.allowed, self.notes, self.starts_runs = allowed, notes, starts_runs
        hooks: dict[str, Callable[..., None]] = {
            **{"open": self._open, "import": self._load, "pickle.find_class": self._unpickle},
            **dict.fromkeys(STARTS, self._start),
            **dict.fromkeys(CHANGES, lambda path, *_: self._check([path])),
            **dict.fromkeys(CHANGES_OF_TWO, lambda old, new, *_: self._check([old, new])),
            **dict.fromkeys(NEW_NAMES, lambda _, name, *__: self._check([name])),
            "socket.connect": self._connect,
        }
        sys.addaudithook(lambda event, given: event in hooks and hooks[event](*given))

    def _note(self, what: str, shown: object) -> None:
        os.write(self.notes, f"{what}: {str(shown)[:300]!r}\n".encode(errors="replace"))

    def _check(self, paths: list[object], follow: bool = False) -> None:
        for path in paths:
            if not isinstance(path, bytes | str | os.PathLike):
                continue  # the number of an open file
            name = os.fsdecode(path)
            folder, last = os.path.split(name)
            place = os.path.realpath(name) if follow else f"{os.path.realpath(folder)}/{last}"
            if not any(f"{place}/".startswith(f"{each}/") for each in self.allowed):
                self._note("outside", place)

    def _open(self, path: object, _: object, flags: int) -> None:
        if flags & WRITING and not flags & os.O_NONBLOCK:  # of a pipe: nothing is written
            self._check([path], follow=not flags & os.O_NOFOLLOW)

    def _load(self, name: str, *_: object) -> None:
        if name.startswith(MODULE):
            self._note("executed", f"import {name}")

    def _unpickle(self, module: str, name: str) -> None:
        if module in CALLABLES:
            self._note("executed", f"pickle of {module}.{name}")

    def _start(self, program: object, *given: object) -> None:
        words = f"{program} {given}"
        ours = sys.executable in words and (self.starts_runs or "multiprocessing" in words)
        if not ours and not any(each in str(program) for each in HARMLESS):
            self._note("executed", words)

    def _connect(self, _: object, address: object) -> None:
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            self._note("outside", f"connection to {address}")


@dataclass
class Ended:
    """How an attack ended: exit code (None: killed), seconds, bytes, what was said, faults."""

    code: int | None
    seconds: float
    bytes: int
    said: str
    faults: list[str]


def run(attack: Attack, place: Path, world: Path) -> Ended:
    """Run an attack in a process of its own, and judge it."""
    log, noted = place / "log", place / "noted"
    notes = os.open(noted, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    before = snapshot(place)
    begun = time.monotonic()
    command = (
        partial(ask_demo, attack.model, attack.requests) if attack.argv is None else attack.argv
    )
    process = start(command, log, partial(enter, attack, place, world, notes))
    code, used = wait_for(process, begun + SECONDS)
    seconds = time.monotonic() - begun
    os.close(notes)
    said = log.read_text(errors="replace") + noted.read_text()
    for crash in (place / "work").glob("bertlab-crash-*"):
        lines = [each.strip() for each in crash.read_text().splitlines() if "/bertlab" in each]
        said += f"\ncrash at {' < '.join(reversed(lines[-3:]))}"
    faults = {line.partition(": ")[0] for line in noted.read_text().splitlines()}
    after = snapshot(place)
    changed = [each for each in before.keys() | after.keys() if before.get(each) != after.get(each)]
    # where the user let it write; the home is in none of these
    free = [place / "work", place / "tmp", place / "cache", log, noted, *attack.writes]
    free = [each for each in free if each != place] + [place / "theirs"] * (place in attack.writes)
    outside = [each for each in changed if not any(each.is_relative_to(there) for there in free)]
    if (place / "sung").exists():
        faults.add("executed")
    elif outside:
        faults.add("outside")
        said += f"\nchanged: {[str(each) for each in outside[:5]]}"
    if leaks := [*secret_lines(said), *secret_files(each for each in changed if each != log)]:
        faults.add("secret")
        said += f"\nsecret in: {leaks[:4]}"
    is_check = attack.argv is not None and attack.argv[0] in ("check-plugins", "plugins")
    told = len(ERROR.findall(said))
    if code is None:
        faults.add("over 60 s")
    elif (
        "internal error" in said
        or "Traceback (most recent" in said
        or code not in ((0, 1, 2) if is_check else (0, 2, 3))  # 3: predictions of some rows only
        or (code == 2 and told != 1 and not is_check)  # which lists what is broken
    ):
        faults.add("internal error")
        said += f"\nexit code {code}, {told} messages"
    left = [each for each in changed if each.is_relative_to(place / "work")]
    # a run that began keeps its directory: what stopped it is Lightning's or its data's
    if attack.kind == "argument" and code == 2 and left and "sequences a step" not in said:
        faults.add("left behind")
        said += f"\nleft: {[str(each) for each in left[:5]]}"
    if used > BYTES:
        faults.add("over 1 GB")
    return Ended(code, seconds, used, said, sorted(faults))


def enter(attack: Attack, place: Path, world: Path, notes: int) -> None:
    """Make this process one in the sandbox."""
    os.environ |= {name: f"{SECRET}_{name}" for name in SECRETS}
    os.environ |= {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp")}
    os.environ |= {"BERTLAB_CACHE": str(place / "cache"), "XDG_CACHE_HOME": str(place / "cache")}
    os.environ["HF_HOME"] = str(place / "cache" / "hf")
    tempfile.tempdir = None
    os.chdir(place / "work")
    sys.path[:0] = [str(place / "theirs"), *map(str, attack.path)]
    importlib.invalidate_caches()
    forget_installed()  # a new process reads the packages anew
    hook_modules.cache_clear()
    if attack.argv is not None:
        BaseWSGIServer.serve_forever = lambda *_: None  # type: ignore[method-assign]
    limits = {resource.RLIMIT_AS: 8 * 2**30, resource.RLIMIT_FSIZE: 2**30, resource.RLIMIT_CORE: 0}
    for kind, most in limits.items():
        resource.setrlimit(kind, (most, most))
    places = (place / "work", place / "tmp", place / "cache", world / "shared", *attack.writes)
    devices = ("/dev/null", "/dev/shm", "/dev/full", "/dev/tty")  # noqa: S108
    allowed = [*map(os.path.realpath, places), *devices]
    Watch(allowed, notes, (attack.argv or [])[:2] in (["study", "run"], ["study", "run-one"]))


def wait_for(process: int, end: float) -> tuple[int | None, int]:
    """Return exit code and peak bytes of a process; None after ``end``, when it is killed."""
    while True:
        found, status, used = os.wait4(process, os.WNOHANG)
        if found or time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process, signal.SIGKILL)  # and what it left running
            if not found:
                _, _, used = os.wait4(process, 0)
            return os.waitstatus_to_exitcode(status) if found else None, used.ru_maxrss * 1024
        time.sleep(0.005)


def snapshot(folder: Path) -> dict[Path, tuple[int, int, int]]:
    """Return mode, size and time of all that is in a folder; of folders and links the mode."""
    found = {}
    for path in folder.rglob("*"):
        seen = path.lstat()
        is_file = path.is_file() and not path.is_symlink()
        found[path] = (seen.st_mode, *((seen.st_size, seen.st_mtime_ns) if is_file else (0, 0)))
    return found


def secret_lines(said: str) -> list[str]:
    """Return what was printed with a secret in it."""
    return [f"printed: {line[:200]}" for line in said.splitlines() if SECRET in line]


def secret_files(paths: Any) -> list[str]:  # noqa: ANN401
    """Return new or changed files with a secret in their name or content."""
    found = []
    for path in paths:
        is_file = path.is_file() and not path.is_symlink()
        if SECRET in path.name or (is_file and SECRET.encode() in path.read_bytes()):
            found.append(str(path))
    return found


def main() -> int:
    """Draw attacks, run them, print the faults and the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", default="0:2000", help="FIRST:END, or one")
    parser.add_argument("--kind", choices=KINDS, help="only attacks of this kind")
    parser.add_argument("--show", action="store_true", help="print all that each command said")
    given = parser.parse_args()
    first, _, end = given.seeds.partition(":")
    table: defaultdict[str, Counter[str]] = defaultdict(Counter)
    slowest, most = (0.0, 0), (0, 0)
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with tempfile.TemporaryDirectory(prefix="attacks-") as name:
        world, place = (
            Path(os.path.realpath(name)) / "world",
            Path(os.path.realpath(name)) / "place",
        )
        world.mkdir()
        os.environ |= {"BERTLAB_CACHE": f"{world}/cache", "MPLCONFIGDIR": f"{world}/shared"}
        make_world(world)
        bertlab.files._PATIENCE = 0.3  # seconds for the other end of a pipe
        for seed in range(int(first), int(end or int(first) + 1)):
            if given.kind not in (None, KINDS[seed % len(KINDS)]):
                continue
            place.mkdir()
            attack = Grammar(seed, world, place).draw()
            ended = run(attack, place, world)
            outcome = ended.faults or ["refused" if ended.code == 2 else "right"]
            table[attack.kind].update(outcome)
            slowest, most = max(slowest, (ended.seconds, seed)), max(most, (ended.bytes, seed))
            if ended.faults or given.show:
                said = ended.said.splitlines()[-99 if given.show else -6 :]
                lines = [" ".join(attack.argv or ["demo"]).replace(name, "")[:300], *said]
                print(f"seed {seed}: {attack.kind}: {attack.what}: {', '.join(outcome)}")
                print(*(f"  {each[:400]}" for each in lines), sep="\n", flush=True)
            shutil.rmtree(place)
    for kind, counts in table.items():
        outcomes = ", ".join(f"{count} {what}" for what, count in counts.most_common())
        print(f"{kind:13} {counts.total():4} attacks: {outcomes}")
    total = sum(table.values(), Counter[str]())
    counted = ", ".join(f"{total[what]} {what}" for what in ("right", "refused", *FAULTS))
    print(f"seeds {given.seeds}: {counted}")
    print(
        f"longest {slowest[0]:.0f} s (seed {slowest[1]}), most {most[0] >> 20} MB (seed {most[1]})"
    )
    return int(any(total[what] for what in FAULTS))


if __name__ == "__main__":
    sys.exit(main())
