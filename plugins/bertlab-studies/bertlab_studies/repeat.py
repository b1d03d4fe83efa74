"""``fit --seeds`` and ``fit --against_scratch``: a study of one or two variants, and its table.

Its runs lie where those of ``fit`` do: ``RUN_DIR`` or ``RUN_DIR/seed-S``, and what starts from new
random weights below ``RUN_DIR/from-scratch``. The same command, given again, goes on with it.
"""

import contextlib
import json
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from bertlab.api import ConfigError
from bertlab.extend import (
    MANIFEST_FILE,
    Config,
    NoValue,
    Request,
    Results,
    Shares,
    add_to_json,
    check_nothing_leads_out,
    choose_run_directory,
    differences,
    is_share,
    make_folder,
    print_table,
    read_object,
    read_request,
    read_results,
    read_shares,
    resolve_request,
    say,
    shown_figure,
    split_arguments,
    without_secrets,
    write_json,
)
from bertlab_studies.errors import MixtureError, StudyChangedError
from bertlab_studies.execute.execution import FIT
from bertlab_studies.execute.live_table import event_line
from bertlab_studies.execute.local import LocalWorkers
from bertlab_studies.execute.run_state import STATE_ENTRIES, State, read_attempts
from bertlab_studies.execute.schedule import Change, OnChange, Schedule, run_all
from bertlab_studies.execute.warm_parent import WarmParent
from bertlab_studies.plan.checks import check_config, known_encoder
from bertlab_studies.plan.plan import PlannedRun
from bertlab_studies.plan.seed_parts import seed_list
from bertlab_studies.plan.study_file import BASE
from bertlab_studies.report.sameness import manifest_of
from bertlab_studies.settings import PLAN, parse_value

FROM_SCRATCH = "from-scratch"
PRE_TRAINED = "pre-trained"
RESULT = "repeated.json"  # the table, written when all runs are done
_KEYS = ("seeds", "against_scratch")  # that ask for runs
_OPTIONS = tuple(f"--{key}" for key in (*_KEYS, "keep_predictions", "run_dir"))
_ECHO_INTERVAL = 0.2  # seconds between looks at the runs' logs
Spread = dict[str, dict[str, float | None]]


@dataclass(frozen=True)
class Repetition:
    """Runs that differ in their seed, or in whether they start from pre-trained weights.

    Attributes:
        arguments: of ``fit`` for each run, without seed and directory.
        study_dir: ``RUN_DIR``, which holds all of it.
        seeds: one for each run; None for one run with the config's seed.
        against_scratch: whether each is also run from new random weights.
    """

    arguments: tuple[str, ...]
    study_dir: Path
    seeds: tuple[int, ...] | None
    against_scratch: bool

    def runs(self) -> list[PlannedRun]:
        """Return the runs: each seed's, and after it the same from scratch."""
        return [
            self.run(seed, scratch)
            for seed in self.seeds or (None,)
            for scratch in ((False, True) if self.against_scratch else (False,))
        ]

    def run(self, seed: int | None, scratch: bool) -> PlannedRun:
        """Return one run."""
        # a list times True or False: once or not at all
        names = [FROM_SCRATCH] * scratch + ([] if seed is None else [f"seed-{seed}"])
        more = [] if seed is None else [f"--seed_everything={seed}"]
        more += ["--model.from_scratch=true"] * scratch
        return PlannedRun(
            id="-".join(names) or PRE_TRAINED,
            stage=BASE,
            variant=FROM_SCRATCH if scratch else PRE_TRAINED,
            seed=seed or 0,
            arguments=(*self.arguments, *more),
            place="/".join(names) or ".",
        )


@dataclass(frozen=True)
class RepeatedFit:
    """What ``bertlab fit`` runs where it is to repeat a run."""

    request: Request

    @property
    def directory(self) -> Path:
        """There is none of one run, which ``bertlab.fit`` would return."""
        raise ConfigError(
            "seeds, against_scratch: found in the config, expected one run; use bertlab.study, "
            "or `bertlab fit` on the command line"
        )

    def run(self) -> int:
        """Run what is not done yet; return the exit code."""
        return fit_repeatedly(find_repetition(self.request))


