"""Whether runs that should have the same data, versions and machine have them, by their manifests.

A mean over seeds takes it that only the seed differs. Data is compared by its content, since a
corpus, a file of rows or a vocabulary may be replaced while its name stays.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertlab.api import CorpusError
from bertlab.extend import (
    MANIFEST_FILE,
    Config,
    PretrainingData,
    TokenStoreError,
    explain_damage,
    open_prepared,
    read_object,
    sessions_of,
    source_of,
)
from bertlab_studies.errors import MixtureError
from bertlab_studies.execute.run_state import State, is_done
from bertlab_studies.execute.schedule import Change, OnChange
from bertlab_studies.plan.plan import Plan, PlannedRun
from bertlab_studies.plan.stages import STAGES_KEY, read_stages, stage_directory
from bertlab_studies.plan.study_file import BASE
from bertlab_studies.plan.values import heads_by_name
from bertlab_studies.plan.zero_shot import SECTION, is_zero_shot

NOW = ""  # stands for the runs that are to be started
_CORPUS = ("corpus", "corpus_format", "text_column", "errors", "language")
_TOKENIZER = ("tokenizer", "tokenizer_kind", "vocab_size", "lowercase")
_ROWS = (
    "source",
    "train",
    "validation",
    "test",
    "columns",
    "format",
    "label_names",
    "validation_fraction",
)
_SHOWN = 3  # runs that are named of each side
_DIGITS = 12  # of a hash

Manifest = Mapping[str, Any]
Key = tuple[str, str]  # what is compared, and the settings that say which runs should agree in it
Sides = dict[str, list[str]]  # runs by what they have


@dataclass(frozen=True)
class Sameness:
    """In what the finished runs of a study differ though their configs do not.

    Attributes:
        mixtures: a line for each kind of data that differs, with the runs of each side.
        variants: that have such runs.
        remarks: a line on versions and machines that differ, and one on runs that do not tell.
    """

    mixtures: tuple[str, ...] = ()
    variants: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()


def compare_runs(plan: Plan, study_dir: Path) -> Sameness:
    """Compare the manifests of the runs that are done."""
    data: dict[Key, Sides] = defaultdict(dict)
    machines: dict[Key, Sides] = defaultdict(dict)
    silent = []  # runs of an older bertlab
    for run in plan.in_order():
        if not is_done(run.directory(study_dir)):
            continue
        with manifest_of(run, study_dir) as manifest:
            for key, value in data_of(plan, run, manifest, run.directory(study_dir)).items():
                if not isinstance(value, str | None):
                    raise TypeError(f"{key[0]}: found {value!r}, expected a text")
                if value is None:
                    silent.append(run.id)
                else:
                    data[key].setdefault(value, []).append(run.id)
            for key, value in _machine_of(plan, run, manifest).items():
                machines[key].setdefault(value, []).append(run.id)
    mixed = {key: sides for key, sides in data.items() if len(sides) > 1}
    involved = {run for sides in mixed.values() for runs in sides.values() for run in runs}
    involved |= _descendants(plan, involved)
    different = [
        f"{name} {_told(sides)}" for (name, _), sides in machines.items() if len(sides) > 1
    ]
    remarks = []
    if different:
        remarks.append(f"runs differ in how they were made: {'; '.join(different)}")
    if silent:
        count = len(dict.fromkeys(silent))
        remarks.append(
            f"{count} run{'' if count == 1 else 's'} of an older bertlab ({silent[0]}"
            f"{', …' if count > 1 else ''}) did not record their data; whether all have the same "
            "is not known"
        )
    return Sameness(
        tuple(
            f"{name}: {_told(_with_descendants(plan, sides), all_but_most=True)}"
            for (name, _), sides in mixed.items()
        ),
        frozenset(cell[0] for cell, run in plan.cells.items() if run in involved),
        tuple(remarks),
    )


def other_kernels(plan: Plan, study_dir: Path, baseline: str) -> list[str]:
    """Return a line for each comparison whose runs took another path through kernels.

    That may be for the machines' sake, or for the configs': heads of a size that no kernel has.

    Args:
        plan: runs of the study.
        study_dir: its directory.
        baseline: variant that the others are compared with.
    """
    ways: dict[tuple[str, str], dict[str, set[str]]] = {}  # by stage and variant, then by part
    for variant, stage, seed in plan.cells:
        own = ways.setdefault((stage, variant), {})
        for run in plan.runs_of(variant, stage, seed).values():
            if is_done(run.directory(study_dir)):
                with manifest_of(run, study_dir) as manifest:
                    for part, found in _kernels_of(manifest).items():
                        own.setdefault(part, set()).update(found)
    lines = []
    for (stage, variant), own in ways.items():
        theirs = ways[stage, baseline]
        different = [
            f"{part} {_either(own[part])}, not {_either(theirs[part])}"
            for part in own.keys() & theirs.keys()
            if own[part] != theirs[part]
        ]
        if different:
            told = "; ".join(sorted(different))
            lines.append(
                f"{variant} against {baseline}, {stage}: other kernels, so that results differ by "
                f"rounding as well, and steps in a given time by speed: {told}"
            )
    return lines


def _kernels_of(manifest: Manifest) -> dict[str, list[str]]:
    """Return the ways that the sessions of a run took, by part; {} of an older bertlab."""
    found: dict[str, list[str]] = {}
    for session in sessions_of(manifest)[1:]:
        for part, way in session.get("kernels", {}).items():
            if (told := str(way)) not in found.setdefault(part, []):
                found[part].append(told)
    return found


def _either(ways: Iterable[str]) -> str:
    return " or ".join(sorted(ways))


def refuse_mixture(same: Sameness, study_dir: Path) -> None:
    """Raise MixtureError if runs that should have the same data have not."""
    if same.mixtures:
        raise MixtureError(
            f"{study_dir}: its runs have different data, though their configs say the same:\n  "
            + "\n  ".join(same.mixtures)
            + f"\nPut the data back, or delete the runs of one side below {study_dir / 'runs'} and "
            "run the study again, or continue with --accept_mixture true, which marks every table"
        )


def refusing_mixtures(on_change: OnChange, plan: Plan, study_dir: Path) -> OnChange:
    """Return what also stops a study when a run that is done had other data than before."""

    def note(change: Change) -> None:
        on_change(change)
        if change.state is State.DONE:
            refuse_mixture(compare_runs(plan, study_dir), study_dir)

    return note


def refuse_other_corpus(plan: Plan, study_dir: Path, elsewhere: bool) -> None:
    """Raise MixtureError if runs would start on another text than those that were begun had.

    Only files and prepared corpora are looked at: what another source holds is known only to a run.

    Args:
        plan: runs of the study.
        study_dir: its directory.
        elsewhere: runs are executed on other machines, which may have a text that this one has not.

    Raises:
        MixtureError: names the runs.
        CorpusError: a file is missing or cannot be read here, where every run to come would say so.
        TokenStoreError: the same of a prepared corpus.
    """
    begun: dict[Key, Sides] = defaultdict(dict)
    to_come: dict[Key, Config] = {}
    for run in plan.in_order():
        config = plan.configs[run.variant, run.stage]
        if is_zero_shot(config) or "corpus" not in config["data"]:
            continue
        key = _key("corpus", config["data"], _CORPUS)
        with manifest_of(run, study_dir) as manifest:
            if manifest.get("corpus"):
                begun[key].setdefault(manifest["corpus"], []).append(run.id)
        if not is_done(run.directory(study_dir)):
            to_come[key] = config
    for key in begun.keys() & to_come.keys():
        try:
            found = corpus_now(to_come[key])
        except (CorpusError, TokenStoreError):
            if not elsewhere:
                raise
            continue  # only a run can tell
        if found is not None and set(begun[key]) != {found}:
            sides = _with_descendants(plan, begun[key])
            sides.setdefault(found, []).append(NOW)
            line = f"corpus: {_told(sides, all_but_most=True)}"
            refuse_mixture(Sameness((line,)), study_dir)


def corpus_now(config: Config) -> str | None:
    """Return the fingerprint of a pre-training's corpus as it is now; None if only a run can tell.

    Raises:
        CorpusError: a file is missing or cannot be read.
        TokenStoreError: a prepared corpus is damaged.
    """
    data = PretrainingData(**config["data"], seed=0)
    corpus = data.corpus
    prepared = open_prepared(corpus, data.cache_dir)
    if prepared is not None:
        return prepared.metadata.corpus_fingerprint
    if not corpus.sources or any(source_of(source) for source in corpus.sources):
        return None
    return corpus.fingerprint


def data_of(
    plan: Plan, run: PlannedRun, manifest: Manifest, directory: Path
) -> dict[Key, str | None]:
    """Return the hashes of a run's data; None where its manifest does not tell.

    Args:
        plan: of a study.
        run: one of its runs, or of another study's that has the same config.
        manifest: of the run.
        directory: of the run.
    """
    config = plan.configs[run.variant, run.stage]
    base = plan.configs[run.variant, BASE]
    # a later stage has the tokenizer of its pre-training
    origin = {"init_from": base["model"].get("init_from"), **base["data"]}
    keys = (*_CORPUS, *_TOKENIZER, "init_from")
    found: dict[Key, str | None] = {
        _key("tokenizer", origin, keys): manifest.get("tokenizer"),
    }
    start = base["model"].get("init_from")
    if run.stage == BASE and start is not None and not base["model"].get("from_scratch"):
        began = _first_manifest(base, directory, manifest)
        found["weights of model.init_from", str(start)] = began.get("init_weights")
    if is_zero_shot(config):
        entry = {key: value for key, value in config[SECTION].items() if key != "settings"}
        key = _key(f"rows of {run.stage}", entry, tuple(entry))
        return found | {key: manifest.get("rows", {}).get(run.stage)}
    if "corpus" in config["data"]:
        return found | {_key("corpus", config["data"], _CORPUS): manifest.get("corpus")}
    if text := config["data"].get("objectives"):  # beside heads
        found[_key("corpus", text, _CORPUS)] = manifest.get("corpus")
    splits = manifest.get("data", {})
    heads = heads_by_name(config["model"])
    several = config["data"].get("heads", {})
    # mrpc/train of several heads, train of a single one
    for split in splits or [f"{name}/train" if several else "train" for name in heads]:
        name = split.partition("/")[0] if several else next(iter(heads))
        settings = {**config["data"], **several.get(name, {}), "head": heads[name]["name"]}
        key = _key(f"rows of {run.stage}, {split}", settings, (*_ROWS, "head"))
        found[key] = splits.get(split, {}).get("fingerprint")
    return found


def _first_manifest(config: Config, directory: Path, manifest: Manifest) -> Manifest:
    """Return the manifest of a run's first stage: the others go on from the one before."""
    if not config.get(STAGES_KEY):
        return manifest
    path = stage_directory(directory, read_stages(config[STAGES_KEY]), 0) / MANIFEST_FILE
    with explain_damage(path):
        return read_object(path) if path.is_file() else {}


