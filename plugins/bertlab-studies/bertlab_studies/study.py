"""``Study``: an ablation that is planned, run and reported. The commands use it, and so can Python.

>>> study = bertlab.study("studies/quickstart")
>>> study.plan()              # what it will run, and what that costs
>>> study.run(workers=2)      # Ctrl-C stops it; the same line goes on
>>> study.report()            # the table, findings, and files of both
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from bertlab import CommandError, nearest
from bertlab.extend import (
    Config,
    check_nothing_leads_out,
    check_processes,
    manifest,
    say,
    without_secrets,
)
from bertlab_studies.choice import keeps_clusters
from bertlab_studies.design_table import shown_by_plan
from bertlab_studies.errors import StudyError
from bertlab_studies.execute.execution import execute
from bertlab_studies.execute.executor import go_on_with, make_executor
from bertlab_studies.execute.run_state import is_done
from bertlab_studies.execute.schedule import Summary
from bertlab_studies.folder import (
    added_seeds,
    begun_in,
    claim,
    keep_content,
    read_study,
    warn_of_others,
)
from bertlab_studies.plan.confounds import confounds, readings
from bertlab_studies.plan.confounds import other_domains as other_domains_before
from bertlab_studies.plan.measures import why_untestable
from bertlab_studies.plan.plan import Plan, PlannedRun, make_plan
from bertlab_studies.plan.seeds import ADDED_SEEDS, extended_seeds, refuse_more
from bertlab_studies.plan.study_file import StudyConfig, make_study, with_absolute_paths
from bertlab_studies.plan.trials import deciding_rows
from bertlab_studies.report import analysis, sameness
from bertlab_studies.report.collect import collect, other_domains, without_row_scores
from bertlab_studies.report.earlier_noise import record as record_entries
from bertlab_studies.report.earlier_noise import spread_of
from bertlab_studies.report.render import write_report
from bertlab_studies.report.report import Report, report_of
from bertlab_studies.reuse import find_reusable
from bertlab_studies.run_study import run_study
from bertlab_studies.settings import STUDY_FILE, Overrides
from bertlab_studies.study_scores import StudyScores
from bertlab_studies.tables import Table, left_out_lines, plan_table, status_table, variants_table
from bertlab_studies.trial_stage import TrialStage, trial_stage

REPORT = "report"  # folder of the report in the directory of a study


def study(
    source: str | Path | Mapping[str, Any],
    study_dir: str | Path | None = None,
    *,
    settings: Overrides | None = None,
    evaluate_settings: Overrides | None = None,
) -> "Study":
    """Open a study; nothing is written or run.

    Args:
        source: a study file, the directory of a study, or the content of a study file. Config files
            that a mapping names are relative to the working directory.
        study_dir: where it is kept; ``runs/studies/NAME`` if not given.
        settings: config keys and values that override the file's, for all variants;
            ``budget.steps`` its budget.
        evaluate_settings: the same for all evaluations, or for the one whose name a key begins
            with.

    Raises:
        StudyError: if there is none, it is not one, or a run of it has a wrong config.
    """
    content, file, own = read_study(source, settings, evaluate_settings)
    if own is not None and study_dir is not None:
        raise StudyError(f"--study_dir: {own} is the directory of a study already")
    config = make_study(content, str(file), file.parent)
    chosen = Path(study_dir or Path("runs") / "studies" / config.name).expanduser()
    place = own or chosen
    kept = None if own is not None else added_seeds(place)
    if kept is not None:
        asked = config.seeds, config.finetune_seeds
        content = {**content, ADDED_SEEDS: kept}
        config = make_study(content, str(file), file.parent)
        if asked == (config.seeds, config.finetune_seeds):
            kept = None  # the file has them now
    content = with_absolute_paths(content, config)
    stage = None if config.tune is None else trial_stage(place, content, config, study)
    config = config if stage is None else stage.tuned()
    found = Study(place, content, config, make_plan(config, begun_in(place)), kept, stage)
    found.analysis()  # which refuses a metric without a better end
    return found


@dataclass
class Study:
    """A study and its directory; :func:`study` makes one.

    Attributes:
        study_dir: its directory, which need not be there yet.
        content: of the study file, its paths absolute.
        config: made of it: variants, seeds, evaluations.
        planned: its runs.
        kept_seeds: as the study's own file has them, where ``add-seeds`` added some to those of
            ``content``.
        stage: its trials, which come first; None of a study that is not tuned.
    """

    study_dir: Path
    content: Config = field(repr=False)
    config: StudyConfig = field(repr=False)
    planned: Plan = field(repr=False)
    kept_seeds: object = None
    stage: TrialStage | None = field(default=None, repr=False)

    @property
    def runs(self) -> list[PlannedRun]:
        """The runs, parents before their children."""
        return self.planned.in_order()

    def plan(self, reuse: str | Path | Sequence[str | Path] = ()) -> Table:
        """Return the runs, what each costs and how far it is, and what the study can show.

        Args:
            reuse: directories of studies whose finished pre-trainings could be taken over.
        """
        found = find_reusable(self.planned, self.study_dir, _paths(reuse))
        shows = why_untestable(self.config, self.planned) or shown_by_plan(self)
        known = [*self._known_before(), *other_domains_before(self.config, self.planned)]
        note = "\n".join([*left_out_lines(self.config), *known, shows])
        own = plan_table(self.planned, self.study_dir, note, found)
        return own if self.stage is None else self.stage.before(own, self.stage.study.plan(reuse))

    def _known_before(self) -> list[str]:
        """Return what configs tell of the comparisons: which are confounded, which loss decides."""
        return confounds(self.config, self.planned) + readings(self.config, self.planned)

    def status(self) -> Table:
        """Return how far each run is; warn of runs that the study does not ask for any more."""
        warn_of_others(self.study_dir, self.planned)
        own = status_table(self.runs, self.study_dir)
        return own if self.stage is None else self.stage.before(own, self.stage.study.status())

    def run(
        self,
        *,
        executor: str = "local",
        reuse: str | Path | Sequence[str | Path] = (),
        accept_changes: bool = False,
        accept_mixture: bool = False,
        **options: Any,  # noqa: ANN401  the executor's
    ) -> Summary:
        """Run what is not done yet, each run in a process of its own.

        Args:
            executor: ``local``; ``ray`` or ``slurm`` of bertlab-cluster; or that of a plugin.
            reuse: directories of studies whose finished pre-trainings are taken over where they
                are the same by config, seed, corpus and versions.
            accept_changes: go on though the study changed; runs that are not asked any more are
                left out of the report.
            accept_mixture: go on though runs are not of the same data.
            options: of the executor. ``local`` has ``workers``, runs at a time on this machine;
                ``threads`` and ``devices``, CPU threads and CUDA devices of each, by default those
                that are there shared among the workers; and ``retries``, how often a run that fails
                is tried again, from its last checkpoint.

        Returns:
            Which runs are done, and which failed and why. A run that fails raises nothing.

        Raises:
            CommandError: if an option of the executor is unknown or out of range.
            PluginError: if there is no such executor.
            ExecutorError: if there are fewer workers or devices than asked for.
            StudyChangedError: if runs that were begun would be left out.
            MixtureError: if runs are not of the same data, or would not be.
            StudyStopped: if Ctrl-C, SIGTERM or SIGHUP stopped it.
        """
        made = make_executor(executor, options)
        execute_all = partial(made.execute, kept_in=self.study_dir)
        go_on, reused = go_on_with(self.study_dir, executor), _paths(reuse)
        return run_study(
            self, execute_all, go_on, made.elsewhere, reused, accept_changes, accept_mixture
        )

    def run_one(self, run: str, threads: int | None = None) -> int:
        """Make one attempt at one run, or wait for the process that is at work at it.

        Args:
            run: its id, as :meth:`plan` shows it.
            threads: CPU threads.

        Returns:
            0 if the run is done, else the exit code of the attempt.

        Raises:
            CommandError: if there is no such run.
        """
        if self.stage is not None:
            self.stage.refuse_run(run)
        planned = self.planned.runs.get(run)
        if planned is None:
            near = nearest(run, self.planned.runs)
            raise CommandError(f"--run: found {run!r}{near} (`bertlab study plan` lists the runs)")
        check_processes("--threads", threads, 1)
        check_nothing_leads_out(self.study_dir)
        environment = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
        return execute(planned, self.study_dir, environment=environment)

    def report(
        self,
        write: bool = True,
        accept_mixture: bool = False,
        record: str | Path | None = None,
    ) -> Report:
        """Return what the runs that are done have found.

        Args:
            write: also write the report's files, to ``report`` in the study's directory.
            accept_mixture: mark the tables where runs are not of the same data.
            record: file that the noise over seeds is added to, for later studies
                (``earlier_noise``).

        Raises:
            MixtureError: if runs are not of the same data, unless that is accepted.
            OutputError: if a file cannot be written.
            StudyError: if the noise cannot be recorded: runs are missing, or the file is no record.
        """
        warn_of_others(self.study_dir, self.planned)
        scores = self.scores(accept_mixture)
        if record is not None:
            self._record(scores, Path(record))
        found = report_of(scores)
        if not write:
            return found
        check_nothing_leads_out(self.study_dir)
        files = tuple(write_report(found, self.study_dir / REPORT))
        analysis.record_look(self.study_dir, self.planned, self.analysis())
        return replace(found, files=files)

    def _record(self, scores: StudyScores, file: Path) -> None:
        """Add the noise of a study to a record, and say what it is."""
        missing = sum(not is_done(run.directory(self.study_dir)) for run in self.runs)
        mixed = [name for name, each in scores.variants.items() if each.is_mixed]
        wrong = f"{missing} of {len(self.runs)} runs are not done" if missing else ""
        wrong = f"runs of {', '.join(mixed)} are not of the same data" if mixed else wrong
        entries = spread_of(scores, self.config, self.planned)
        wrong = wrong or ("" if entries else "no measure that decides varies over seeds")
        if wrong:
            raise StudyError(f"--record: {self.study_dir}: {wrong}; expected a whole study")
        added = record_entries(file, entries)
        say(f"{file}: noise over seeds of {len(entries)} kind(s) of run, {added} new")
        for each in entries:
            say(f"  variance {each.variance:.3g}, {each.freedom} degrees of freedom: {each.kind}")

    def scores(self, accept_mixture: bool = False) -> StudyScores:
        """Return the values that the report is made of, and what is needed to repeat them.

        Args:
            accept_mixture: mark the variants whose runs are not of the same data.

        Raises:
            MixtureError: if there are any, unless that is accepted.
        """
        same = sameness.compare_runs(self.planned, self.study_dir)
        if not accept_mixture:
            sameness.refuse_mixture(same, self.study_dir)
        deciding = deciding_rows(self.config, keeps_clusters(self.study_dir))
        found = collect(self.config, self.planned, self.study_dir, deciding)
        mixed = [f"mixed data: {line}" for line in same.mixtures]
        found.remarks = [*mixed, *same.remarks, *found.remarks]
        found.remarks += sameness.other_kernels(self.planned, self.study_dir, self.config.baseline)
        found.remarks += other_domains(self.config, self.planned, self.study_dir)
        found.remarks += without_row_scores(found, self.config, self.planned, self.study_dir)
        found.remarks += self._known_before()
        for name in same.variants:
            found.variants[name].is_mixed = True
        found.manifest = {
            "command": shlex.join(["bertlab", "study", "run", str(self.study_dir / STUDY_FILE)]),
            "study": without_secrets(self.content),
            **manifest({}),
        }
        analysis.add_analysis(found, self.study_dir, self.analysis())
        if self.stage is not None:
            self.stage.add_scores(found)
        return found

    def add_seeds(
        self, seeds: int | list[int] | None = None, finetune_seeds: int | list[int] | None = None
    ) -> "Study":
        """Ask for more seeds; return the study that has them.

        Args:
            seeds: how many in all, or a list of them; of pre-training, where seeds are nested.
            finetune_seeds: how many fine-tunings of each pre-training in all, or a list of seeds.

        Raises:
            CommandError: if neither is given, the study was not run yet, or a seed that it has is
                not among them.
            StudyError: if the study has no evaluations to fine-tune.
        """
        if seeds is None and finetune_seeds is None:
            raise CommandError("study add-seeds: missing: --seeds N or --finetune_seeds N")
        if not (self.study_dir / STUDY_FILE).is_file():
            raise CommandError(
                f"{self.study_dir}: no study was run there yet; set seeds in its file"
            )
        refuse_more(self.config.factors, self.study_dir)
        own = self.config.seeds, self.config.finetune_seeds
        check_nothing_leads_out(self.study_dir)
        content = {**self.content, ADDED_SEEDS: extended_seeds(own, seeds, finetune_seeds)}
        study(content, self.study_dir)  # a wrong one is refused before it is written
        keep_content(self.study_dir, content)
        return study(self.study_dir)

    def claim(self, accept_changes: bool = False) -> list[str]:
        """Write down what is asked, as :meth:`run` does first; return what changed since before.

        Raises:
            StudyChangedError: if runs that were begun would be left out, unless that is accepted.
        """
        changes = self._keep(accept_changes)
        analysis.freeze(self.study_dir, self.analysis(), self.planned)
        return changes

    def _keep(self, accept_changes: bool) -> list[str]:
        """Write down what is asked; return what changed since before."""
        check_nothing_leads_out(self.study_dir)
        if self.stage is None or self.stage.chosen:
            return claim(self.study_dir, self.content, self.config, self.planned, accept_changes)
        changes = self.stage.study.claim(accept_changes)  # its own runs are not known yet
        keep_content(self.study_dir, self.content)
        return changes

    def freeze(self, reason: str = "") -> bool:
        """Register what is tested and how: variants, measures, margins, looks, configs, and a date.

        What is registered is not written over: a later call, and :meth:`run`, add what changed as a
        dated amendment, which the report shows.

        Args:
            reason: of a change.

        Returns:
            Whether there was anything to write.

        Raises:
            StudyChangedError: if runs that were begun would be left out.
        """
        self._keep(accept_changes=False)
        return analysis.register(self.study_dir, self.analysis(), self.planned, reason)

    def analysis(self) -> dict[str, Any]:
        """Return what is tested and how; ``analysis.json`` holds it from the first run on."""
        return analysis.planned_analysis(
            self.config, self.planned, self.content.get("looks"), self.study_dir
        )

    def _repr_html_(self) -> str:
        """Return the variants: what they differ in, or once runs are done, what they reached."""
        if any(is_done(run.directory(self.study_dir)) for run in self.runs):
            return report_of(self.scores(accept_mixture=True))._repr_html_()
        return variants_table(self.planned, self.config)._repr_html_()


def _paths(given: str | Path | Sequence[str | Path]) -> list[Path]:
    return [Path(each) for each in ([given] if isinstance(given, str | Path) else given)]


def compare(studies: Sequence[Study], output: Path, accept_mixture: bool = False) -> Report:
    """Write one report of several studies, each compared with its own baseline.

    Args:
        studies: two or more.
        output: folder of the report.
        accept_mixture: mark the tables where runs of a study are not of the same data.

    Raises:
        CommandError: if there are fewer than two.
        MixtureError: if runs of a study are not of the same data, unless that is accepted.
        OutputError: if a file cannot be written.
    """
    if len(studies) < 2:
        raise CommandError("study compare: found one study, expected two or more")
    joined = report_of(*(each.scores(accept_mixture) for each in studies))
    return replace(joined, files=tuple(write_report(joined, output)))
