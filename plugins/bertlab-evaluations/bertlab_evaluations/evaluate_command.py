"""``bertlab evaluate``: score a model without training it, such as on BLiMP."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertlab import CommandError, nearest
from bertlab.api import ConfigError
from bertlab.extend import (
    Config,
    check_model,
    find_config,
    installed,
    is_missing,
    needs_value,
    no_such_file,
    read_config,
    say,
    shipped_configs,
    split_arguments,
)

if TYPE_CHECKING:
    from bertlab_evaluations.entries import EvaluationEntry

_USAGE = """usage: bertlab evaluate MODEL NAME [--data PATH] [options]
       bertlab evaluate MODEL --config FILE [--output FOLDER]

Score a model without training it. Results are printed and written: results.json, and of each
evaluation NAME.rows.jsonl (a score for each row), NAME.groups.csv (means and 95 % intervals) and
NAME.html (tables and pictures).

  MODEL               run directory, checkpoint, Hugging Face folder or hub name (or --ckpt_path)
  NAME                {known}
                      (configs/evaluations; --data PATH if their data is elsewhere), or with
                      --data PATH one of {names}
  --config FILE       several at once, as evaluations/all
  --name NAME         what the figures are called; the evaluation's name if not given
  --words_checkpoints true
                      score each words-….ckpt of the run as well: NAME.words.csv
  --output FOLDER     RUN/evaluations/step-N if not given; evaluations/MODEL of what is no run

Options of an evaluation:  bertlab evaluate NAME --help
"""
_FOLDER = "evaluations/"  # in the names of these configs
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
    helping = "-h" in argv or "--help" in argv
    taken, rest = _take_options(_named(argv, helping), OPTIONS)
    given = {key: values[-1] for key, values in taken.items() if values}
    if not argv or (helping and "--evaluation" not in given):
        say(_USAGE.format(names=", ".join(installed("evaluation")), known=", ".join(_known())))
        return 0
    if ("--evaluation" in given) == ("--config" in given):
        both = "; found both" if "--config" in given else f" (NAME: {', '.join(_names())})"
        raise CommandError(f"{command}: expected NAME or --config FILE, one of them{both}")
    if "--ckpt_path" in given:
        check_model(given["--ckpt_path"])
    along = _is_true(given.get("--words_checkpoints", "false"))
    entries = _entries(given, rest)
    if "--ckpt_path" not in given:
        raise CommandError(
            f"{command}: expected MODEL, a run, checkpoint or model folder, as in "
            "bertlab evaluate runs/quickstart blimp"
        )
    from bertlab.extend import quiet_lightning  # noqa: PLC0415
    from bertlab_evaluations.evaluate import evaluate_source  # noqa: PLC0415  torch, not for --help

    quiet_lightning()
    typed, output = [command, *argv], given.get("--output")
    evaluate_source(given["--ckpt_path"], entries, output, typed, along)
    return 0


def _known() -> list[str]:
    """Return the names of the configs of evaluations that come with bertlab."""
    return [name.removeprefix(_FOLDER) for name in shipped_configs() if name.startswith(_FOLDER)]


def _names() -> list[str]:
    """Return what NAME may be: a config of an evaluation, or an evaluation that takes --data."""
    return list(dict.fromkeys([*_known(), *installed("evaluation")]))


def _named(argv: list[str], helping: bool) -> list[str]:
    """Return arguments with the options that MODEL and NAME in front of all stand for."""
    first_option = next((n for n, each in enumerate(argv) if each.startswith("-")), len(argv))
    words, rest = argv[:first_option], argv[first_option:]
    given = {each.partition("=")[0] for each in rest}
    if len(words) > 2:
        raise CommandError(f"evaluate: found {shlex.join(words)}, expected MODEL NAME")
    options: list[str] = []
    model = None
    is_name = len(words) == 1 and words[0] in _names() and not Path(words[0]).exists()
    if is_name and not helping and "--ckpt_path" not in given:
        raise CommandError(
            f"evaluate: found {words[0]} and no model, expected the model first: "
            f"bertlab evaluate MODEL {words[0]}"
        )
    if words and not is_name and (not helping or len(words) > 1):
        model = words.pop(0)
        if "--ckpt_path" in given:
            raise CommandError(f"evaluate: found {model} and --ckpt_path, expected one model")
        options += ["--ckpt_path", model]
    for name in (each.removeprefix(_FOLDER) for each in words):  # as studies/NAME is a study
        if other := {"--evaluation", "--config"} & given:
            raise CommandError(f"evaluate: found {name} and {min(other)}, expected one of them")
        is_config = name in _known() or name.endswith(".yaml")
        if not is_config:
            _check_name(name, model)
        # attention --help: of the class; attention alone: of the config
        by_class = name in installed("evaluation") and (helping or "--data" in given)
        if is_config and not by_class:
            options += ["--config", f"{_FOLDER}{name}" if name in _known() else name]
        else:
            options += ["--evaluation", name]
    return [*options, *rest]


def _check_name(name: str, model: str | None) -> None:
    """Refuse a name that is nearly a known one, or stands in the model's place, before imports."""
    known = _names()
    if any(name in (each, each.rpartition(":")[2]) for each in known):
        return
    if model in known:
        typed = shlex.join(["bertlab", "evaluate", name, str(model)])
        raise CommandError(f"evaluate: found {model} {name}, expected the model first: {typed}")
    if Path(name).is_file():
        typed = f"bertlab evaluate {shlex.quote(model or 'MODEL')} NAME --data {shlex.quote(name)}"
        raise CommandError(f"evaluate: found the file {name}, expected an evaluation: {typed}")
    if hint := nearest(name, known):
        raise CommandError(f"evaluate: no evaluation is called {name!r}{hint}")


