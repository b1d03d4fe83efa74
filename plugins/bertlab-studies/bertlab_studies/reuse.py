"""Pre-trainings that another study has finished, and this one needs: they are taken over.

A run's id ends in a hash of its config and seed. Of two runs with the same hash the configs are
compared as well, and what no config says: the content of the corpus, and the versions of PyTorch,
bertlab and plugins. A run that is taken over is this study's from then on: the other study can be
deleted.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from bertlab.api import BertlabError
from bertlab.extend import (
    MANIFEST_FILE,
    SEED_SECTION,
    Config,
    check_nothing_leads_out,
    content_hash,
    differences,
    explain_damage,
    explain_failed_write,
    new_folder,
    read_config,
    read_object,
    version_of,
    write_json,
)
from bertlab_studies.errors import StudyError
from bertlab_studies.execute.execution import take_lock
from bertlab_studies.execute.run_state import (
    REUSED_FROM,
    is_done,
    lock_file,
    read_attempts,
    write_attempts,
)
from bertlab_studies.plan.plan import HASH, Plan, PlannedRun, computed
from bertlab_studies.plan.seed_parts import RunSeeds
from bertlab_studies.report.sameness import Key, corpus_now, data_of, manifest_of
from bertlab_studies.settings import check_reused

_PACKAGES = ("bertlab", "torch")
_LINKED = "checkpoints"  # of a run: large, and replaced rather than changed
_DIGITS = 12  # of a hash


@dataclass(frozen=True)
class Reusable:
    """A finished pre-training of another study with the hash of one that this study needs.

    Attributes:
        run: of this study.
        source: directory of the finished run.
        problem: why it is not the same after all; empty if it is.
    """

    run: PlannedRun
    source: Path
    problem: str = ""

    @property
    def study_dir(self) -> Path:
        """Directory of the study that has finished it."""
        return self.source.parent.parent  # STUDY/runs/ID


def find_reusable(plan: Plan, study_dir: Path, others: Sequence[Path]) -> list[Reusable]:
    """Return what other studies have of the pre-trainings that are not begun here.

    Args:
        plan: of this study.
        study_dir: its directory.
        others: directories of studies; the first that has a run gives it.

    Raises:
        StudyError: if one is not the directory of another study.
    """
    for other in check_reused(others):
        if other.resolve() == study_dir.resolve():
            raise StudyError(f"--reuse: {other} is this study; expected another one")
    found = []
    for run in plan.in_order():
        config = plan.configs[run.variant, run.stage]
        if not _is_pretraining(run, config) or run.directory(study_dir).exists():
            continue
        candidates = [
            Reusable(run, source, _problem(plan, study_dir, run, source))
            for other in others
            for source in sorted((other / "runs").glob(f"*-{run.id[-HASH:]}"))
            if is_done(source)
        ]
        same = [each for each in candidates if not each.problem]
        found += (same or candidates)[:1]
    return found


def adopt(found: Reusable, study_dir: Path) -> bool:
    """Take over a finished run, with where it came from and the attempts at it.

    Checkpoints are linked where the file system can, and copied elsewhere; so are all other files.

    Returns:
        Whether it was; not if somebody has begun the run here meanwhile.

    Raises:
        OutputError: if it cannot be written, or the other study was deleted meanwhile.
    """
    run, source = found.run, found.source
    directory = run.directory(study_dir)
    lock = take_lock(lock_file(run, study_dir))
    if lock is None:
        return False
    try:
        if directory.exists():
            return False
        check_nothing_leads_out(source)  # what a link leads to would be copied
        attempts = read_attempts(replace(run, id=source.name), found.study_dir)
        failure = f"{directory}: cannot be taken over from {source}"
        with explain_failed_write(failure), new_folder(directory) as folder:
            hidden = shutil.ignore_patterns(".*")  # not a run's, and not looked at above
            shutil.copytree(source, folder, False, hidden, _link_or_copy, dirs_exist_ok=True)
            content = read_object(source / MANIFEST_FILE)
            write_json(folder / MANIFEST_FILE, {**content, REUSED_FROM: str(source.resolve())})
        if attempts:
            write_attempts(run, study_dir, attempts)
    finally:
        os.close(lock)
    return True


def _link_or_copy(source: str, target: str) -> None:
    if Path(source).parent.name == _LINKED:
        try:
            os.link(source, target)
        except OSError:  # another file system, or one without links
            pass
        else:
            return
    shutil.copy2(source, target)


def _is_pretraining(run: PlannedRun, config: Config) -> bool:
    """Whether a run starts from random weights and text; others start from what may change."""
    return (
        run.trains
        and run.parent is None
        and "corpus" in config["data"]
        and not config["model"].get("init_from")
    )


def _problem(plan: Plan, study_dir: Path, run: PlannedRun, source: Path) -> str:
    """Return why a finished run is not the one that is needed; an empty string if it is."""
    config = plan.configs[run.variant, run.stage]
    seeds = RunSeeds(run.seed, run.id, run.seed_parts).content
    # as it is read from a file; a run without seeds of parts is not one with them
    needed: Config = json.loads(json.dumps({SEED_SECTION: None, **computed(config, seeds)}))
    try:
        there = computed(read_config(source / "config.yaml"), {})
        manifest = read_object(source / MANIFEST_FILE)
        corpus = corpus_now(config)
    except (BertlabError, OSError, ValueError) as error:
        return str(error)
    lines = differences(needed, {key: there.get(key) for key in needed})
    if lines:
        return f"its config differs: {lines[0]}"
    with explain_damage(source / MANIFEST_FILE):
        return (
            _other_versions(manifest)
            or _other_corpus(manifest, corpus)
            or _other_data(data_of(plan, run, manifest, source), plan, study_dir)
        )


def _other_versions(manifest: Mapping[str, Any]) -> str:
    packages = manifest.get("packages", {})
    made_with = {name: packages.get(name, "unknown") for name in _PACKAGES}
    made_with |= manifest.get("plugins", {})
    for name, there in made_with.items():
        try:
            here = version_of(name)
        except PackageNotFoundError:
            here = "none"
        if there != here:
            return f"it was made with {name} {there}, here is {here}"
    for name, there in (manifest.get("plugin_contents") or {}).items():
        if there != content_hash(name):
            return f"it was made with other files of {name} than are here"
    return ""


def _other_corpus(manifest: Mapping[str, Any], here: str | None) -> str:
    there = manifest.get("corpus")
    if there is None:
        return "it did not record its corpus"
    if here is not None and here != there:  # None: what a source holds is known only to a run
        return f"its corpus was {there[:_DIGITS]}…, here it is {here[:_DIGITS]}…"
    return ""


def _other_data(there: Mapping[Key, str | None], plan: Plan, study_dir: Path) -> str:
    """Return in what data a run differs from those that are done here, though configs agree."""
    for done in plan.in_order():
        directory = done.directory(study_dir)
        if is_done(directory):
            with manifest_of(done, study_dir) as own:
                here = data_of(plan, done, own, directory)
            for key in here.keys() & there.keys():
                if here[key] != there[key]:
                    return f"its {key[0]} is not that of {done.id} here"
    return ""