def asks_for_runs(request: Request) -> bool:
    """Whether ``fit`` is to repeat a run.

    A run that goes on (``--ckpt_path``) is one run, whatever its config file says.

    Raises:
        ConfigError: if an argument asks for runs beside a checkpoint.
    """
    wanted = [key for key in _KEYS if not _is_off(_given(request, key))]
    if request.ckpt_path is None:
        return bool(wanted)
    for key in wanted:
        if request.is_argument(key):
            raise ConfigError(f"--{key} and --ckpt_path: give one of them, not both")
    return False


def find_repetition(request: Request) -> Repetition:
    """Return what ``fit`` is to repeat by its arguments and config files.

    Raises:
        ConfigError: if the seeds are none or stand beside a seed, there is no pre-trained model to
            compare with, or a run's config is wrong.
        StudyChangedError: if ``--run_dir`` holds runs of another config.
    """
    asked: Config = {path.name: content for path, content in request.files}
    rest: list[str] = []
    requested: str | None = None
    for key, value, tokens in split_arguments(request.argv):
        requested = value if key == "--run_dir" else requested
        if key not in _OPTIONS:
            rest += tokens
            asked |= {} if key in ("--config", "-c") else {key: value}
    seeds, scratch, keeps = (_given(request, key) for key in (*_KEYS, "keep_predictions"))
    if not _is_off(seeds) and request.is_argument("seed_everything"):
        raise ConfigError("--seeds and --seed_everything: give one of them, not both")
    against_scratch = not _is_off(scratch)
    if against_scratch and request.init_from is None:
        raise ConfigError(
            "against_scratch: found no pre-trained model to compare with, expected "
            "--model.init_from; or take against_scratch out"
        )
    kept = "false" if _is_off(keeps) else keeps
    rest += ["--seeds=null", "--against_scratch=false", f"--keep_predictions={kept}"]
    numbers = None if _is_off(seeds) else tuple(seed_list(parse_value(seeds, "--seeds")))
    named = read_request(rest)
    config = resolve_request(named)
    check_config(named, config, known_encoder(config))
    asked = json.loads(
        json.dumps(without_secrets(asked), default=str)
    )  # as it is read back, to be compared
    study_dir = _choose_directory(requested, request.run_name, asked)
    make_folder(study_dir)
    write_json(study_dir / PLAN, asked)
    return Repetition(tuple(rest), study_dir, numbers, against_scratch)


def _given(request: Request, key: str) -> str:
    """Return the value of a key as YAML; an argument's is a text already."""
    found = request.values.get(key)
    found = None if isinstance(found, NoValue) else found  # the parser says so
    return found if isinstance(found, str) else json.dumps(found, default=str)


def _is_off(given: str) -> bool:
    """Whether a value in YAML asks for nothing: ``False`` and ``no`` do as ``false`` does."""
    value = parse_value(given, "--seeds, --against_scratch, --keep_predictions")
    return value is None or value is False


def fit_repeatedly(repetition: Repetition) -> int:
    """Run what is not done yet, one run after the other, and print one table of all.

    Returns:
        0, the exit code of the first run that failed, or 128 and the number of the signal that
        stopped it.
    """
    runs, study_dir = repetition.runs(), repetition.study_dir
    # threads and devices are the user's; bertlab-pages draws each run, which no report shows
    environment = {"BERTLAB_RUN_PAGES": "true"}
    with _echo(runs, study_dir) as on_change, WarmParent(FIT, [environment]) as parent:
        workers = LocalWorkers(study_dir, [environment], on_change, FIT, parent)
        for part in (runs[:1], runs):  # most mistakes show in the first run
            summary = run_all(Schedule(part, study_dir, 0, on_change), workers)
            if summary.exit_code:
                break
    if not summary.exit_code:
        report(repetition)
        return 0
    code = summary.exit_code
    if summary.stopped_by is None:
        first = next(run for run in runs if run.id in summary.failed)
        code = read_attempts(first, study_dir)[-1].exit_code or 1
    has_begun = any((run.directory(study_dir) / MANIFEST_FILE).exists() for run in runs)
    if has_begun or code != 2:  # the refusal was shown as the run told it, and its log goes
        for line in summary.lines(study_dir, "the same command"):
            say(line)
    if not has_begun:
        _leave_nothing(study_dir)
    return code if code > 0 else 128 - code  # negative: killed by a signal


