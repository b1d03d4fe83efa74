"""``bertlab ablate``: a study in one line, without a study file."""

from collections.abc import Sequence
from typing import Any

from jsonargparse import ArgumentParser

from bertlab import CommandError
from bertlab.extend import Config, find_config, parse_arguments
from bertlab_studies.execute.contract import add_executor_options
from bertlab_studies.execute.executor import StudyExecutor
from bertlab_studies.settings import as_settings, parse_settings, parse_value
from bertlab_studies.study_command import add_settings, run, take_executor_options


def main(argv: list[str]) -> int:
    """Run the study that the arguments describe; return the exit code."""
    if argv and not argv[0].startswith("-"):  # quickstart --vary …
        argv = ["--config", *argv]
    argv = as_settings(argv)
    parser = make_parser(argv)
    if not argv or "-h" in argv or "--help" in argv:
        parser.print_help()
        return 0
    options = vars(parse_arguments(parser, argv))
    take_executor_options(options)
    study_dir = options.pop("study_dir")
    given = {name: options.pop(name) for name in ("config", "vary", "seeds", "evaluate")}
    content = _study_content(**given)
    settings = parse_settings(options.pop("set"), "--set")
    of_evaluations = parse_settings(options.pop("evaluate_set"), "--evaluate_set")
    from bertlab.extend import quiet_lightning  # noqa: PLC0415
    from bertlab_studies.study import study  # noqa: PLC0415  imports torch, which help does without

    quiet_lightning()
    found = study(content, study_dir, settings=settings, evaluate_settings=of_evaluations)
    return run(found, **options)


def make_parser(argv: Sequence[str] | None = None) -> ArgumentParser:
    """Return the parser of the options, with those of the executor that ``argv`` names."""
    parser = ArgumentParser(
        prog="bertlab ablate",
        usage="bertlab ablate CONFIG --vary 'KEY=VALUE,VALUE,…' [options]",
        description="Run a study that compares values of config keys, then report it.",
        exit_on_error=False,
    )
    for option, metavar, text in (
        ("--config", "CONFIG", "config of bertlab fit, a file or a name (required)"),
        (
            "--vary",
            "KEY=VALUE,…",
            "values of a config key, as in 'objectives=[mlm],[mlm,nsp]' (required); the first one "
            "is the baseline; several --vary: all combinations",
        ),
        (
            "--evaluate",
            "CONFIG",
            "fine-tune each variant on this as well, or score it, as a study file says: '{loss: "
            "{evaluation: held_out_loss, data: TEXT}}'; may be repeated",
        ),
    ):
        parser.add_argument(option, action="append", default=[], metavar=metavar, help=text)
    add_settings(parser)
    parser.add_argument(
        "--seeds",
        metavar="N",
        help="a number of seeds, a list, or '{pretrain: 3, finetune: 5}'; 3 if not given",
    )
    parser.add_argument(
        "--study_dir", metavar="DIR", help="runs/studies/ablate-CONFIG-KEY if not given"
    )
    parser.add_function_arguments(run, skip={"study", "options"})
    add_executor_options(parser, argv or (), StudyExecutor)
    return parser


def _study_content(
    config: list[str],
    vary: list[str],
    seeds: str | None,
    evaluate: list[str],
) -> Config:
    """Return the content of the study file, without settings for all variants."""
    if len(config) != 1 or not vary:
        raise CommandError("ablate: expected one config and --vary; see bertlab ablate --help")
    # a study keeps its base by path and may go on from another directory
    base = find_config(config[0]).resolve()
    axes: dict[str, list[Any]] = {}
    for name, values in map(_axis, vary):
        if name in axes:
            raise CommandError(f"--vary: {name} is there twice; give its values in one --vary")
        axes[name] = values
    content: Config = {
        # ablate-quickstart-causal, of quickstart.yaml and encoder.causal
        "name": "-".join(["ablate", base.stem, *(name.rpartition(".")[2] for name in axes)]),
        "base": str(base),
        "axes": axes,
        "evaluate": _evaluations(evaluate),
    }
    if seeds is not None:
        content["seeds"] = parse_value(seeds, "--seeds")
    return content


def _evaluations(given: list[str]) -> Config:
    """Return evaluations by name, of config files and of mappings as a study file has them."""
    found: Config = {}
    for each in given:
        if each.lstrip().startswith("{"):
            named = parse_value(each, "--evaluate")
        else:
            path = find_config(each).resolve()
            named = {path.stem: str(path)}
        for name in named:
            if name in found:
                raise CommandError(f"--evaluate: {name} is there twice; give it once")
        found |= named
    return found


def _axis(given: str) -> tuple[str, list[Any]]:
    """Return key and values of ``KEY=VALUE,VALUE``; each value is YAML."""
    name, equals, text = given.partition("=")
    # objectives=[mlm],[mlm,nsp] -> "[[mlm],[mlm,nsp]]" -> [["mlm"], ["mlm", "nsp"]]
    values = parse_value(f"[{text}]", "--vary") if equals else []
    if not name or len(values) < 2:
        raise CommandError(
            f"--vary: found {given!r}, expected KEY=VALUE,VALUE, as in 'objectives=[mlm],[mlm,nsp]'"
        )
    return name, values
