"""The directory of a study: what was asked, what is in it, and whether the two still agree."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from bertlab.extend import (
    Config,
    differences,
    explain_failed_write,
    make_folder,
    plain,
    read_config,
    read_object,
    warn,
    without_secrets,
    write_json,
    write_text,
)
from bertlab_studies.errors import StudyChangedError, StudyError
from bertlab_studies.plan.plan import Plan
from bertlab_studies.plan.seeds import ADDED_SEEDS
from bertlab_studies.plan.study_file import BASE, StudyConfig
from bertlab_studies.settings import (
    PLAN,
    STUDY_FILE,
    Overrides,
    find_study,
    overridden,
    read_settings,
)

_PLAN_KEYS = {"seeds": list, "runs": list, "configs": dict}
_FINETUNE_SEEDS = "finetune_seeds"
_BUDGET = "budget."
_SHOWN = 12  # lines of changes


def read_study(
    source: str | Path | Mapping[str, Any],
    settings: Overrides | None = None,
    evaluate_settings: Overrides | None = None,
) -> tuple[Config, Path, Path | None]:
    """Read a study from its file, from the directory that it was run in, or from a mapping.

    Args:
        source: a study file, the directory of a study, or the content of a study file.
        settings: that override the file's, for all variants; ``budget.steps`` its budget.
        evaluate_settings: that override the file's, for all evaluations, or for the one whose name
            a key begins with.

    Returns:
        The content; its file, which names in it are relative to; and the directory of the study,
        if that was given.

    Raises:
        StudyError: if there is none, or settings are given for one that was begun without them.
    """
    if isinstance(source, Mapping):
        path, content = Path("study"), dict(plain(source))
    else:
        path = find_study(source)
        if (directory := Path(source)).is_dir():
            if settings or evaluate_settings:
                raise StudyError(f"--set: {directory} was begun without it; give the study's file")
            return read_config(path), path, directory
        content = {"name": path.stem, **read_config(path)}  # a name in the file wins
    own = read_settings(plain(settings), "--set")
    budget = {key: own.pop(key) for key in list(own) if key.startswith(_BUDGET)}
    if budget:
        content["budget"] = {key.removeprefix(_BUDGET): value for key, value in budget.items()}
    common = _set_evaluations(
        content, read_settings(plain(evaluate_settings), "--evaluate_set"), str(path)
    )
    for key, more in (("settings", own), ("evaluate_settings", common)):
        if more:
            content[key] = overridden(read_settings(content.get(key), f"{path}: {key}"), more)
    return content, path, None


def _set_evaluations(content: Config, given: Overrides, where: str) -> Overrides:
    """Put overrides that begin with an evaluation's name into its settings; return the others."""
    evaluate = content.get("evaluate")
    if isinstance(evaluate, list):
        evaluate = content["evaluate"] = {Path(str(each)).stem: each for each in evaluate}
    if not isinstance(evaluate, dict):
        return given
    evaluate = content["evaluate"] = {str(name): each for name, each in evaluate.items()}  # 2018
    for key in list(given):
        # "squad-v1.1.model.lr" -> squad-v1.1, model.lr
        names = [name for name in evaluate if key.startswith(f"{name}.")]
        if names:
            name = max(names, key=len)
            entry = evaluate[name]
            fields = entry if isinstance(entry, dict) else {"config": entry}
            place = f"{where}: evaluate.{name}"
            more = read_settings({key.removeprefix(f"{name}."): given.pop(key)}, place)
            own = read_settings(fields.get("settings"), f"{place}.settings")
            evaluate[name] = {**fields, "settings": overridden(own, more)}
    return given


