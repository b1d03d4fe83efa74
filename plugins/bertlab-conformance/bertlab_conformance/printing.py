"""``bertlab fit --print_config``: what would run, as a config file that does the same."""

import re
from collections.abc import Sequence
from typing import Any

import yaml

from bertlab import CommandError, __version__, nearest
from bertlab.extend import (
    Config,
    Request,
    add_to_json,
    build_parser,
    keys_of,
    names_below,
    parse_values,
    read_request,
    read_warm_start,
    say,
    whole_config,
)
from bertlab_conformance.commands import PRINT_CONFIG

_FORMS = ("skip_default", "skip_unset")
_ARGUMENTS = ("config", "ckpt_path")  # only on the command line
_OLDER = {"skip_null": "skip_unset"}  # jsonargparse's
# what decides which keys there are, and which defaults they have
_ALWAYS = re.compile(
    r"seed_everything|model\.(objectives|metrics)(\.\w+)?|(model|data)\.heads(\.[^.]+)?|data\.objectives|data\.transforms(\.\w+)?|data\.corpus\.source"
    r"|(model\.(encoder|head|heads\.[^.]+|optimizer|optimizer\.schedule)|data\.tokenizer_kind)\.name"
    r"|model\.optimizer\.schedule"
)


def main(arguments: list[str]) -> int:
    """Print the config that ``fit`` and its arguments stand for; run nothing."""
    command, *argv = arguments or [""]
    request = read_request(argv)
    forms = _read_forms(request.prints or "")
    if command != "fit" or request.ckpt_path is not None:
        raise CommandError(
            f"{PRINT_CONFIG}: expected bertlab fit without --ckpt_path; the config of a run that "
            "was begun is config.yaml in its directory"
        )
    if (warm := read_warm_start(request)) is not None:
        request.take_sizes(warm.encoder_config)
    text = printed_config(request, forms)
    add_to_json(config=yaml.safe_load(text))
    say(text)
    return 0


def _read_forms(given: str) -> list[str]:
    """Return what ``--print_config=FORM,…`` leaves out.

    ``skip_default``: keys at their default, but for plugins and the seed; ``skip_unset``: keys that
    are null by default, and are null.
    """
    names = [_OLDER.get(name, name) for name in given.split(",") if name]
    for name in names:
        if name not in _FORMS:
            comments = "; what a key means: bertlab fit --help all" if name == "comments" else ""
            raise CommandError(
                f"{PRINT_CONFIG}: found {name!r}{nearest(name, _FORMS)}, expected nothing, or "
                f"{PRINT_CONFIG}={' or '.join(_FORMS)}{comments}"
            )
    return names


def printed_config(request: Request, forms: Sequence[str]) -> str:
    """Return the config of ``bertlab fit`` as YAML: ``bertlab fit --config FILE`` does the same."""
    parser = build_parser("fit", request)
    defaults = whole_config(parser, parser.get_defaults(), request)
    # a seed that is not given is true
    content = whole_config(parser, parse_values(parser, request), request)
    content = {key: value for key, value in content.items() if key not in _ARGUMENTS}
    if forms:
        content = _shortened(content, defaults, keys_of(parser), forms)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    if not text.replace("\n", "").isprintable():  # a terminal, or who copies it, might change it
        text = yaml.safe_dump(content, sort_keys=False)
    return f"# bertlab {__version__}\n{text}"


def _shortened(
    content: Config, defaults: Config, known: set[str], forms: Sequence[str], above: str = ""
) -> Config:
    """Return a section without what need not be said."""
    kept: Config = {}
    for name, value in content.items():
        key, default = f"{above}{name}", defaults.get(name)
        if isinstance(value, dict) and names_below(key, known):
            below = default if isinstance(default, dict) else {}
            shown: Any = _shortened(value, below, known, forms, f"{key}.")
            skipped = shown == {}
        else:
            shown = value
            # as text: True is no 1, and 1 is no 1.0
            is_default = repr(value) == repr(default)
            skipped = is_default and ("skip_default" in forms or value is None)
        if _ALWAYS.fullmatch(key) or not skipped:
            kept[name] = shown
    return kept
