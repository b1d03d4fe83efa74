"""``TrialStage``: what a tuned study does first, which is to run its trials and choose by them.

The trials are a study of their own in ``STUDY/tuning``. When they are over, the best trial of each
variant is written down, and the study goes on with these settings and its own seeds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bertlab import CommandError
from bertlab.extend import Config, say, yaml_inline
from bertlab_studies.choice import Trials, choose, read_choice
from bertlab_studies.errors import StudyError
from bertlab_studies.execute.executor import ExecuteAll
from bertlab_studies.plan.study_file import StudyConfig
from bertlab_studies.plan.trials import (
    TRIALS,
    check_choice,
    trial_variants,
    trials_content,
    tuning_of,
    with_chosen,
)
from bertlab_studies.run_study import run_study
from bertlab_studies.study_scores import StudyScores
from bertlab_studies.tables import Table

if TYPE_CHECKING:
    from bertlab_studies.study import Study

_LATER = (
    "The settings of the study's own runs are chosen when its trials are over; until then they are "
    "shown as if nothing were tuned."
)


@dataclass
class TrialStage:
    """The trials of a tuned study, and the choice that they led to.

    Attributes:
        study: of the trials.
        trials: what they are trials of.
        chosen: number of the trial that was chosen, by variant, from 0; empty before.
    """

    study: "Study"
    trials: Trials
    chosen: dict[str, int]

    def tuned(self) -> StudyConfig:
        """Return the tuned study with the settings that were chosen, if they were."""
        if not self.chosen:
            return self.trials.study
        settings = {
            variant: self.trials.settings[variant][number]
            for variant, number in self.chosen.items()
        }
        return with_chosen(self.trials.study, settings)

    def run(
        self,
        execute_all: ExecuteAll,
        go_on: str,
        elsewhere: bool,
        reuse: Sequence[Path],
        accept_changes: bool,
        accept_mixture: bool,
    ) -> None:
        """Run the trials that are not done.

        Args:
            execute_all: what executes runs.
            go_on: command that goes on with the tuned study, for messages.
            elsewhere: they are executed on other machines than this.
            reuse: as that of :meth:`Study.run`.
            accept_changes: the same.
            accept_mixture: the same.

        Raises:
            StudyError: if the first ones fail by one mistake.
            StudyStopped: if a signal stopped them.
        """
        summary = run_study(
            self.study, execute_all, go_on, elsewhere, reuse, accept_changes, accept_mixture
        )
        lines = summary.lines(self.study.study_dir, go_on)
        if summary.left:
            raise StudyError("\n".join(lines))
        for line in lines[:-1] if summary.exit_code else lines:  # the last says how to go on
            say(line)

    def choose(self, study_dir: Path) -> StudyConfig:
        """Choose a trial for each variant, say which, write it down; return the tuned study.

        Raises:
            StudyError: if no trial of a variant has a value.
        """
        self.chosen = choose(self.trials, study_dir)
        for variant, number in self.chosen.items():
            settings = yaml_inline(self.trials.settings[variant][number])
            say(f"chosen for {variant}: trial {number + 1}, {settings}")
        return self.tuned()

    def refuse_run(self, run: str) -> None:
        """Raise CommandError if the runs of the tuned study have no settings yet."""
        if not self.chosen:
            raise CommandError(
                f"--run: found {run!r}, but the settings of the study's runs are not chosen yet; "
                f"trials are run by: bertlab study run-one {self.study.study_dir} --run ID"
            )

    def before(self, own: Table, trials: Table) -> Table:
        """Return a table of the trials and then of the study's own runs."""
        lines = [f"trials: {trials.note.partition(chr(10))[0]}"] if trials.note else []
        lines += [own.note] if own.note else []
        lines += [] if self.chosen else [_LATER]
        title = f"{own.title} after {len(trials.rows)} runs of trials"
        return replace(own, title=title, rows=(*trials.rows, *own.rows), note="\n".join(lines))

    def add_scores(self, found: StudyScores) -> None:
        """Add what the trials have found to what the study has."""
        found.tuning = self.trials.scores(self.chosen)
        if tuning_of(self.trials.study).same_rows:
            found.remarks.append(
                "the rows that chose the settings decide as well (tune.same_rows), which is "
                "optimistic"
            )


def trial_stage(
    study_dir: Path, content: Config, config: StudyConfig, opened: Callable[[Config, Path], "Study"]
) -> TrialStage:
    """Open the trials of a study that is tuned.

    Args:
        study_dir: its directory, which need not be there yet.
        content: of its file, paths absolute.
        config: made of it.
        opened: opens a study by the content of its file and its directory.

    Raises:
        StudyError: if ``tune`` asks for what cannot be, or a trial has a wrong config.
    """
    names = [variant.name for variant in config.variants]
    settings = dict.fromkeys(names, tuning_of(config).settings())
    variants = trial_variants(config, settings)
    try:
        study = opened(trials_content(content, config, variants), study_dir / TRIALS)
    except StudyError as error:
        where = f"study {config.name}: "
        raise type(error)(f"{where}tune: {str(error).removeprefix(where)}") from None
    check_choice(config, variants, study.config, study.planned)
    trials = Trials(config, settings, variants, study.config, study.planned, study.study_dir)
    return TrialStage(study, trials, read_choice(trials, study_dir) or {})
