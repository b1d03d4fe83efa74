"""``bertlab study``: plan, run, watch and report an ablation."""

import contextlib
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser

from bertlab import CommandError, nearest
from bertlab.api import BertlabError, DataError
from bertlab.extend import (
    add_to_json,
    announce,
    describe_missing,
    is_url,
    parse_arguments,
    say,
)
from bertlab_studies.execute.contract import add_executor_options, option_names
from bertlab_studies.execute.executor import StudyExecutor
from bertlab_studies.settings import as_settings, check_reused, find_study, parse_settings

if TYPE_CHECKING:
    from bertlab_studies.report.report import Report
    from bertlab_studies.study import Study
else:
    Study = Any  # jsonargparse evaluates the annotations below, and the class would bring torch

_TRUSTING = ("run", "run-one", "add-seeds", "freeze")  # actions for those whose study it is
_EPILOG = """
STUDY is a study file, the name of one (studies/quickstart), or the directory of a study.
Options of an action:  bertlab study ACTION --help
"""


def main(argv: list[str]) -> int:
    """Run ``study``; return the exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        say(_usage())
        return 0
    action, rest = argv[0], as_settings(argv[1:])
    if action not in ACTIONS:
        raise CommandError(
            f"study: no action is called {action!r}{nearest(action, ACTIONS)} "
            f"(there are: {', '.join(ACTIONS)})"
        )
    parser = make_parser(action, rest)
    if "-h" in rest or "--help" in rest:
        parser.print_help()
        return 0
    options = vars(parse_arguments(parser, rest))
    take_executor_options(options)
    names = options.pop("study")
    if action == "import":
        return import_scores(names, **options)
    if not names:
        raise CommandError(f"study {action}: found no study, expected its file or directory")
    if len(names) > 1 and action != "compare":
        hint = f"; did you mean --seeds {names[1]}?" if names[1].isdigit() else ""
        raise CommandError(f"study {action}: found {' '.join(names)}, expected one study{hint}")
    study_dir = options.pop("study_dir")
    settings = parse_settings(options.pop("set"), "--set")
    evaluate_settings = parse_settings(options.pop("evaluate_set"), "--evaluate_set")
    for name in names:
        find_study(name)  # before torch is imported
    check_reused(options.get("reuse") or ())
    if (pilot := options.get("pilot")) is not None:
        _check_pilot(pilot)
    from bertlab.extend import quiet_lightning  # noqa: PLC0415
    from bertlab_studies.study import study  # noqa: PLC0415  imports torch, which help does without

    quiet_lightning()
    reads = contextlib.nullcontext() if action in _TRUSTING else _reading_only(names)
    with reads:
        opened = [
            study(name, study_dir, settings=settings, evaluate_settings=evaluate_settings)
            for name in names
        ]
        code: int = ACTIONS[action](opened if action == "compare" else opened[0], **options)
    return code


def _check_pilot(pilot: str) -> None:
    try:
        find_study(pilot)
    except BertlabError as error:
        raise type(error)(f"--pilot: {error}") from None


@contextlib.contextmanager
def _reading_only(names: list[str]) -> Iterator[None]:
    """Import no class that the directory of a study names, which may come from anywhere."""
    from bertlab.extend import ADVICE  # noqa: PLC0415  for its parsers

    folders = [Path(name) for name in names if Path(name).is_dir()]
    if not folders:  # a study file is the user's own
        yield
        return
    file = shlex.quote(str(folders[0] / "study.yaml"))
    before = ADVICE.set(
        "it is not imported for the directory of a study, which may come from anywhere; if you "
        f"trust it, give its file: {file} --study_dir {shlex.quote(str(folders[0]))}"
    )
    try:
        yield
    finally:
        ADVICE.reset(before)


def _usage() -> str:
    lines = [f"  {name:<10} {_first_line(act)}" for name, act in ACTIONS.items()]
    head = "usage: bertlab study ACTION STUDY … [options]\n\n"
    return head + "\n".join(lines) + "\n" + _EPILOG


def _first_line(act: Callable[..., int]) -> str:
    # "Print how far each run is." -> "print how far each run is"
    text = (act.__doc__ or "").partition("\n")[0].rstrip(".")
    return text[0].lower() + text[1:]


def make_parser(action: str, argv: Sequence[str] | None = None) -> ArgumentParser:
    """Return the parser of an action's options, with those of the executor that ``argv`` names."""
    parser = ArgumentParser(
        prog=f"bertlab study {action}",
        description=f"{(ACTIONS[action].__doc__ or '').partition(chr(10))[0]}",
        exit_on_error=False,
    )
    if action == "import":
        parser.add_argument("study", nargs="*", metavar="FILE", help="table of scores")
    else:
        parser.add_argument(
            "study", nargs="*", metavar="STUDY", help="study file, or its directory"
        )
        parser.add_argument(
            "--study_dir", metavar="DIR", help="where it is kept; runs/studies/NAME if not given"
        )
        add_settings(parser)
    # an action's signature and docstring are its options and their help
    parser.add_function_arguments(ACTIONS[action], skip={"study", "studies", "files", "options"})
    if action == "run":
        add_executor_options(parser, argv or (), StudyExecutor)
    return parser