def _machine_of(plan: Plan, run: PlannedRun, manifest: Manifest) -> dict[Key, str]:
    """Return versions, device, threads and precision of a run, as far as its manifest tells."""
    versions: dict[str, list[str]] = defaultdict(list)  # of each session, as far as it is another
    for session in sessions_of(manifest):
        contents = session.get("plugin_contents", {})
        packages = {
            "Python": session.get("python"),
            **session.get("packages", {}),
            **session.get("plugins", {}),
            **{f"files of {name}": each[:_DIGITS] for name, each in contents.items()},
        }
        for name, each in packages.items():
            if each is not None and versions[name][-1:] != [each]:
                versions[name].append(each)
    found: dict[Key, Any] = {(name, ""): ", then ".join(all_) for name, all_ in versions.items()}
    config = plan.configs[run.variant, run.stage]
    # what the config says may differ between variants; an evaluation has no Trainer
    asked = _key("", config.get("trainer", {}), ("accelerator", "devices", "precision"))[1]
    for name in ("device", "threads", "precision"):
        found[name, asked] = manifest.get(name)
    for part, ways in _kernels_of(manifest).items():
        found[f"{part} ({run.variant}, {run.stage})", asked] = ", then ".join(ways)
    return {key: str(value) for key, value in found.items() if value is not None}


