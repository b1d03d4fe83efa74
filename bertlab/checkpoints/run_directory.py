"""One directory per run: resolved config, manifest, logs, checkpoints, plots."""

import contextlib
import os
import platform
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertlab.errors import OutputError, without_secrets
from bertlab.files import check_is_path, create_json, make_folder, write_json
from bertlab.plugins.index import version_of

if TYPE_CHECKING:
    import torch

RUN_ENVIRONMENT = "BERTLAB_RUN_DIR"  # rank 0 tells the ranks that it starts
# a study tells each run what it is of; trackers show it
STUDY_ENVIRONMENT, VARIANT_ENVIRONMENT = "BERTLAB_STUDY", "BERTLAB_VARIANT"
MANIFEST_FILE = "manifest.json"
CONFIG_FILE = "config.yaml"
BEST_CHECKPOINT = "best.json"  # names the best checkpoint
STAGES_FILE = "stages.yaml"  # config of a run in stages, whose last stage has the directory as well
RESULTS_FILE = "results.json"  # metrics of the last step; written last, when a run is whole
DEGENERATE_FILE = "complaints.json"  # warnings about a degenerate run; the name is an older one
PREDICTIONS_FILE = "predictions.jsonl"
# what is written before the first step
_OF_A_START = frozenset(
    {MANIFEST_FILE, CONFIG_FILE, "tokenizer", "csv", "tensorboard", "checkpoints"}
)
PACKAGES = (
    *("bertlab", "torch", "lightning", "torchmetrics"),
    *("jsonargparse", "tokenizers", "datasets", "numpy"),
)


def check_nothing_leads_out(directory: Path, name: str | None = None) -> None:
    """Raise OutputError if what is written below a directory could land elsewhere.

    A directory of a run or study may come from anywhere, and loggers and callbacks write to names
    that are known before: a link ``csv -> /home/me`` would take their files there. Links that stay
    inside (``wandb/latest-run``) are kept, and so is what is hidden (``.venv``), where nothing is
    written. ``name`` is the one entry of the directory that is written to, if it is one.
    """
    check_is_path(directory)
    top = os.path.realpath(directory)
    for found in _entries(top, name):
        if found.is_symlink():
            place = os.path.realpath(found.path)
            if os.path.commonpath([top, place]) == top:
                continue
            what = f"is a link that leads out of {directory}, to {place}"
        elif found.is_file(follow_symlinks=False) or found.is_dir(follow_symlinks=False):
            continue
        else:
            what = "is a device, a pipe or a socket"
        raise OutputError(
            f"{directory / os.path.relpath(found.path, top)}: {what}; bertlab writes below "
            f"{directory}, and only there: remove it, or choose another directory"
        )


def _entries(top: str, name: str | None) -> Iterator[os.DirEntry[str]]:
    """Yield what lies below a folder, links not followed."""
    folders = [top]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                found = list(entries)
        except (FileNotFoundError, NotADirectoryError):  # not there yet, or removed meanwhile
            continue
        for entry in found:
            if folder == top and (entry.name.startswith(".") or name not in (None, entry.name)):
                continue
            yield entry
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)


def choose_run_directory(requested: str | None, name: str, is_stage: bool = False) -> Path:
    """Return the directory of a new run, without making it; :func:`claim` does."""
    inherited = requested or os.environ.get(RUN_ENVIRONMENT)
    if inherited and not is_first_process():
        return Path(inherited).expanduser()
    if requested is not None:
        directory = Path(requested).expanduser()
        if directory.is_file():
            raise OutputError(f"run_dir: {directory} is a file, expected a directory")
        if (directory / MANIFEST_FILE).is_file() or (
            (directory / STAGES_FILE).is_file() and not is_stage
        ):
            raise OutputError(
                f"run_dir: {directory} already holds a run; choose another --run_dir, or continue "
                f"that run by --ckpt_path {shlex.quote(requested)}"
            )
    else:
        directory = Path("runs") / name
        number = 1
        while directory.exists():
            number += 1
            directory = Path("runs") / f"{name}-{number}"
    check_nothing_leads_out(directory)
    _check_writable(directory)
    if requested is None:  # which a rank that is started later could not find out
        os.environ[RUN_ENVIRONMENT] = str(directory)
    return directory


