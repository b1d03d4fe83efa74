"""The analysis of a study, written down before there are data, and how often it was looked at.

``STUDY/analysis.json`` holds what is tested and how, with its SHA-256; ``STUDY/looks.json`` the
sets of seeds that a report was written of. A report says what changed and which look it is: tests
that are chosen, or repeated, after the data were seen do not keep their 5 %. ``study freeze``
registers the analysis with a date; later changes are dated amendments, and shown.
"""

import hashlib
import json
import os
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from bertlab.extend import (
    RESULTS_FILE,
    differences,
    explain_failed_write,
    make_folder,
    read_json,
    without_secrets,
    write_json,
)
from bertlab_studies.errors import StudyError
from bertlab_studies.execute.run_state import is_done
from bertlab_studies.plan.plan import Plan
from bertlab_studies.plan.study_file import StudyConfig
from bertlab_studies.plan.trials import TRIALS, check_rows
from bertlab_studies.report.collect import measures_of
from bertlab_studies.report.comparison import LEVEL
from bertlab_studies.report.earlier_noise import (
    as_noise,
    earlier_noise,
    frozen_noise,
    kinds_of,
    read_record,
)
from bertlab_studies.study_scores import Measure, StudyScores

VERSION = 2  # of the tests: raised when the same values would give other decisions
ANALYSIS, LOOKS = "analysis.json", "looks.json"  # in the directory of a study
# chance in percent that one of so many tests at 5 % finds what is not there: if as many seeds are
# added each time as there were at first (fewer: less), Armitage, McPherson and Rowe (1969),
# Repeated significance tests on accumulating data, table 2; if their number is doubled each time,
# by simulation
_FALSE_ALARMS = {2: (8, 8), 3: (11, 11), 4: (13, 14), 5: (14, 17)}
_SEEDS = ("seeds", "finetune_seeds")
_SHOWN = 12  # hexadecimal digits

Analysis = dict[str, Any]
Kind = TypeVar("Kind", dict[str, Any], list[object])


def planned_analysis(
    study: StudyConfig, plan: Plan, looks: object, study_dir: Path | None = None
) -> Analysis:
    """Return what is tested and how, which does not depend on what runs have left.

    Args:
        study: what is asked.
        plan: its runs.
        looks: planned number, as the study file has it; None if it says nothing.
        study_dir: directory of the study: noise of earlier studies is what was frozen there.

    Raises:
        StudyError: if that is no number above 0, a metric cannot decide, or the record of earlier
            noise is none.
    """
    # type(): to isinstance(), True is an int
    if looks is not None and (type(looks) is not int or looks < 1):
        raise StudyError(
            f"study {study.name}: looks: found {looks!r}, expected a whole number above 0"
        )
    nothing = Path(os.devnull)  # no folder: the same before the first run and after the last
    measures = [each for each in measures_of(study, plan, nothing) if each.is_primary]
    if study.is_crossed:
        measures = []  # runs that share seeds test nothing
    factors = {each.name: list(each.seeds) for each in study.factors}
    controls = {each.name: each.control_of for each in study.variants if each.control_of}
    check_rows(study, [each.name for each in measures])
    earlier = {} if study.earlier_noise is None else _earlier(study, plan, measures, study_dir)
    return {
        "version": VERSION,
        "variants": [variant.name for variant in study.variants],
        "baseline": study.baseline,
        "measures": {
            each.name: {
                "better": "higher" if each.higher_is_better else "lower",
                "margin": each.margin,
            }
            for each in measures
        },
        "seeds": list(study.seeds),
        "finetune_seeds": list(study.finetune_seeds or ()),
        **({"factors": factors} if factors else {}),
        "level": LEVEL,
        "correction": "Holm",
        "looks": looks,
        **({} if study.tune is None else {"tune": study.tune.plain()}),
        **({"controls": controls} if controls else {}),
        **({"earlier_noise": earlier} if earlier else {}),
    }


def _earlier(
    study: StudyConfig, plan: Plan, measures: Sequence[Measure], study_dir: Path | None
) -> Analysis:
    """Return what a study takes of the record that it names: once frozen, what it was then."""
    assert study.earlier_noise is not None, "the caller asks"
    file = study.earlier_noise
    if study_dir is not None:
        content = _read(study_dir / ANALYSIS, {})
        frozen = _latest(content)["analysis"].get("earlier_noise") if content else None
        kept = frozen_noise(frozen, file, kinds_of(study, plan, measures))
        if kept is not None:
            return {"file": str(file), "measures": kept}
    taken = earlier_noise(read_record(file), study, plan, measures)
    return {"file": str(file), "measures": taken}