def _leave_nothing(study_dir: Path) -> None:
    """Remove what was written for runs of which none has begun, as their config is wrong."""
    for name in STATE_ENTRIES:
        shutil.rmtree(study_dir / name, ignore_errors=True)
    (study_dir / PLAN).unlink()
    with contextlib.suppress(OSError):  # other files of the user's are in it
        study_dir.rmdir()


@contextmanager
def _echo(runs: Sequence[PlannedRun], study_dir: Path) -> Iterator[OnChange]:
    """Show what the runs print from now on; yields what is told of each change."""
    logs = [run.log(study_dir) for run in runs]
    shown = {log: log.stat().st_size if log.is_file() else 0 for log in logs}
    one_at_a_time, over = threading.Lock(), threading.Event()

    def show_new() -> None:
        with one_at_a_time:  # two threads would print the same
            for log in logs:
                if log.is_file():
                    with log.open("rb") as file:
                        file.seek(shown[log])
                        new = file.read()
                    shown[log] += len(new)
                    sys.stdout.write(new.decode("utf-8", errors="replace"))
            sys.stdout.flush()

    def follow() -> None:
        while not over.wait(_ECHO_INTERVAL):
            show_new()

    def on_change(change: Change) -> None:
        show_new()
        if change.state is not State.FAILED:  # the summary says so
            say(event_line(change, study_dir))

    follower = threading.Thread(target=follow, daemon=True)  # cannot keep the process alive
    follower.start()
    try:
        yield on_change
    finally:
        over.set()
        follower.join()
        show_new()  # what came after its last look


def _choose_directory(requested: str | None, name: str, asked: Config) -> Path:
    """Return the directory of a repetition: what is asked again goes on.

    Without ``--run_dir`` that is the first of ``runs/NAME``, ``runs/NAME-2``, … in which the
    same is asked and not finished; a new one if there is none.

    Raises:
        StudyChangedError: if ``--run_dir`` holds runs of another config.
    """
    if requested is not None:
        requested = str(Path(requested).expanduser())
        check_nothing_leads_out(Path(requested))
        before = _asked_in(Path(requested))
        if before is None:
            for place in ("seed-*", FROM_SCRATCH, f"{FROM_SCRATCH}/seed-*"):
                for other in Path(requested).glob(f"{place}/{MANIFEST_FILE}"):
                    choose_run_directory(str(other.parent), name)  # which refuses it
            return choose_run_directory(requested, name)
        changes = differences(asked, before)
        if changes:
            raise StudyChangedError(
                f"run_dir: {requested} holds runs of another config (here: as asked now, there: "
                "as begun):\n  " + "\n  ".join(changes) + "\nchoose another --run_dir"
            )
        return Path(requested)
    new = choose_run_directory(None, name)
    begun = [new.with_name(name), *(new.with_name(f"{name}-{number}") for number in range(2, 100))]
    for directory in begun:
        if not directory.exists():
            break
        if not (directory / RESULT).is_file() and _asked_in(directory) == asked:
            return directory
    return new


def _asked_in(study_dir: Path) -> Config | None:
    """Return what the runs in a directory were asked to be; None if there are none."""
    try:
        return read_object(study_dir / PLAN)
    except (OSError, ValueError):
        return None


