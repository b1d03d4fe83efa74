"""Whether two runs, or two folders of output, are equal to the bit; what differs, in words."""

import csv
from pathlib import Path

import torch


def compare_runs(one: Path, two: Path) -> list[str]:
    """Return what differs between two runs, a line each."""
    if not (two / "results.json").is_file():
        return [f"{two}: has no results.json; see {two}.log"]
    faults = []
    if (one / "results.json").read_bytes() != (two / "results.json").read_bytes():
        faults.append(f"{two}: results.json differs")
    ours, theirs = (
        torch.load(each / "checkpoints" / "last.ckpt", weights_only=True) for each in (one, two)
    )
    for part in ("state_dict", "optimizer_states", "lr_schedulers", "global_step", "epoch"):
        if not equal(ours[part], theirs[part]):
            faults.append(f"{two}: {part} of last.ckpt differs")
    lines, others = log_lines(one), log_lines(two)
    if lines.keys() != others.keys():
        faults.append(f"{two}: lines of the log: {len(lines)} and {len(others)}")
    faults += [
        f"{two}: the log differs at {key}"
        for key in lines.keys() & others.keys()
        if set(others[key]) != set(lines[key])
    ]
    if left := [path.name for path in two.rglob("*.partial")]:
        faults.append(f"{two}: left behind: {left}")
    return faults


def equal(one: object, two: object) -> bool:
    """Return whether two parts of checkpoints are the same, to the bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(two, torch.Tensor) and torch.equal(one, two)
    if isinstance(one, dict):
        return (
            isinstance(two, dict)
            and one.keys() == two.keys()
            and all(equal(one[key], two[key]) for key in one)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(equal, one, two))  # type: ignore[arg-type]
    return bool(one == two)


def log_lines(run: Path) -> dict[tuple[str, str], list[tuple[tuple[str, str], ...]]]:
    """Return the lines of all logs of a run, by step and by what they tell; without times."""
    found: dict[tuple[str, str], list[tuple[tuple[str, str], ...]]] = {}
    for path in sorted(run.glob("csv/*/metrics.csv")):
        for row in csv.DictReader(path.read_text("utf-8").splitlines()):
            told = {key: value for key, value in row.items() if value and key}
            if None in row or None in row.values():
                continue  # cut short by the kill
            told.pop("tokens_per_second", None)
            kind = "val" if any(key.startswith("val/") for key in told) else "train"
            found.setdefault((row["step"], kind), []).append(tuple(sorted(told.items())))
    return found


def compare_files(one: Path, two: Path, but: str | None = None) -> list[str]:
    """Return what differs between two files or folders, or was left beside the second.

    Args:
        one: the first.
        two: the second.
        but: the name of a file that may differ.
    """
    ours, theirs = files_of(one), files_of(two)
    if ours.keys() != theirs.keys():
        return [f"{two}: other files: {sorted(ours)}, {sorted(theirs)}"]
    faults = [
        f"{two}: {name or 'the file'} differs"
        for name, path in ours.items()
        if name != but and path.read_bytes() != theirs[name].read_bytes()
    ]
    beside = [path.name for path in two.parent.iterdir() if two.name in path.name and path != two]
    left = [name for name in beside if not name.endswith(".log")]
    return faults + ([f"{two}: left behind: {left}"] if left else [])


def files_of(place: Path) -> dict[str, Path]:
    """Return a folder's files by their path in it; a file on its own has no name."""
    if place.is_file():
        return {"": place}
    return {str(path.relative_to(place)): path for path in place.rglob("*") if path.is_file()}
