"""One directory per run: resolved config, manifest, logs, checkpoints, plots."""

import contextlib
import os
import platform
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bertlab.errors import OutputError
from bertlab.files import create_json, create_text

if TYPE_CHECKING:
    import torch

RUN_ENVIRONMENT = "BERTLAB_RUN_DIR"  # rank 0 tells the ranks that it starts
# a study tells each run what it is of; trackers show it
STUDY, VARIANT = "BERTLAB_STUDY", "BERTLAB_VARIANT"
MANIFEST = "manifest.json"
CONFIG = "config.yaml"
STAGES = "stages.yaml"  # config of a run in stages, whose last stage has the directory as well
RESULTS = "results.json"  # metrics of the last step; written last, when a run is whole
DEGENERATE = "complaints.json"  # warnings about a degenerate run; the name is an older one
PREDICTIONS = "predictions.jsonl"
PACKAGES = (
    "bertlab",
    "torch",
    "lightning",
    "torchmetrics",
    "jsonargparse",
    "tokenizers",
    "datasets",
    "numpy",
)


def choose_run_directory(requested: str | None, name: str, is_stage: bool = False) -> Path:
    """Return the directory of a new run, without making it; :func:`claim` does.

    Args:
        requested: ``--run_dir``; if not given, ``runs/<name>``, ``runs/<name>-2``, …: the first
            that is not in use.
        name: what the run is called by default.
        is_stage: it is for a stage of the run in stages that is there.

    Raises:
        OutputError: if the requested directory already holds a run, or cannot be written.
    """
    inherited = requested or os.environ.get(RUN_ENVIRONMENT)
    if inherited and os.environ.get("LOCAL_RANK", "0") != "0":
        return Path(inherited)
    if requested is not None:
        directory = Path(requested)
        if directory.is_file():
            raise OutputError(f"run_dir: {directory} is a file, expected a directory")
        if (directory / MANIFEST).is_file() or ((directory / STAGES).is_file() and not is_stage):
            raise OutputError(
                f"run_dir: {directory} already holds a run; choose another --run_dir, or go on "
                f"with that run by --ckpt_path {shlex.quote(requested)}"
            )
    else:
        directory = Path("runs") / name
        number = 1
        while directory.exists():
            number += 1
            directory = Path("runs") / f"{name}-{number}"
    _check_writable(directory)
    if requested is None:  # which a rank that is started later could not find out
        os.environ[RUN_ENVIRONMENT] = str(directory)
    return directory


def resumed_run(checkpoint: Path | None, requested: str | None) -> Path | None:
    """Return the run of a checkpoint, if it goes on in its own directory; None for a new one.

    Args:
        checkpoint: ``RUN/checkpoints/FILE``; None of what is no run's.
        requested: ``--run_dir``, if given.
    """
    if checkpoint is None:
        return None
    run = checkpoint.parent.parent
    elsewhere = requested is not None and Path(requested).resolve() != run.resolve()
    return None if elsewhere or not (run / MANIFEST).is_file() else run


def claim(directory: Path, content: Mapping[str, Any]) -> None:
    """Make the directory of a new run and write its manifest, which makes it this run's alone.

    Of several processes that chose the same directory, one gets it.

    Raises:
        OutputError: if another run has it.
    """
    with _claiming(directory):
        # it refuses a file that is there: only one process makes it
        create_json(directory / MANIFEST, content)


def claim_stages(directory: Path, config: Mapping[str, Any]) -> None:
    """Make the directory of a new run in stages and write its config; as :func:`claim`."""
    with _claiming(directory):
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        create_text(directory / STAGES, text)


@contextlib.contextmanager
def _claiming(directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except FileExistsError:
        raise OutputError(
            f"run_dir: another run has taken {directory} since this one started; start again, or "
            "choose another --run_dir"
        ) from None


def _check_writable(directory: Path) -> None:
    """Write a file without a name where the directory is or will be made."""
    try:
        # runs/quickstart -> runs, or the working directory where that is not there yet
        place = next(each for each in (directory, *directory.absolute().parents) if each.exists())
        # it has no name, so that a kill in between leaves nothing behind
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise OutputError(
            f"run_dir: {directory} cannot be written: {error.strerror}; choose another --run_dir"
        ) from error


def manifest(plugins: Mapping[str, str], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is needed to repeat a run: versions, machine, and the given facts.

    Args:
        plugins: version by name of the packages that brought a class of this run.
        facts: command, hashes, seed and sizes that the caller knows.
    """
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "plugins": dict(plugins),
        **facts,
    }


def machine(device: "torch.device", count: int = 1) -> dict[str, Any]:
    """Return the ``threads`` and the ``device`` of a run: ``cpu``, ``2 × NVIDIA H100``.

    Args:
        device: of this process.
        count: of devices, one for each process.
    """
    import torch  # noqa: PLC0415  whoever has a device has it already; commands without do not wait

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {
        "threads": torch.get_num_threads(),
        "device": name if count == 1 else f"{count} × {name}",
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