def freeze(study_dir: Path, analysis: Analysis, plan: Plan) -> None:
    """Write an analysis down, unless there is one and runs are done already.

    One that was registered (:func:`register`) is not written over: what changed is an amendment.

    Raises:
        OutputError: if the file cannot be written.
        StudyError: if it is damaged.
    """
    path, done = study_dir / ANALYSIS, _count_done(study_dir)
    content = _read(path, {})
    if "date" in content:
        _amend(study_dir, content, analysis, plan, "")
    elif not content or not done:
        _write(path, {"analysis": analysis, "sha256": digest(analysis), "runs_done": done})


def register(study_dir: Path, analysis: Analysis, plan: Plan, reason: str = "") -> bool:
    """Write down what is tested, how, and with which configs, with a date; or what changed since.

    Args:
        study_dir: directory of the study.
        analysis: the present one.
        plan: the present runs.
        reason: of a change.

    Returns:
        Whether there was anything to write.

    Raises:
        OutputError: if the file cannot be written.
        StudyError: if it is damaged.
    """
    path = study_dir / ANALYSIS
    content = _read(path, {})
    if "date" in content:
        return _amend(study_dir, content, analysis, plan, reason)
    # one that a run wrote down stays, without a date of its own
    first = content or {
        "analysis": analysis,
        "sha256": digest(analysis),
        "runs_done": _count_done(study_dir),
    }
    dated = {**first, "date": _now(), "plan_sha256": plan_digest(plan), "amendments": []}
    _write(path, dated)
    if first["analysis"] != analysis:
        _amend(study_dir, dated, analysis, plan, reason)
    return True


def _amend(study_dir: Path, content: Analysis, analysis: Analysis, plan: Plan, reason: str) -> bool:
    """Note what changed since an analysis was registered, or last amended, if anything did."""
    last = _latest(content)
    changes = _changes(analysis, last["analysis"])
    if plan_digest(plan) != last.get("plan_sha256"):
        changes.append("configs of runs")
    if not changes:
        return False
    amendment = {
        "date": _now(),
        "runs_done": _count_done(study_dir),
        "changes": changes,
        **({"reason": reason} if reason else {}),
        "analysis": analysis,
        "sha256": digest(analysis),
        "plan_sha256": plan_digest(plan),
    }
    both = [*_amendments(content), amendment]
    _write(study_dir / ANALYSIS, {**content, "amendments": both})
    return True


def _latest(content: Analysis) -> Analysis:
    """Return the last amendment of a registered analysis, or itself."""
    found = [content, *_amendments(content)][-1]
    if not isinstance(found, dict) or not isinstance(found.get("analysis"), dict):
        raise _damaged(Path(ANALYSIS))
    return found


def _amendments(content: Analysis) -> list[Any]:
    found = content.get("amendments") or []
    if not isinstance(found, list):
        raise _damaged(Path(ANALYSIS))
    return found


def plan_digest(plan: Plan) -> str:
    """Return the SHA-256 of the resolved configs of a plan, whatever its seeds are."""
    configs = {f"{variant}\n{stage}": each for (variant, stage), each in plan.configs.items()}
    return digest(without_secrets(configs))


def _changes(now: Analysis, then: Analysis) -> list[str]:
    """Return what differs from an analysis as written down; seeds do not, if looks are planned."""
    planned = bool(now["looks"]) and then.get("looks") == now["looks"]
    left_out = _SEEDS if planned else ()  # more of them were planned
    return differences(_without(now, left_out), _without(then, left_out))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(path: Path, content: Analysis) -> None:
    with explain_failed_write(f"{path}: cannot be written"):
        make_folder(path.parent)
        write_json(path, content)