def is_first_process() -> bool:
    """Whether this process writes the run, by what torchrun, SLURM or Lightning says of it.

    Known before there is a Trainer. The others may see an older state of a shared disk.
    """
    found = (os.environ.get(name) for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"))
    return next((rank for rank in found if rank), "0") == "0"


def give_up(directory: Path) -> None:
    """Let a run that ended before its first checkpoint begin anew in its directory."""
    if (directory / RESULTS_FILE).is_file():
        found = "holds a finished run without checkpoints, which would be written over"
        raise OutputError(f"{directory}: {found}; choose another --run_dir")
    if is_first_process():
        (directory / MANIFEST_FILE).unlink(missing_ok=True)


def resumed_run(checkpoint: Path | None, requested: str | None) -> Path | None:
    """Return the run of a checkpoint, if it goes on in its own directory; None for a new one."""
    if checkpoint is None:
        return None
    run = checkpoint.parent.parent
    elsewhere = requested is not None and Path(requested).expanduser().resolve() != run.resolve()
    if elsewhere or not (run / MANIFEST_FILE).is_file():
        return None
    check_nothing_leads_out(run)
    return run


def claim(directory: Path, content: Mapping[str, Any]) -> None:
    """Make the directory of a new run and write its manifest, which makes it this run's alone.

    Of several processes that chose the same directory, one gets it.
    """
    with claiming(directory):
        # it refuses a file that is there: only one process makes it
        create_json(directory / MANIFEST_FILE, without_secrets(content))


def session(step: int, processes: int, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a manifest says of each time that its run was started."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return {"started": started, "step": step, "processes": processes, "device": facts["device"]}


def add_session(directory: Path, record: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Add to a run's manifest, ``record``, that it goes on; one that cannot be read stays."""
    before = record.get("sessions", [])  # a manifest of an older bertlab has none
    if record and isinstance(before, list):
        sessions = [*before, without_secrets(content)]
        write_json(directory / MANIFEST_FILE, {**record, "sessions": sessions})


def entries(directory: Path) -> frozenset[str]:
    """Return the names of what lies in a directory; none if it is not there."""
    return (
        frozenset(path.name for path in directory.iterdir()) if directory.is_dir() else frozenset()
    )


def give_back(directory: Path, before: frozenset[str]) -> None:
    """Remove what a run that has not begun to train has written, and nothing else."""
    for name in _OF_A_START - before:
        path = directory / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it has something else, or was there
        if not before:
            directory.rmdir()


@contextlib.contextmanager
def claiming(directory: Path) -> Iterator[None]:
    """Make the directory of a new run; what the block makes in it must not be there before."""
    make_folder(directory)
    try:
        yield
    except FileExistsError:
        words = f"run_dir: another run has taken {directory} since this one started"
        raise OutputError(f"{words}; start again, or choose another --run_dir") from None


def _check_writable(directory: Path) -> None:
    """Write a file without a name where the directory is or will be made."""
    try:
        # runs/quickstart -> runs, or the working directory where that is not there yet
        place = next(each for each in (directory, *directory.absolute().parents) if each.exists())
        # it has no name, so that a kill in between leaves nothing behind
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        told = f"run_dir: {directory} cannot be written: {error.strerror}"
        raise OutputError(f"{told}; choose another --run_dir") from error


def manifest(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is needed to repeat a run: versions, machine, and the given facts."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        **facts,
    }


def machine_facts(device: "torch.device", count: int = 1) -> dict[str, Any]:
    """Return the ``threads`` and the ``device`` of a run: ``cpu``, ``2 × NVIDIA H100``."""
    import torch  # noqa: PLC0415  whoever has a device has it already; commands without do not wait

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {
        "threads": torch.get_num_threads(),
        "device": name if count == 1 else f"{count} × {name}",
    }


def _version(package: str) -> str:
    try:
        return version_of(package)
    except PackageNotFoundError:
        return "not installed"
