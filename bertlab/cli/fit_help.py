"""The help of ``bertlab``, and the short one of ``fit`` and its like: they need no torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill, indent
from typing import TYPE_CHECKING

from bertlab.config.shipped import offered_names
from bertlab.plugins.index import keys_of_packages, missing_package

if TYPE_CHECKING:
    from bertlab.config.request import Request

# what each command does; the keys that most runs give, of text (objectives) or of rows (a head)
_TABLE = json.loads(Path(__file__).with_name("common_keys.json").read_text("utf-8"))
COMMON: dict[str, dict[str, str]] = {command: each["keys"] for command, each in _TABLE.items()}


def short_help(command: str, request: "Request") -> str:
    """Return the common keys of a command, and what the named configs set."""
    from bertlab.config.yaml_files import leaves, yaml_inline  # noqa: PLC0415  not for --help

    takes_config = command == "fit"
    keys = {key: text for key, text in COMMON[command].items() if missing_package(key) is None}
    lines = [
        f"usage: bertlab {command} {'[CONFIG …] ' if takes_config else 'MODEL '}[--KEY VALUE …]",
        "",
        _TABLE[command]["purpose"],
        "",
        *(f"  --{key:<32}{text}" for key, text in keys.items()),
    ]
    for path, content in request.files:
        set_here = (f"  --{key} {yaml_inline(value)}" for key, value in leaves(content))
        lines += ["", f"{path} sets:", *set_here]
    lines += [f"  --model.objectives {yaml_inline(request.objectives)}"] * request.objectives_named
    if takes_config and not request.files:
        shown = (x for x in offered_names() if not x.startswith(("studies", "evaluations")))
        folded = indent(fill(" ".join(shown), 78, break_on_hyphens=False), "  ")
        lines += ["", "CONFIG is a file, or one of these:", folded]
    if takes_config:
        common = {key for keys in COMMON.values() for key in keys}
        added = " ".join(key for key in keys_of_packages() if key not in common)
        lines += ["", fill(f"Keys that packages add: {added}", 98, subsequent_indent="  ")]
    config = " [CONFIG]" * takes_config
    lines += ["", f"Every key, with type and default:  bertlab {command}{config} --help all"]
    return "\n".join(lines) + "\n"


def usage(commands: Mapping[str, str]) -> str:
    """Return the text of ``bertlab --help``, with a line of each command."""
    width = max(map(len, commands)) + 1
    lines = [
        "usage: bertlab [--version] [--help] COMMAND …",
        "",
        "Pre-train, fine-tune and ablate BERT from config files.",
        "",
        *(f"  {name:<{width}}{line}" for name, line in commands.items()),
        "",
        "Start with:  bertlab fit quickstart",
        *["With texts of your own:  bertlab init classification my.yaml"][: "init" in commands],
        "Options of a command:  bertlab COMMAND --help",
        "A traceback for an error:  BERTLAB_DEBUG=1 bertlab COMMAND …",
    ]
    return "\n".join(lines) + "\n"
