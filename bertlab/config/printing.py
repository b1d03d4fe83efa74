"""``--print_config``: what ``bertlab fit`` was asked for, as one config file that repeats the run.

Not jsonargparse's own: that leaves out plugins and a seed that stand at the defaults of the parser
which was made for them, and a null where the default is none.
"""

import re
from dataclasses import dataclass
from typing import Any

import yaml

from bertlab import __version__
from bertlab.config.parser import build_parser
from bertlab.config.request import Request
from bertlab.config.run_config import resolve_whole
from bertlab.config.unknown_keys import keys_of, names_below
from bertlab.config.yaml_files import Config
from bertlab.errors import CommandError, nearest

OPTION = "--print_config"
_FORMS = ("skip_default", "skip_unset")
_ARGUMENTS = ("config", "ckpt_path")  # only on the command line
_OLDER = {"skip_null": "skip_unset"}  # jsonargparse's
# what decides which keys there are, and which defaults they have
_ALWAYS = re.compile(
    r"seed_everything|model\.(objectives|metrics)(\.\w+)?|(model|data)\.heads(\.[^.]+)?|data\.objectives"
    r"|(model\.(encoder|head|heads\.[^.]+|optimizer|optimizer\.schedule)|data\.tokenizer_kind)\.name"
    r"|model\.optimizer\.schedule"
)


@dataclass(frozen=True)
class PrintedForm:
    """What a printed config leaves out; with nothing left out it has every key.

    Attributes:
        skips_defaults: keys that are at their default, but for plugins and the seed.
        skips_unset: keys that are null by default, and are null.
    """

    skips_defaults: bool = False
    skips_unset: bool = False


def read_form(given: str) -> PrintedForm:
    """Return the form that ``--print_config=FORM,…`` asks for."""
    names = [_OLDER.get(name, name) for name in given.split(",") if name]
    for name in names:
        if name not in _FORMS:
            comments = "; what a key means: bertlab fit --help all" if name == "comments" else ""
            raise CommandError(
                f"{OPTION}: found {name!r}{nearest(name, _FORMS)}, expected nothing, or "
                f"{OPTION}={' or '.join(_FORMS)}{comments}"
            )
    return PrintedForm("skip_default" in names, "skip_unset" in names)


def printed_config(request: Request, form: PrintedForm) -> str:
    """Return the config of ``bertlab fit`` as YAML: ``bertlab fit --config FILE`` does the same."""
    parser = build_parser("fit", request)
    content, defaults = resolve_whole(parser, request)
    content = {key: value for key, value in content.items() if key not in _ARGUMENTS}
    if form.skips_defaults or form.skips_unset:
        content = _shortened(content, defaults, keys_of(parser), form)
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    if not text.replace("\n", "").isprintable():  # a terminal, or who copies it, might change it
        text = yaml.safe_dump(content, sort_keys=False)
    return f"# bertlab {__version__}\n{text}"


def _shortened(
    content: Config, defaults: Config, known: set[str], form: PrintedForm, above: str = ""
) -> Config:
    """Return a section without what need not be said."""
    kept: Config = {}
    for name, value in content.items():
        key, default = f"{above}{name}", defaults.get(name)
        if isinstance(value, dict) and names_below(key, known):
            below = default if isinstance(default, dict) else {}
            shown: Any = _shortened(value, below, known, form, f"{key}.")
            skipped = shown == {}
        else:
            shown = value
            # as text: True is no 1, and 1 is no 1.0
            is_default = repr(value) == repr(default)
            skipped = is_default and (form.skips_defaults or (form.skips_unset and value is None))
        if _ALWAYS.fullmatch(key) or not skipped:
            kept[name] = shown
    return kept