def digest(analysis: Analysis) -> str:
    """Return the SHA-256 of an analysis, in hexadecimal digits."""
    text = json.dumps(analysis, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def add_analysis(scores: StudyScores, study_dir: Path, now: Analysis) -> None:
    """Add to what was found: the hash of the frozen analysis, what changed, and which look it is.

    Args:
        scores: that get it: ``manifest``, ``analysis_sha256``, ``remarks``, ``looks``, ``earlier``.
        study_dir: directory of the study.
        now: the present analysis.

    Raises:
        StudyError: if a file in the directory is damaged.
    """
    scores.looks = now["looks"] or 1
    if "earlier_noise" in now:
        scores.earlier = as_noise(now["earlier_noise"]["measures"])
        scores.earlier_file = now["earlier_noise"]["file"]
    scores.remarks += _look_remarks(_look(study_dir, now), now["looks"])
    frozen = _read(study_dir / ANALYSIS, {})
    if not frozen:
        return
    then, stamp, done = (frozen.get(key) for key in ("analysis", "sha256", "runs_done"))
    if not (isinstance(then, dict) and isinstance(stamp, str)):
        raise _damaged(study_dir / ANALYSIS)
    when = f"after {done} runs were done" if done else "before a run was done"
    if isinstance(frozen.get("date"), str):
        when = f"on {frozen['date']} {when}"
    scores.analysis_sha256 = stamp
    scores.manifest["analysis"] = f"{stamp[:_SHOWN]}, written down {when}"
    if digest(then) != stamp:
        scores.remarks.append(f"{ANALYSIS} was edited: its SHA-256 is of another content")
    for each in _amendments(frozen):
        scores.remarks.append(_describe_amendment(each, study_dir))
    changes = _changes(now, _latest(frozen)["analysis"])
    if changes:
        scores.remarks.append(
            "the analysis was changed after data had been seen "
            f"({_count_done(study_dir)} runs are done; here: now, there: as written down): "
            + "; ".join(changes)
        )


def _describe_amendment(given: object, study_dir: Path) -> str:
    """Return a line on what changed, when, and what was known by then."""
    try:
        assert isinstance(given, dict)
        done, reason = given["runs_done"], given.get("reason")
        when = f"after {done} runs were done" if done else "before a run was done"
        why = f", as {reason!r} says" if reason else ""
        edited = "" if digest(given["analysis"]) == given["sha256"] else " (edited since)"
        changes, date = "; ".join(map(str, given["changes"])), given["date"]
    except (AssertionError, KeyError, TypeError):
        raise _damaged(study_dir / ANALYSIS) from None
    return (
        f"the analysis was amended on {date}, {when}{why}{edited} (here: amended, there: "
        f"before): {changes}"
    )


def _without(analysis: Analysis, keys: Collection[str]) -> Analysis:
    return {key: value for key, value in analysis.items() if key not in keys}


def record_look(study_dir: Path, plan: Plan, analysis: Analysis) -> None:
    """Note that a report was written of a study, if all runs are done and none was before.

    Raises:
        OutputError: if the file cannot be written.
    """
    before, seen = _looks(study_dir), _seeds(analysis)
    if seen not in before and all(is_done(run.directory(study_dir)) for run in plan.in_order()):
        with explain_failed_write(f"{study_dir / LOOKS}: cannot be written"):
            write_json(study_dir / LOOKS, [*before, seen])


def _look_remarks(look: int, planned: int | None) -> list[str]:
    if planned is not None and planned > 1 and look <= planned:
        return [
            f"look {look} of {planned} that were planned: p-values are multiplied by {planned}, "
            "which keeps 5 % over all looks"
        ]
    if look < 2 or (planned is not None and look <= planned):
        return []
    begins = "seeds were added after a report had been written"
    if planned is not None and planned > 1:
        return [
            f"look {look} where {planned} were planned: {begins}; p-values are multiplied by "
            f"{planned}, which keeps 5 % over {planned} looks, and over {look} at most "
            f"{100 * LEVEL * look / planned:.3g} %"
        ]
    least, most = _FALSE_ALARMS.get(look, (None, None))
    chance = f"up to {least} %" if least is not None else f"more than {_FALSE_ALARMS[5][0]} %"
    if least is not None and most != least:
        chance += f" ({most} % if their number was doubled each time)"
    return [
        f"look {look}: {begins}, which does not keep the 5 %; tests at 5 % at each of {look} looks "
        f"find in {chance} of studies what is not there (looks: 2 in the study file, before the "
        "first run, plans two)"
    ]


def _look(study_dir: Path, analysis: Analysis) -> int:
    """Return the number of a look at these seeds, from 1."""
    before, seen = _looks(study_dir), _seeds(analysis)
    return before.index(seen) + 1 if seen in before else len(before) + 1


def _looks(study_dir: Path) -> list[object]:
    nothing: list[object] = []
    return _read(study_dir / LOOKS, nothing)


def _seeds(analysis: Analysis) -> dict[str, list[int]]:
    return {key: sorted(analysis[key]) for key in _SEEDS}


def _count_done(study_dir: Path) -> int:
    """Return the number of runs that are done: trials, and those not asked any more, as well."""
    folders = (study_dir / "runs", study_dir / TRIALS / "runs")
    return sum(1 for folder in folders for _ in folder.glob(f"*/{RESULTS_FILE}"))


def _read(path: Path, nothing: Kind) -> Kind:
    """Return the content of a JSON file of the same kind; ``nothing`` if it is not there."""
    try:
        content = read_json(path)
    except FileNotFoundError:
        return nothing
    except ValueError:
        raise _damaged(path) from None
    if not isinstance(content, type(nothing)):
        raise _damaged(path)
    return content


def _damaged(path: Path) -> StudyError:
    return StudyError(
        f"{path}: damaged; expected what bertlab wrote; remove the file, and what was there "
        "before is not known any more"
    )
