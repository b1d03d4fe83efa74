"""Runs a study: its trials, if it is tuned, then what it asks for and has not been done yet."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertlab.extend import say, warn, yaml_inline
from bertlab_studies.execute.executor import ExecuteAll
from bertlab_studies.execute.live_table import watch
from bertlab_studies.execute.schedule import StudyStopped, Summary
from bertlab_studies.folder import begun_in
from bertlab_studies.plan.confounds import confounds, other_domains
from bertlab_studies.plan.measures import why_untestable
from bertlab_studies.plan.plan import make_plan
from bertlab_studies.plan.seeds import ADDED_SEEDS
from bertlab_studies.report import sameness
from bertlab_studies.reuse import adopt, find_reusable
from bertlab_studies.settings import STUDY_FILE
from bertlab_studies.tables import left_out_lines, reuse_lines

if TYPE_CHECKING:
    from bertlab_studies.study import Study


def run_study(
    study: "Study",
    execute_all: ExecuteAll,
    go_on: str,
    elsewhere: bool,
    reuse: Sequence[Path],
    accept_changes: bool,
    accept_mixture: bool,
) -> Summary:
    """Run what is not done yet.

    Args:
        study: that is run; one that is tuned has the settings that its trials chose afterwards.
        execute_all: what executes its runs, and its trials.
        go_on: command that goes on with it, for messages.
        elsewhere: its runs are executed on other machines than this.
        reuse: as that of :meth:`Study.run`.
        accept_changes: the same.
        accept_mixture: the same.

    Returns:
        Which runs of the study are done, and which failed and why.

    Raises:
        ExecutorError: if what executes the runs cannot be had.
        StudyError: if another study is none, or no trial of a variant has a value.
        StudyChangedError: if runs that were begun would be left out.
        MixtureError: if runs are not of the same data, or would not be.
        StudyStopped: if a signal stopped it.
    """
    if study.stage is not None and not study.stage.chosen:
        study.claim(accept_changes)
        study.stage.run(execute_all, go_on, elsewhere, reuse, accept_changes, accept_mixture)
        study.config = study.stage.choose(study.study_dir)
        study.planned = make_plan(study.config, begun_in(study.study_dir))
    reusable = find_reusable(study.planned, study.study_dir, reuse)
    for line in left_out_lines(study.config):
        say(line)
    if untestable := why_untestable(study.config, study.planned):
        warn(untestable)
    for line in (
        *confounds(study.config, study.planned),
        *other_domains(study.config, study.planned),
    ):
        warn(line)
    for change in study.claim(accept_changes):
        say(f"changed: {change}")
    if study.kept_seeds:
        say(
            f"kept: seeds {yaml_inline(study.kept_seeds)}, with those that were added "
            f"({ADDED_SEEDS} in {study.study_dir / STUDY_FILE})"
        )
    taken = [each for each in reusable if each.problem or adopt(each, study.study_dir)]
    for line in reuse_lines(taken):
        say(line)
    if not accept_mixture:
        same = sameness.compare_runs(study.planned, study.study_dir)
        sameness.refuse_mixture(same, study.study_dir)
        sameness.refuse_other_corpus(study.planned, study.study_dir, elsewhere)
    with watch(study.runs, study.study_dir) as show:
        refusing = sameness.refusing_mixtures(show, study.planned, study.study_dir)
        on_change = show if accept_mixture else refusing
        summary = execute_all(study.runs, study.study_dir, on_change=on_change)
    if summary.stopped_by is not None:
        raise StudyStopped(summary, study.study_dir, go_on)
    return summary