def report(repetition: Repetition) -> None:
    """Write ``repeated.json``, print mean and deviation of the metrics, and what pre-training buys.

    Where there are runs from scratch, figures are those of each run's best step, if it has one.

    Raises:
        MixtureError: if the runs' data differ, of which a mean would describe none.
    """
    _refuse_mixture(repetition)
    starts = {PRE_TRAINED: False, FROM_SCRATCH: True} if repetition.against_scratch else {"": False}
    spreads = {start: _spreads(repetition, scratch) for start, scratch in starts.items()}
    seeds = repetition.seeds
    content = {"seeds": seeds, **(spreads if repetition.against_scratch else spreads[""])}
    write_json(repetition.study_dir / RESULT, content)
    add_to_json(repeated=content)
    title = str(repetition.study_dir)
    if seeds is not None:
        title += f": {len(seeds)} seed{'s' * (len(seeds) > 1)}"
    if not repetition.against_scratch:
        columns = {"last step": spreads[""]["last"], "best step": spreads[""]["best"]}
    else:
        step = "best" if spreads[PRE_TRAINED]["best"] else "last"
        title += f", {step} step of each run"
        columns = {start: each[step] for start, each in spreads.items()}
    names = next(iter(columns.values()))
    shares = read_shares(_directories(repetition, scratch=False)[0])
    rows = [
        (name, *(_show(name, column.get(name), shares) for column in columns.values()))
        for name in names
    ]
    print_table(title, rows, ("metric", *columns), figures=len(columns))


def _refuse_mixture(repetition: Repetition) -> None:
    """Raise MixtureError if rows or corpus were others in some of the runs.

    A file may have been changed between two calls, or what ``***`` hides of an address.
    """
    sides: dict[str, list[str]] = {}
    for run in repetition.runs():
        directory = run.directory(repetition.study_dir)
        with manifest_of(run, repetition.study_dir) as manifest:
            splits = manifest.get("data", {}).items()
            found = {name: each["fingerprint"] for name, each in splits if "fingerprint" in each}
            found |= {"corpus": manifest["corpus"]} if "corpus" in manifest else {}
        if found:  # not of an older bertlab, nor of a run in stages
            sides.setdefault(json.dumps(found, sort_keys=True), []).append(str(directory))
    if len(sides) > 1:
        told = " | ".join(", ".join(each) for each in sides.values())
        raise MixtureError(
            f"{repetition.study_dir}: its runs have different data, though the same was asked: "
            f"{told}; delete the runs of one side, or put the data back, and give the command again"
        )


def _spreads(repetition: Repetition, scratch: bool) -> dict[str, Spread]:
    places = _directories(repetition, scratch)
    return {
        "last": spread([read_results(place) for place in places]),
        "best": spread([read_results(place, best=True) for place in places]),
    }


def _directories(repetition: Repetition, scratch: bool) -> list[Path]:
    """Return the directory of each seed's run."""
    return [
        repetition.run(seed, scratch).directory(repetition.study_dir)
        for seed in repetition.seeds or (None,)
    ]


def spread(results: Sequence[Results]) -> Spread:
    """Return mean and sample standard deviation of each metric that all runs have."""
    names = [name for name in results[0] if all(name in each for each in results)]
    values = {name: [each[name] for each in results] for name in names}
    return {
        name: {
            "mean": fmean(each) if np.isfinite(each).all() else sum(each) / len(each),
            "deviation": _deviation(each) if len(each) > 1 else None,
        }
        for name, each in values.items()
    }


def _deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation (n - 1); NaN if a value is not finite."""
    with np.errstate(invalid="ignore"):  # inf - inf; statistics.stdev takes no NaN at all
        return float(np.std(values, ddof=1))


def _show(name: str, found: Mapping[str, float | None] | None, shares: Shares) -> str:
    mean, deviation = (None, None) if found is None else (found["mean"], found["deviation"])
    if mean is None:
        return ""
    share = is_share(name, shares)
    return shown_figure(name, mean, share) + (
        "" if deviation is None else f" ± {shown_figure(name, deviation, share)}"
    )
