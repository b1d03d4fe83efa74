"""What the trials of a tuned study have found, and the settings that are chosen by it.

``STUDY/tuned.json`` holds the choice from the end of the trials on: it is made once. A trial that
failed counts as one, without a value.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bertlab.extend import explain_failed_write, read_object, write_json
from bertlab_studies.errors import StudyError
from bertlab_studies.execute.run_state import State, read_states
from bertlab_studies.plan.plan import Plan
from bertlab_studies.plan.study_file import StudyConfig
from bertlab_studies.plan.trials import (
    TrialVariants,
    choosing_evaluation,
    choosing_rows,
    tuning_of,
)
from bertlab_studies.plan.tuning import Rows
from bertlab_studies.report.collect import collect
from bertlab_studies.settings import Overrides
from bertlab_studies.study_scores import Measure, StudyScores, Trial, TuningScores

TUNED = "tuned.json"  # in the directory of a study
_CLUSTERS = "whole clusters"  # what halves of the rows are made of; of single rows before
_OVER = (State.DONE, State.FAILED, State.BLOCKED)


@dataclass(frozen=True)
class Trials:
    """The trials of a tuned study.

    Attributes:
        study: that is tuned, its variants as they are in its file.
        settings: of the trials of each variant.
        variants: name and overrides of each trial, by variant of the study.
        config: the study of the trials.
        plan: its runs.
        folder: its directory.
    """

    study: StudyConfig
    settings: Mapping[str, list[Overrides]]
    variants: TrialVariants
    config: StudyConfig
    plan: Plan
    folder: Path

    def are_over(self) -> bool:
        """Whether each run is done, or has failed, or cannot be started because of that."""
        states = read_states(self.plan.in_order(), self.folder)
        return all(state in _OVER for state in states.values())

    def scores(self, chosen: Mapping[str, int]) -> TuningScores | None:
        """Return what the trials have found so far; None if no measure is known yet.

        Args:
            chosen: number of the trial that was chosen, by variant, from 0.
        """
        choosing = choosing_rows(self.study, keeps_clusters(self.folder.parent))
        found = collect(self.config, self.plan, self.folder, choosing)
        measure = self._measure(found)
        if measure is None:
            return None
        rows = choosing.get(measure.task, Rows.ALL)
        trials = {
            variant: [
                _trial(found, name, measure, settings)
                for (name, _), settings in zip(named, self.settings[variant], strict=True)
            ]
            for variant, named in self.variants.items()
        }
        search = tuning_of(self.study).search
        return TuningScores(measure, rows, search, found.seeds, trials, dict(chosen))

    def _measure(self, found: StudyScores) -> Measure | None:
        """Return the measure that chooses, if the study of the trials has it already."""
        by = choosing_evaluation(self.study) or tuning_of(self.study).by or self.study.name
        return next((each for each in found.measures if by in (each.task, each.name)), None)

    def digest(self) -> str:
        """Return a SHA-256 of what the choice depends on: the trials' runs, and what chooses."""
        tune = tuning_of(self.study)
        hashes = {
            variant: [
                [
                    run.rpartition("-")[2]
                    for (trial, _, _), run in self.plan.cells.items()
                    if trial == name
                ]
                for name, _ in named
            ]
            for variant, named in self.variants.items()
        }
        text = json.dumps([tune.by, tune.same_rows, hashes], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _trial(found: StudyScores, name: str, measure: Measure, settings: Overrides) -> Trial:
    values = dict(found.cell(name, measure).values)
    is_whole = len(values) == len(found.seeds) and all(map(math.isfinite, values.values()))
    return Trial(settings, values, fmean(values.values()) if is_whole else None)


def choose(trials: Trials, study_dir: Path) -> dict[str, int]:
    """Choose the best trial of each variant, the first of several, and write the choice down.

    Args:
        trials: which are over.
        study_dir: directory of the study that is tuned.

    Returns:
        The number of the trial, by variant, from 0.

    Raises:
        StudyError: if no trial of a variant has a value.
        OutputError: if the file cannot be written.
    """
    found = trials.scores({})
    chosen = {}
    for variant, settings in trials.settings.items():
        best = None if found is None else best_trial(found, variant)
        if best is None:
            raise StudyError(
                f"study {trials.study.name}: tune: none of the {len(settings)} trials of the "
                f"variant {variant!r} has a value to choose by (logs: {trials.folder / 'logs'}); "
                "mend what failed, or change tune.space, and run the study again"
            )
        chosen[variant] = best
    settings_of = {variant: trials.settings[variant][number] for variant, number in chosen.items()}
    content = {
        "trials": trials.digest(),
        "chosen": chosen,
        "settings": settings_of,
        "halves": _CLUSTERS,
    }
    with explain_failed_write(f"{study_dir / TUNED}: cannot be written"):
        write_json(study_dir / TUNED, content)
    return chosen


def keeps_clusters(study_dir: Path) -> bool:
    """Whether rows of a cluster are in one half: in all studies but those tuned long ago."""
    try:
        return read_object(study_dir / TUNED).get("halves") == _CLUSTERS
    except (OSError, ValueError, TypeError):  # there is none, or read_choice() refuses it
        return True


def best_trial(found: TuningScores, variant: str) -> int | None:
    """Return the number of a variant's best trial, from 0; None if none has a value."""
    values = {
        number: trial.value
        for number, trial in enumerate(found.trials[variant])
        if trial.value is not None
    }
    if not values:
        return None
    best = max if found.measure.higher_is_better else min
    return best(values, key=values.__getitem__)


def read_choice(trials: Trials, study_dir: Path) -> dict[str, int] | None:
    """Return the choice that was made, if it was made of these trials.

    Raises:
        StudyError: if the file is damaged.
    """
    path = study_dir / TUNED
    try:
        content = read_object(path, {"trials": str, "chosen": dict})
        if content["trials"] != trials.digest():
            return None
        chosen = {name: int(content["chosen"][name]) for name in trials.variants}
        if not all(0 <= each < len(trials.settings[name]) for name, each in chosen.items()):
            raise ValueError("a trial that is not there")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StudyError(
            f"{path}: damaged: {error!r}; expected the settings that were chosen; remove the "
            "file, and they are chosen again from the trials"
        ) from None
    return chosen