def take_executor_options(options: dict[str, Any]) -> None:
    """Put the options of the executor, if the action has one, below ``options``."""
    if "executor" in options:
        names = option_names(options["executor"], StudyExecutor)
        options["options"] = {name: options.pop(name) for name in names}


def add_settings(parser: ArgumentParser) -> None:
    """Add ``--set`` and ``--evaluate_set``, which may be repeated."""
    for option, of, also in (
        ("--set", "all variants", "; --KEY VALUE, as of bertlab fit, is the same"),
        ("--evaluate_set", "all evaluations, or NAME.KEY=VALUE for one", ""),
    ):
        parser.add_argument(
            option,
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help=f"a config key for {of}; may be repeated{also}",
        )


def run(
    study: Study,
    executor: str = "local",
    reuse: str | list[str] | None = None,
    accept_changes: bool = False,
    accept_mixture: bool = False,
    options: Mapping[str, Any] | None = None,
) -> int:
    """Run what is not done yet, then print and write the report.

    Args:
        study: that is run.
        executor: what executes the runs: ``local``, ``ray`` or ``slurm`` of bertlab-cluster, or
            that of a plugin; ``--executor NAME --help`` shows its options.
        reuse: directory of a study, or a list, whose finished pre-trainings are taken over if they
            are the same.
        accept_changes: go on though the study changed; runs that are not asked any more are left
            out of the report.
        accept_mixture: go on though runs are not of the same data; every table is marked.
        options: of the executor.
    """
    from bertlab_studies.execute.executor import go_on_with  # noqa: PLC0415
    from bertlab_studies.execute.schedule import StudyStopped  # noqa: PLC0415

    runs_in = study.study_dir
    try:
        summary = study.run(
            executor=executor,
            reuse=reuse or (),
            accept_changes=accept_changes,
            accept_mixture=accept_mixture,
            **options or {},
        )
    except StudyStopped as stopped:
        summary, runs_in = stopped.summary, stopped.study_dir
    for line in summary.lines(runs_in, go_on_with(study.study_dir, executor)):
        say(line)
    report = study.report(accept_mixture=accept_mixture) if summary.done else None
    if report is not None:
        _print(report)
    if not summary.left and not summary.jobs:
        announce(
            "bertlab_study_ended",
            study_dir=study.study_dir,
            done=summary.done,
            failed=summary.failed | summary.blocked,
            files=() if report is None else report.files,
        )
    return summary.exit_code


