"""``bertlab evaluate``: score a model without training it, such as on BLiMP."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bertlab import CommandError, nearest
from bertlab.api import ConfigError
from bertlab.extend import find_config, needs_value, read_config, say, split_arguments

if TYPE_CHECKING:
    from bertlab_evaluations.entries import EvaluationEntry

_USAGE = """usage: bertlab evaluate --ckpt_path MODEL --evaluation NAME --data PATH [options]
       bertlab evaluate --ckpt_path MODEL --config FILE [--output FOLDER]

Score a model without training it. Results are printed and written: results.json, and of each
evaluation NAME.rows.jsonl (a score for each row), NAME.groups.csv (means and 95 % intervals) and
NAME.html (tables and pictures).

  --ckpt_path MODEL   run directory, checkpoint, Hugging Face folder or hub name
  --evaluation NAME   {names}
  --config FILE       several at once, as evaluations/all
  --name NAME         what the figures are called; the evaluation's name if not given
  --words_checkpoints true
                      score each words-….ckpt of the run as well: NAME.words.csv
  --output FOLDER     RUN/evaluations/step-N if not given; evaluations/MODEL of what is no run

Options of an evaluation:  bertlab evaluate --evaluation NAME --help
"""
OPTIONS = (
    "--ckpt_path",
    "--evaluation",
    "--config",
    "--name",
    "--output",
    "--words_checkpoints",
)


def _take_options(
    argv: Sequence[str], keys: Sequence[str]
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the values given for each of ``keys``, and the other arguments as they are.

    Raises:
        CommandError: if one of them has no value.
    """
    taken: dict[str, list[str]] = {key: [] for key in keys}
    rest: list[str] = []
    for key, value, tokens in split_arguments(argv):
        if key in taken:
            taken[key].append(needs_value(key, value))
        else:
            rest += tokens
    return taken, rest


def main(command: str, argv: list[str]) -> int:
    """Run ``evaluate``; return the exit code."""
    taken, rest = _take_options(argv, OPTIONS)
    given = {key: values[-1] for key, values in taken.items() if values}
    helping = "-h" in rest or "--help" in rest
    if not argv or (helping and "--evaluation" not in given):
        from bertlab.extend import installed  # noqa: PLC0415  reads the entry points

        say(_USAGE.format(names=", ".join(installed("evaluation"))))
        return 0
    if ("--evaluation" in given) == ("--config" in given):
        raise CommandError(f"{command}: expected --evaluation NAME or --config FILE, one of them")
    along = _is_true(given.get("--words_checkpoints", "false"))
    entries = _entries(given, rest)
    if "--ckpt_path" not in given:
        raise CommandError(
            f"{command}: expected --ckpt_path with a run, checkpoint or model folder"
        )
    from bertlab.extend import quiet_lightning  # noqa: PLC0415
    from bertlab_evaluations.evaluate import evaluate_source  # noqa: PLC0415  torch, not for --help

    quiet_lightning()
    typed, output = [command, *argv], given.get("--output")
    evaluate_source(given["--ckpt_path"], entries, output, typed, along)
    return 0


def _is_true(given: str) -> bool:
    if given not in ("true", "false"):
        raise CommandError(f"--words_checkpoints: found {given!r}, expected true or false")
    return given == "true"


def _entries(given: dict[str, str], rest: list[str]) -> "list[EvaluationEntry]":
    from bertlab.extend import parse_arguments  # noqa: PLC0415
    from bertlab_evaluations.entries import (  # noqa: PLC0415  torch, not for --help
        entry_parser,
        make_entry,
        read_entries,
    )

    if "--config" not in given:
        plugin = given["--evaluation"]
        parser = entry_parser(plugin)
        return [make_entry(given.get("--name", plugin), parse_arguments(parser, rest))]
    if rest or "--name" in given:
        raise CommandError(
            f"evaluate: found {shlex.join(rest) or '--name'} beside --config, expected it in the "
            "file, below the evaluation's name"
        )
    path = find_config(given["--config"])
    content = read_config(path)
    for key in content:
        if key != "evaluations":
            hint = nearest(str(key), ["evaluations"])
            raise ConfigError(f"{path}: no key is called {key!r}{hint} (there is: evaluations)")
    return read_entries(content.get("evaluations"), f"{path}: evaluations")
