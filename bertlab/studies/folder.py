"""The directory of a study: what was asked, what is in it, and whether the two still agree."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bertlab.api.study_scores import StudyScores
from bertlab.checkpoints.run_directory import manifest
from bertlab.config.overrides import Overrides, as_overrides
from bertlab.config.yaml_files import Config, differences, read_config
from bertlab.errors import StudyChangedError, StudyError
from bertlab.files import explain_failed_write, write_json, write_text
from bertlab.studies.execute.run_state import PLAN
from bertlab.studies.plan.plan import Plan, PlannedRun, make_plan
from bertlab.studies.plan.study_file import BASE, Study, make_study, with_absolute_paths
from bertlab.studies.report.collect import collect

STUDY_FILE = "study.yaml"
_PLAN_KEYS = {"seeds": list, "runs": list, "configs": dict}
_BUDGET = "budget."
_SHOWN = 12  # lines of changes


@dataclass(frozen=True)
class StudyFolder:
    """A study and its directory.

    Attributes:
        path: the directory.
        content: of the study file, its paths absolute.
        study: made of it.
        plan: its runs.
    """

    path: Path
    content: Config
    study: Study
    plan: Plan

    @property
    def runs(self) -> list[PlannedRun]:
        """The runs, parents before their children."""
        return self.plan.in_order()

    def scores(self) -> StudyScores:
        """Return what the runs that are done have found, and what is needed to repeat them."""
        found = collect(self.study, self.plan, self.path)
        found.manifest = {
            "command": f"bertlab study run {self.path / STUDY_FILE}",
            "study": self.content,
            **manifest({}, {}),
        }
        return found


def open_study(
    given: str,
    study_dir: str | None = None,
    settings: Overrides | None = None,
    evaluate_settings: Overrides | None = None,
) -> StudyFolder:
    """Read a study from its file, or from the directory that it was run in.

    Args:
        given: a study file, or the directory of a study.
        study_dir: where a file's study is run; ``runs/studies/NAME`` if not given.
        settings: that override the file's, for all variants; ``budget.steps`` its budget.
        evaluate_settings: that override the file's, for all evaluations, or for the one whose name
            a key begins with.

    Raises:
        StudyError: if there is none, or it is not one.
    """
    path = Path(given)
    if path.is_dir():
        if not (path / STUDY_FILE).is_file():
            raise StudyError(f"{path}: not the directory of a study (it has no {STUDY_FILE})")
        if study_dir is not None:
            raise StudyError(f"--study_dir: {path} is the directory of a study already")
        if settings or evaluate_settings:
            raise StudyError(f"--set: {path} was begun without it; give the study's file")
        return study_folder(read_config(path / STUDY_FILE), path / STUDY_FILE, path)
    content = {"name": path.stem, **read_config(path)}
    own = dict(settings or {})
    budget = {key: own.pop(key) for key in list(own) if key.startswith(_BUDGET)}
    if budget:
        content["budget"] = {key.removeprefix(_BUDGET): value for key, value in budget.items()}
    common = _set_evaluations(content, dict(evaluate_settings or {}), str(path))
    for key, more in (("settings", own), ("evaluate_settings", common)):
        if more:
            content[key] = as_overrides(content.get(key), f"{path}: {key}") | more
    return study_folder(content, path, None if study_dir is None else Path(study_dir))


def _set_evaluations(content: Config, given: Overrides, where: str) -> Overrides:
    """Put overrides that begin with an evaluation's name into its settings; return the others."""
    evaluate = content.get("evaluate")
    if isinstance(evaluate, list):
        evaluate = content["evaluate"] = {Path(str(each)).stem: each for each in evaluate}
    for key in list(given):
        name, _, setting = key.partition(".")
        if isinstance(evaluate, dict) and name in evaluate and setting:
            entry = evaluate[name]
            fields = entry if isinstance(entry, dict) else {"config": entry}
            more = as_overrides({setting: given.pop(key)}, f"{where}: evaluate.{name}")
            own = as_overrides(fields.get("settings"), f"{where}: evaluate.{name}.settings")
            evaluate[name] = {**fields, "settings": own | more}
    return given