def plan(study: Study, reuse: str | list[str] | None = None, say_cost: bool = True) -> int:
    """Print the runs and what they cost; run nothing.

    Args:
        study: that is planned.
        reuse: directory of a study, or a list, whose finished pre-trainings could be taken over.
        say_cost: time a few steps, and say what the study takes of this machine.
    """
    study.plan(reuse or ()).print()
    _add_runs(study)
    if say_cost:
        from bertlab_studies.machine_time import machine_line  # noqa: PLC0415

        if (line := machine_line(study)) is not None:
            say(line)
    return 0


def design(
    study: Study,
    pilot: str | None = None,
    earlier: str | None = None,
    deviation: float | None = None,
    finetune_deviation: float | None = None,
    row_deviation: float | None = None,
    rows: int | None = None,
    effect: float = 1.0,
    measure: str | None = None,
) -> int:
    """Print how many seeds, fine-tunings and rows an effect needs; run nothing.

    Numbers are in percentage points where a share decides, such as accuracy, else in its own units.

    Args:
        study: that is designed.
        pilot: directory of an earlier study, or of this one: its deviations are taken.
        earlier: record of earlier studies (study report --record), in place of --deviation.
        deviation: over seeds of pre-training, without --pilot; 0.3 to 1.5 points are usual, and
            more on few rows. With --finetune_deviation it is what is left when fine-tunings are
            averaged away, else that of single results.
        finetune_deviation: over fine-tunings of one pre-training; 0.3 to 3 points are usual.
        row_deviation: over rows, of the difference of two variants' scores of one row, each the
            mean over seeds; 15 to 30 points are usual of accuracy. Needs --rows. Of rows in
            clusters, over clusters, and --rows is their number.
        rows: of the test set; with --pilot, if it will not be as many as there.
        effect: the true difference that matters.
        measure: the only one that is looked at, such as 'mrpc f1'.
    """
    from bertlab_studies.design_table import GivenDeviations, design_tables  # noqa: PLC0415
    from bertlab_studies.study import study as open_study  # noqa: PLC0415

    with _reading_only([] if pilot is None else [pilot]):
        run = None if pilot is None else open_study(pilot)
    record = None if earlier is None else Path(earlier)
    given = GivenDeviations(deviation, finetune_deviation, row_deviation, rows, record)
    for table in design_tables(study, run, given, effect, measure):
        table.print()
    return 0


def freeze(study: Study, reason: str = "") -> int:
    """Register what is tested and how, with a hash and a date; later changes are shown.

    Args:
        study: before its first run, or after a change.
        reason: of a change.
    """
    from bertlab.extend import yaml_inline  # noqa: PLC0415
    from bertlab_studies.report.analysis import ANALYSIS, digest  # noqa: PLC0415

    is_new, analysis = study.freeze(reason), study.analysis()
    for key, value in analysis.items():
        say(f"{key}: {yaml_inline(value)}")
    done = "written down" if is_new else "nothing changed since it was written down"
    say(f"{study.study_dir / ANALYSIS}: {done}; SHA-256 {digest(analysis)}")
    return 0


def status(study: Study) -> int:
    """Print how far each run is."""
    study.status().print()
    _add_runs(study)
    return 0


def report(study: Study, accept_mixture: bool = False, record: str | None = None) -> int:
    """Print and write the table, findings and plots of what is done.

    Args:
        study: that was run.
        accept_mixture: mark every table where runs are not of the same data.
        record: file that the noise over seeds of a whole study is added to, for the earlier_noise
            of later ones.
    """
    _print(study.report(accept_mixture=accept_mixture, record=record))
    return 0


def compare(
    studies: list[Study], output: str = "runs/studies/comparison", accept_mixture: bool = False
) -> int:
    """Print and write one table of several studies.

    Args:
        studies: two or more.
        output: folder of the report.
        accept_mixture: mark the tables where runs of a study are not of the same data.
    """
    from bertlab_studies.study import compare as compare_studies  # noqa: PLC0415

    _print(compare_studies(studies, Path(output), accept_mixture))
    return 0