def _key(name: str, settings: Mapping[str, Any], keys: Iterable[str]) -> Key:
    return name, json.dumps([settings.get(key) for key in keys], sort_keys=True, default=str)


def _with_descendants(plan: Plan, sides: Sides) -> Sides:
    """Return each side with the runs that start from its weights: they go with it."""
    found = {value: list(runs) for value, runs in sides.items()}
    for runs in found.values():
        runs += [run for run in _descendants(plan, runs) if run not in runs]
    return found


def _descendants(plan: Plan, ids: Iterable[str]) -> set[str]:
    found = set(ids)
    for run in plan.in_order():  # parents first
        if run.parent in found:
            found.add(run.id)
    return found - set(ids)


def _told(sides: Sides, all_but_most: bool = False) -> str:
    """Return what each side has, and its runs: ``1f0a… in 1 run (a), 77c1… in 2 runs (b, c)``.

    Args:
        sides: runs by what they have.
        all_but_most: name all runs, but for the side with most: they may have to be deleted.
    """
    by_size = sorted(sides.items(), key=lambda side: -len(side[1]))
    return ", ".join(
        f"{_short(value)} in {_counted(runs, all_but_most and place > 0)}"
        for place, (value, runs) in enumerate(by_size)
    )


def _short(value: str) -> str:
    return f"{value[:_DIGITS]}…" if len(value) > 2 * _DIGITS and value.isalnum() else value


def _counted(runs: list[str], all_named: bool) -> str:
    named = [run for run in runs if run != NOW]
    words = []
    if named:
        cut = len(named) > _SHOWN and not all_named
        shown = ", ".join([*named[:_SHOWN], "…"] if cut else named)
        words.append(f"{len(named)} run{'' if len(named) == 1 else 's'} ({shown})")
    if NOW in runs:
        words.append("what would be run now")
    return " and ".join(words)


@contextmanager
def manifest_of(run: PlannedRun, study_dir: Path) -> Iterator[Manifest]:
    """Yield the manifest of a run, empty if there is none; name it if the block cannot read it.

    Raises:
        UnreadableError: it is not what a run writes.
    """
    path = run.directory(study_dir) / MANIFEST_FILE
    with explain_damage(path):
        yield read_object(path) if path.is_file() else {}
