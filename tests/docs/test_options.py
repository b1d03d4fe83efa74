"""The options of the commands in README and docs exist: what help prints is asked."""

import contextlib
import io
import re
from collections import defaultdict
from functools import cache

import pytest

from bertlab.cli.main import command_names, main
from tests.docs.test_pages import PAGES

# commands that train, score, predict or ablate share the keys of fit; plugins add theirs
OF_FIT = ("fit", "validate", "test", "predict", "ablate")
OF_PLUGINS = (
    r"(model\.(encoder|objectives|heads?|optimizer|metrics)|data\.heads)\.|settings\.|init_args\."
)
CONFIGS = ("quickstart", "finetune/mrpc")
MORE_HELP = {
    "evaluate": "evaluate --evaluation held_out_loss --help",
    "predict": "predict --help all",
    "prepare": "prepare --executor ray --help",
    "study run": "study run --executor ray --help\nstudy run --executor slurm --help",
    "tokenizer": "tokenizer --extend MODEL --help",
}


def used() -> dict[str, dict[str, str]]:
    """Return the options by command, or by command and action, each with a page that has it."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    known = command_names()
    for page in PAGES:
        for block in re.findall(r"```bash\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = re.sub(r"'[^']*'|\"[^\"]*\"", "", line).partition("#")[0]
                for part in re.split(r"&&|\|", words):
                    command = re.match(r"\s*(?:\S*/)?bertlab ([a-z-]+)(?: (\w[\w-]*))?", part)
                    if command is None or command[1] not in known:
                        continue
                    name = f"study {command[2]}" if command[1] == "study" else command[1]
                    for option in re.findall(r" --(\w[\w.-]*)", part):
                        found[name][option] = page.name
    return found


USED = used()


def printed(*arguments: str) -> str:
    """Return what a command prints; jsonargparse ends the process after ``--help``."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        main([*arguments])
    return output.getvalue()


@cache
def of_fit() -> str:
    return "".join(printed("fit", config, "--help", "all") for config in CONFIGS)


@pytest.mark.parametrize("command", sorted(USED))
def test_options_are_in_the_help(command: str) -> None:
    asked = [f"{command} --help", *MORE_HELP.get(command, "").splitlines()]
    known = "".join(printed(*each.split()) for each in asked)
    if command in OF_FIT:
        known += of_fit()
    for option, page in USED[command].items():
        if not re.match(OF_PLUGINS, option) and option != "help":
            found = re.search(rf"--{re.escape(option)}[\s,=+.]", known)
            assert found, f"{page}: bertlab {command} has no --{option}"


def test_there_are_options_to_look_at() -> None:
    assert {"fit", "predict", "study run", "study design", "ablate", "evaluate"} <= set(USED)
    assert sum(map(len, USED.values())) > 50