def claim(
    study_dir: Path, content: Config, config: StudyConfig, plan: Plan, accept_changes: bool
) -> list[str]:
    """Write down what is asked, unless that changes a study which has runs already.

    Args:
        study_dir: directory of the study.
        content: of the study file, its paths absolute.
        config: made of it.
        plan: its runs.
        accept_changes: leave runs that are not asked any more where they are, out of the report.

    Returns:
        What changed since the study was begun, a line each.

    Raises:
        StudyChangedError: if runs would be left out; says what changed and what can be kept.
    """
    asked = without_secrets(_asked(config, plan))
    before = _read_plan(study_dir / PLAN)
    changes: list[str] = []
    if before is not None:
        changes = _changes(asked, before)
        begun = [run for run in before["runs"] if (study_dir / "runs" / run).exists()]
        lost = [run for run in begun if run not in plan.runs]
        if lost and not accept_changes:
            raise StudyChangedError(_explain(study_dir, changes, begun, lost))
    make_folder(study_dir)
    keep_content(study_dir, content)
    write_json(study_dir / PLAN, asked)
    return changes


def added_seeds(study_dir: Path) -> object:
    """Return the seeds of a study that ``add-seeds`` has extended, as its file has them; or None.

    Args:
        study_dir: directory of the study, which need not be there.

    Raises:
        ConfigFileError: if the study file in the directory cannot be read.
    """
    path = study_dir / STUDY_FILE
    return read_config(path).get(ADDED_SEEDS) if path.is_file() else None


def begun_in(study_dir: Path) -> list[str]:
    """Return the ids of the runs that were begun in the directory of a study."""
    return [path.name for path in (study_dir / "runs").glob("*")]


def warn_of_others(study_dir: Path, plan: Plan) -> None:
    """Warn of runs that are there and not in the study as it is now: they are left out."""
    there = {path.name for path in (study_dir / "runs").glob("*") if path.is_dir()}
    others = sorted(there - set(plan.runs))
    if others:
        warn(
            f"{study_dir}: {len(others)} runs are not of the study as it is now "
            f"({others[0]}, …); its file has changed, or bertlab has (a run's manifest.json "
            "names the version)"
        )


def _read_plan(path: Path) -> dict[str, Any] | None:
    """Return what was asked when the study was last run; None if it was not."""
    try:
        return read_object(path, _PLAN_KEYS)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StudyError(
            f"{path}: damaged: {error}; expected the plan of the study; remove the file, and what "
            "changed since the study was begun is not looked for"
        ) from None


def _changes(asked: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Return what is asked otherwise than before, a line each."""
    lines = []
    for key in ("seeds", _FINETUNE_SEEDS):
        if asked.get(key) != before.get(key):
            lines.append(f"{key}: {asked.get(key, 'none')} here, {before.get(key, 'none')} there")
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


def keep_content(study_dir: Path, content: Config) -> None:
    """Write the study file of a study's directory, whole or not at all."""
    text = yaml.safe_dump(without_secrets(content), sort_keys=False, allow_unicode=True)
    with explain_failed_write(f"{study_dir / STUDY_FILE}: cannot be written"):
        make_folder(study_dir)
        write_text(study_dir / STUDY_FILE, text)


def _asked(config: StudyConfig, plan: Plan) -> dict[str, Any]:
    """Return what is compared when the study is run again."""
    nested = config.finetune_seeds
    return {
        "seeds": list(config.seeds),
        **({} if nested is None else {_FINETUNE_SEEDS: list(nested)}),
        "runs": list(plan.runs),
        "configs": {
            variant: {
                stage: resolved
                for (name, stage), resolved in plan.configs.items()
                if name == variant
            }
            for variant in dict.fromkeys(name for name, _ in plan.configs)
        },
    }


def _explain(study_dir: Path, changes: list[str], begun: list[str], lost: list[str]) -> str:
    shown = changes[:_SHOWN]
    if len(changes) > _SHOWN:
        shown.append(f"… and {len(changes) - _SHOWN} more")
    return (
        f"{study_dir}: the study changed since it was begun (here: as asked now, there: as "
        "begun):\n  "
        + "\n  ".join(shown)
        + f"\n{len(begun) - len(lost)} of its {len(begun)} runs can be kept; continue with "
        "--accept_changes true, which leaves the others out of the report, or choose another "
        "--study_dir"
    )
