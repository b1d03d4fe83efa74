"""``bertlab ablate``: a study in one line, without a study file."""

import sys
from pathlib import Path
from typing import Any

from bertlab.cli.study import parse_options, run
from bertlab.config.overrides import parse_settings, parse_value
from bertlab.config.yaml_files import Config, take_options
from bertlab.errors import CommandError
from bertlab.studies.folder import study_folder
from bertlab.training.trainer import quiet_lightning

_USAGE = """usage: bertlab ablate --config CONFIG --vary 'KEY=VALUE,VALUE,…' [options]

  --vary 'objectives=[mlm],[mlm,nsp]'   values of a config key; the first one is the baseline.
                                        Several --vary: all combinations
  --set KEY=VALUE                       the same for all variants
  --evaluate_set KEY=VALUE              the same for all evaluations
  --seeds N                             3 by default
  --evaluate CONFIG                     fine-tune each on this as well; may be repeated
  --study_dir DIR                       runs/studies/ablate-CONFIG-KEY by default
  … and the options of bertlab study run
"""

_OWN = ("--config", "--vary", "--set", "--evaluate_set", "--seeds", "--evaluate", "--study_dir")


def main(command: str, argv: list[str]) -> int:
    """Run the study that the arguments describe; return the exit code."""
    del command
    if not argv or "-h" in argv or "--help" in argv:
        sys.stdout.write(_USAGE)
        return 0
    given, rest = take_options(argv, _OWN)
    options = parse_options("run", rest)
    quiet_lightning()
    place = Path(given["--study_dir"][-1]) if given["--study_dir"] else None
    return run([study_folder(_study(given), Path("ablate"), place)], **options)


def _study(given: dict[str, list[str]]) -> Config:
    """Return the content of the study file."""
    if len(given["--config"]) != 1 or not given["--vary"]:
        raise CommandError("ablate: expected one --config and --vary; see bertlab ablate --help")
    base = Path(given["--config"][0]).resolve()
    axes: dict[str, list[Any]] = {}
    for name, values in map(_axis, given["--vary"]):
        if name in axes:
            raise CommandError(f"--vary: {name} is there twice; give its values in one --vary")
        axes[name] = values
    content: Config = {
        "name": "-".join(["ablate", base.stem, *(name.rpartition(".")[2] for name in axes)]),
        "base": str(base),
        "axes": axes,
        "settings": parse_settings(given["--set"], "--set"),
        "evaluate_settings": parse_settings(given["--evaluate_set"], "--evaluate_set"),
        "evaluate": [str(Path(path).resolve()) for path in given["--evaluate"]],
    }
    if given["--seeds"]:
        content["seeds"] = parse_value(given["--seeds"][-1], "--seeds")
    return content


def _axis(given: str) -> tuple[str, list[Any]]:
    """Return key and values of ``KEY=VALUE,VALUE``; each value is YAML."""
    name, equals, text = given.partition("=")
    values = parse_value(f"[{text}]", "--vary") if equals else []
    if not name or len(values) < 2:
        raise CommandError(
            f"--vary: found {given!r}, expected KEY=VALUE,VALUE, as in 'objectives=[mlm],[mlm,nsp]'"
        )
    return name, values
