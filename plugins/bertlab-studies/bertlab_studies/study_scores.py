"""What a study has found so far, in one place: what statistics and reports read."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from bertlab_evaluations.clusters import Clusters
    from bertlab_studies.report.seed_noise import EarlierNoise


LARGEST = 1e100  # score: the square of a larger one is no number


@dataclass(frozen=True)
class Measure:
    """A column of a study's table.

    Attributes:
        task: name of an evaluation of the study, or of an objective of pre-training.
        metric: as the run logs it, for example ``accuracy``.
        higher_is_better: which end is the good one.
        is_share: whether values are in 0 … 1 and are shown in percent.
        is_primary: whether variants are compared by it; other measures only describe.
        margin: differences below it count as none, in the measure's own units; None if the study
            has no margin.
    """

    task: str
    metric: str
    higher_is_better: bool = True
    is_share: bool = True
    is_primary: bool = True
    margin: float | None = None

    @property
    def name(self) -> str:
        """``task metric``, the column's heading."""
        return f"{self.task} {self.metric}"


@dataclass
class Cell:
    """A variant's values of one measure.

    Attributes:
        values: by seed; a run that failed or is not done is missing. Where seeds are nested, the
            mean over the fine-tunings of a pre-training that are done and have a finite value.
        degenerate: by seed, what is wrong with a run that learned nothing, for example that it
            gives one class for every row.
        examples: ``(rows,)`` float64 by seed: each evaluation row's own score (1 for a right class)
            or, of metrics that are no mean over rows, its influence. In the order of the rows,
            where predictions were kept. Their mean is the value. Where seeds are nested, the mean
            over the same fine-tunings, row by row.
        clusters: of these rows, such as questions on one passage; None if they are not known.
        repeats: where seeds are nested, the value of each fine-tuning that is done, by seed of the
            pre-training, then of the fine-tuning.
        degenerate_repeats: what is wrong with a fine-tuning that learned nothing, by the same.
        learned: where some fine-tunings of a pre-training are degenerate, the mean over the others,
            by seed.
    """

    values: dict[int, float] = field(default_factory=dict)
    degenerate: dict[int, str] = field(default_factory=dict)
    examples: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    clusters: "Clusters | None" = None
    repeats: dict[int, dict[int, float]] = field(default_factory=dict)
    degenerate_repeats: dict[int, dict[int, str]] = field(default_factory=dict)
    learned: dict[int, float] = field(default_factory=dict)


@dataclass
class Curve:
    """A run's evaluations while it trained.

    Attributes:
        steps: optimiser steps; of curves by group, words seen.
        values: of one metric at these steps.
    """

    steps: list[int]
    values: list[float]