def study_folder(content: Config, file: Path, folder: Path | None) -> StudyFolder:
    """Make a study of the content of its file.

    Args:
        content: keys and values.
        file: for messages; the config files that the content names are relative to it.
        folder: of the study; ``runs/studies/NAME`` if None.

    Raises:
        StudyError: if the content is not a study.
    """
    study = make_study(content, str(file), file.parent)
    absolute = with_absolute_paths(content, study)
    where = folder or Path("runs") / "studies" / study.name
    begun = [path.name for path in (where / "runs").glob("*")]
    return StudyFolder(where, absolute, study, make_plan(study, begun))


def claim_study(folder: StudyFolder, accept_changes: bool) -> list[str]:
    """Write down what is asked, unless that changes a study which has runs already.

    Args:
        folder: of the study.
        accept_changes: leave runs that are not asked any more where they are, out of the report.

    Returns:
        What changed since the study was begun, a line each.

    Raises:
        StudyChangedError: if runs would be left out; says what changed and what can be kept.
    """
    asked = _asked(folder)
    before = _read_plan(folder.path / PLAN)
    changes: list[str] = []
    if before is not None:
        changes = _changes(asked, before)
        begun = [run for run in before["runs"] if (folder.path / "runs" / run).exists()]
        lost = [run for run in begun if run not in folder.plan.runs]
        if lost and not accept_changes:
            raise StudyChangedError(_explain(folder, changes, begun, lost))
    folder.path.mkdir(parents=True, exist_ok=True)
    keep_content(folder.path, folder.content)
    write_json(folder.path / PLAN, asked)
    return changes


def _read_plan(path: Path) -> dict[str, Any] | None:
    """Return what was asked when the study was last run; None if it was not."""
    try:
        content: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if not all(isinstance(content[key], kind) for key, kind in _PLAN_KEYS.items()):
            raise TypeError("its values are of other kinds")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StudyError(
            f"{path}: damaged: {error}; expected the plan of the study; remove the file, and what "
            "changed since the study was begun is not looked for"
        ) from None
    return content


def _changes(asked: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Return what is asked otherwise than before, a line each."""
    lines = []
    if asked["seeds"] != before["seeds"]:
        lines.append(f"seeds: {asked['seeds']} here, {before['seeds']} there")
    now, then = asked["configs"], before["configs"]
    lines += _new_and_gone("variant", now, then)
    shared = [variant for variant in now if variant in then]
    for variant in shared[:1]:  # all have the same
        lines += _new_and_gone("evaluation", now[variant], then[variant])
    for variant in shared:
        for stage in now[variant]:
            if stage in then[variant]:
                prefix = f"{variant}: {'' if stage == BASE else stage + ': '}"
                lines += differences(now[variant][stage], then[variant][stage], prefix)
    return lines


def _new_and_gone(kind: str, now: Iterable[str], then: Iterable[str]) -> list[str]:
    new = [f"{kind} {name!r}: new" for name in now if name not in then]
    return new + [f"{kind} {name!r}: taken out" for name in then if name not in now]


def keep_content(folder: Path, content: Config) -> None:
    """Write the study file of a study's directory, whole or not at all."""
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    with explain_failed_write(f"{folder / STUDY_FILE}: cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / STUDY_FILE, text)


def _asked(folder: StudyFolder) -> dict[str, Any]:
    """Return what is compared when the study is run again."""
    return {
        "seeds": list(folder.study.seeds),
        "runs": list(folder.plan.runs),
        "configs": {
            variant: {
                stage: config
                for (name, stage), config in folder.plan.configs.items()
                if name == variant
            }
            for variant in dict.fromkeys(name for name, _ in folder.plan.configs)
        },
    }


def _explain(folder: StudyFolder, changes: list[str], begun: list[str], lost: list[str]) -> str:
    shown = changes[:_SHOWN]
    if len(changes) > _SHOWN:
        shown.append(f"… and {len(changes) - _SHOWN} more")
    return (
        f"{folder.path}: the study changed since it was begun (here: as asked now, there: as "
        "begun):\n  "
        + "\n  ".join(shown)
        + f"\n{len(begun) - len(lost)} of its {len(begun)} runs can be kept; go on with "
        "--accept_changes true, which leaves the others out of the report, or choose another "
        "--study_dir"
    )