def import_scores(
    files: list[str],
    baseline: str | None = None,
    decide: list[str] | None = None,
    lower: list[str] | None = None,
    columns: dict[str, str] | None = None,
    delimiter: str | None = None,
    output: str | None = None,
) -> int:
    """Report scores of runs that bertlab did not make, from a table.

    The table has a column variant, a column seed, and either measure and score, or a column for
    each measure; with a column row, a score for each row of the test set.

    Args:
        files: the table: CSV, TSV, JSON lines, JSON or Parquet.
        baseline: the variant that others are compared with; the first if not given.
        decide: measures that variants are compared by, as in '[mnli accuracy]'; all if not given.
        lower: measures whose lower end is better, beside those called loss, perplexity or error.
        columns: the table's own names, as in '{variant: Model, seed: Run}'.
        delimiter: between cells; found out if not given.
        output: folder of the report; runs/studies/NAME-OF-THE-FILE if not given.
    """
    if len(files) != 1:
        raise CommandError(f"study import: found {' '.join(files) or 'no file'}, expected one file")
    if not is_url(files[0]) and not Path(files[0]).expanduser().exists():
        raise DataError(describe_missing(files[0], (), "a table: CSV, TSV, JSON or Parquet"))
    from bertlab_studies.imported_scores import import_scores as read_scores  # noqa: PLC0415
    from bertlab_studies.report.render import write_report  # noqa: PLC0415
    from bertlab_studies.report.report import report_of  # noqa: PLC0415

    scores = read_scores(
        files[0],
        baseline=baseline,
        decide=decide or (),
        lower=lower or (),
        columns=columns,
        delimiter=delimiter,
    )
    found = report_of(scores)
    folder = Path("runs") / "studies" / scores.name if output is None else Path(output)
    _print(replace(found, files=tuple(write_report(found, folder))))
    return 0


def add_seeds(
    study: Study,
    seeds: int | list[int] | None = None,
    finetune_seeds: int | list[int] | None = None,
) -> int:
    """Ask for more seeds; ``bertlab study run`` then runs what is new.

    Args:
        study: which was run.
        seeds: how many in all, or a list of them.
        finetune_seeds: how many fine-tunings of each pre-training in all, or a list of seeds.
    """
    from bertlab_studies.execute.executor import go_on_with  # noqa: PLC0415

    wanted = study.add_seeds(seeds, finetune_seeds).config
    nested = wanted.finetune_seeds
    each = "" if nested is None else f", {len(nested)} fine-tunings of each"
    found = f"{len(wanted.seeds)} seeds{each}"
    say(f"{found}; continue with: {go_on_with(study.study_dir, 'local')}")
    return 0


def run_one(study: Study, run: str, threads: int | None = None) -> int:
    """Make one attempt at one run, as a job of your own scheduler may do; nothing if it is done.

    Args:
        study: that has the run.
        run: its id, as `plan` shows it.
        threads: CPU threads.
    """
    return study.run_one(run, threads)


def _add_runs(study: Study) -> None:
    """Give programs each run of a study, with its cost and state."""
    from bertlab_studies.tables import run_records  # noqa: PLC0415

    add_to_json(study=study.study_dir, runs=run_records(study.planned, study.study_dir))


def _print(found: "Report") -> None:
    """Print a report and where its files are."""
    from bertlab_studies.report.render import print_report  # noqa: PLC0415

    words = {"findings": found.findings, "warnings": found.warnings, "legend": found.legend}
    add_to_json(report={"scores": found.records(), **words, "files": found.files})
    print_report(found)
    page, *others = found.files
    names = [path.name for path in others if path.suffix not in (".svg", ".pdf")]
    figures = " and figures as SVG and PDF" if len(names) < len(others) else ""
    say(f"report: {page} ({', '.join(names)}{figures})")


ACTIONS: dict[str, Callable[..., Any]] = {
    "run": run,
    "plan": plan,
    "design": design,
    "freeze": freeze,
    "status": status,
    "report": report,
    "compare": compare,
    "import": import_scores,
    "add-seeds": add_seeds,
    "run-one": run_one,
}