@dataclass
class VariantScores:
    """What was found for a variant.

    Attributes:
        cells: by the name of the measure.
        settings: config keys and values in which the variant differs from the others.
        tokens: that a pre-training run of it reads; None if unknown or there is none.
        flops: that a pre-training run of it and its evaluations need; None if unknown.
        seconds: wall time by seed, evaluations included.
        curves: of the pre-training's held-out metrics, by name of the metric and seed.
        finetune_curves: of the fine-tunings' metrics that variants are compared by, by name of the
            measure, then by seed and fine-tuning seed; that is None where seeds are not nested.
        failures: one line for each run of it that failed.
        is_mixed: its runs, or its runs and other variants', are of different data by mistake.
        levels: its label on each of the study's axes, by the axis; empty if there are none.
        builds_on: the variant that it adds a change to; None if it is on its own.
        control_of: the variant whose effect it would explain away; None if it is no control.
    """

    cells: dict[str, Cell] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    tokens: float | None = None
    flops: float | None = None
    seconds: dict[int, float] = field(default_factory=dict)
    curves: dict[str, dict[int, Curve]] = field(default_factory=dict)
    finetune_curves: dict[str, dict[tuple[int, int | None], Curve]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    is_mixed: bool = False
    levels: dict[str, str] = field(default_factory=dict)
    builds_on: str | None = None
    control_of: str | None = None


@dataclass
class GroupScores:
    """Scores of an evaluation's rows by group, such as BLiMP's phenomena.

    Attributes:
        measure: the evaluation, and the metric that is the mean over its rows.
        kind: of group: ``phenomenon``.
        groups: names of the G groups.
        rows: of each group, those that all runs scored.
        means: ``(G,)`` float64 by variant and seed: the mean over these rows.
    """

    measure: Measure
    kind: str
    groups: list[str]
    rows: list[int]
    means: dict[str, dict[int, NDArray[np.float64]]]


@dataclass
class GroupCurves:
    """Scores of an evaluation against words seen, by group.

    Attributes:
        measure: the evaluation, and the metric that is the mean over its rows.
        chance: the score of a guess; None if there is no one number.
        curves: by kind, group, variant and seed. Of kind ``all`` there is one group, ``""``.
    """

    measure: Measure
    chance: float | None
    curves: dict[str, dict[str, dict[str, dict[int, Curve]]]]


@dataclass(frozen=True)
class Trial:
    """One trial of a variant that is tuned.

    Attributes:
        settings: config keys and values that it tried.
        values: of the measure that chooses, by seed of the trials.
        value: their mean; None if a run of the trial failed or is not done.
    """

    settings: dict[str, Any]
    values: dict[int, float]
    value: float | None


@dataclass(frozen=True)
class TuningScores:
    """What the trials of a tuned study have found.

    Attributes:
        measure: that chooses.
        rows: of which it is, in words.
        search: how the settings of trials were found: ``random`` or ``grid``.
        seeds: of the trials.
        trials: of each variant, in order.
        chosen: number of the trial that was chosen for each variant, from 0; empty before.
    """

    measure: Measure
    rows: str
    search: str
    seeds: list[int]
    trials: dict[str, list[Trial]]
    chosen: dict[str, int] = field(default_factory=dict)


@dataclass
class StudyScores:
    """What a study has found.

    Attributes:
        name: of the study.
        baseline: the variant that the others are compared with.
        seeds: that the study runs; of pre-training, where seeds are nested.
        measures: the columns of its table, in order.
        variants: by name, in the order of the study; the baseline is one of them.
        manifest: what is needed to repeat it: command, study file, versions, machine.
        groups: scores by group of evaluations that train nothing, for each kind of group.
        group_curves: the same along the pre-trainings, where they were scored at words seen.
        finetune_seeds: that each pre-training is fine-tuned with; empty if seeds are not nested.
        checkpoints: that a study which only fine-tunes starts from, each once.
        why_described: why the metrics of pre-training describe and do not decide.
        remarks: a line for each way in which runs that should be alike are not, or the analysis
            is not the one that was planned.
        looks: planned number of looks at the study while seeds are added; tests allow for it.
        factors: where only parts of a run vary: the seed of each, such as ``weights``, by the
            number that ``seeds`` has. All else has the same seed in all runs.
        tuning: what the trials have found, of a study that is tuned.
        analysis_sha256: of the analysis as it was written down; empty if none was.
        earlier: what earlier studies of the same kind know of the noise of a measure, by its name.
        earlier_file: the record that tells it; empty if the study names none.
    """

    name: str
    baseline: str
    seeds: list[int]
    measures: list[Measure]
    variants: dict[str, VariantScores]
    manifest: dict[str, Any] = field(default_factory=dict)
    groups: list[GroupScores] = field(default_factory=list)
    group_curves: list[GroupCurves] = field(default_factory=list)
    finetune_seeds: list[int] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)
    why_described: str = ""
    remarks: list[str] = field(default_factory=list)
    looks: int = 1
    factors: dict[int, dict[str, int]] = field(default_factory=dict)
    tuning: TuningScores | None = None
    analysis_sha256: str = ""
    earlier: "dict[str, EarlierNoise]" = field(default_factory=dict)
    earlier_file: str = ""

    @property
    def is_crossed(self) -> bool:
        """Whether the seeds of several parts are crossed, so that runs are not independent."""
        return any(len(each) > 1 for each in self.factors.values())

    def name_of_seed(self, seed: int) -> str:
        """Return ``3``, or of crossed seeds ``3 (weights 1, order 3)``."""
        if not self.is_crossed:
            return str(seed)
        parts = ", ".join(f"{name} {own}" for name, own in self.factors[seed].items())
        return f"{seed} ({parts})"

    def cell(self, variant: str, measure: Measure) -> Cell:
        """Return a variant's values of a measure; empty if there are none."""
        return self.variants[variant].cells.get(measure.name, Cell())