def _is_true(given: str) -> bool:
    if given not in ("true", "false"):
        raise CommandError(f"--words_checkpoints: found {given!r}, expected true or false")
    return given == "true"


def _entries(given: dict[str, str], rest: list[str]) -> "list[EvaluationEntry]":
    if given.get("--evaluation") in installed("evaluation"):
        _check_data(rest)
    if "--config" not in given:
        from bertlab.extend import parse_arguments  # noqa: PLC0415
        from bertlab_evaluations.entries import entry_parser, make_entry  # noqa: PLC0415  torch

        plugin = given["--evaluation"]
        parser = entry_parser(plugin)
        return [make_entry(given.get("--name", plugin), parse_arguments(parser, rest))]
    path = find_config(given["--config"])
    content = read_config(path)
    rest = _with_data(content, rest, path)
    if rest or "--name" in given:
        raise CommandError(
            f"evaluate: found {shlex.join(rest) or '--name'} beside --config, expected it in the "
            "file, below the evaluation's name"
        )
    for key in content:
        if key != "evaluations":
            hint = nearest(str(key), ["evaluations"])
            raise ConfigError(f"{path}: no key is called {key!r}{hint} (there is: evaluations)")
    from bertlab_evaluations.entries import read_entries  # noqa: PLC0415  torch, not for --help

    return read_entries(content.get("evaluations"), f"{path}: evaluations")


def _check_data(rest: list[str]) -> None:
    """Refuse rows that are not given or not there, before torch is imported.

    Where there are other settings, the parser looks at all of them.
    """
    taken, others = _take_options(rest, ["--data"])
    found = taken["--data"]
    if others:
        return
    if not found:
        raise ConfigError("missing: --data")
    if is_missing(found[-1]):
        raise no_such_file(found[-1])


def _with_data(content: Config, rest: list[str], path: Path) -> list[str]:
    """Put what ``--data`` gives into a config of one evaluation; return the other arguments.

    Raises:
        CommandError: the config has several, or its data is not there.
    """
    taken, others = _take_options(rest, ["--data"])
    found = content.get("evaluations")
    entries = (
        [each for each in found.values() if isinstance(each, dict)]
        if isinstance(found, dict)
        else []
    )
    if taken["--data"]:
        if len(entries) != 1:
            raise CommandError(f"--data: {path} has {len(entries)} evaluations, expected one")
        entries[0]["data"] = taken["--data"][-1]
    elif path in shipped_configs().values():
        for each in entries:
            data = str(each.get("data"))
            if data.startswith("../") and not Path(data).exists():
                raise CommandError(
                    f"evaluate: {path.stem} reads {data}, which is not here; expected --data PATH "
                    f"({path} says of what)"
                )
    return others
