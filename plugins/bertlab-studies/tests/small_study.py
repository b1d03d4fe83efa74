"""Small studies: their files, and directories of runs as ``bertlab fit`` leaves them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from bertlab_studies.plan.plan import Plan, PlannedRun, make_plan
from bertlab_studies.plan.study_file import StudyConfig, make_study
from bertlab_studies.study import Study
from bertlab_studies.study import study as open_study

BASE: dict[str, Any] = {
    "seed_everything": 3,
    "model": {
        "encoder": {
            "preset": "tiny",
            "hidden_size": 32,
            "num_attention_heads": 2,
            "max_position_embeddings": 64,
        },
        "objectives": ["mlm", "nsp"],
    },
    "data": {"corpus": "nowhere.txt", "vocab_size": 300, "max_seq_length": 32, "batch_size": 8},
    "trainer": {"max_steps": 6, "val_check_interval": 3, "accelerator": "cpu"},
}
TASK: dict[str, Any] = {
    "model": {"init_from": "nowhere", "head": "single_sentence"},
    "data": {"source": "nowhere.jsonl", "max_seq_length": 32, "batch_size": 8},
    "trainer": {"max_epochs": 2, "accelerator": "cpu"},
}
TWO: dict[str, Any] = {"both": {}, "mlm": {"objectives": {"nsp": None}}}


def write_yaml(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False), "utf-8")
    return path


def write_study(folder: Path, **content: Any) -> Path:
    """Write a study beside its config files; two variants with two seeds if nothing is said."""
    for name, config in (("base.yaml", BASE), ("task.yaml", TASK), ("other.yaml", TASK)):
        if not (folder / name).exists():
            write_yaml(folder / name, config)
    defaults = {"base": "base.yaml", "seeds": 2}
    defaults |= {} if content.keys() & {"variants", "axes"} else {"variants": TWO}
    return write_yaml(folder / "study.yaml", {**defaults, **content})


def read_study(folder: Path, **content: Any) -> StudyConfig:
    """Return a study as it is read from its file."""
    path = write_study(folder, **content)
    return make_study({"name": "s", **yaml.safe_load(path.read_text("utf-8"))}, "s.yaml", folder)


def plan_of(folder: Path, **content: Any) -> Plan:
    return make_plan(read_study(folder, **content))


def opened(folder: Path, **content: Any) -> Study:
    """Return a study whose directory is ``folder/study``."""
    return open_study(str(write_study(folder, **content)), str(folder / "study"))


def finish(
    study: Study,
    run: PlannedRun,
    results: Mapping[str, float],
    *,
    predictions: Sequence[Mapping[str, Any]] = (),
    best: Mapping[str, float] | None = None,
    complaints: Sequence[str] = (),
    curve: Mapping[int, Mapping[str, float]] | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> None:
    """Leave what a run leaves that is done."""
    directory = run.directory(study.study_dir)
    log = directory / "csv" / "version_0" / "metrics.csv"
    log.parent.mkdir(parents=True)
    names = sorted({name for values in (curve or {}).values() for name in values})
    lines = [",".join(["epoch", "step", *names])]
    for step, values in (curve or {}).items():
        lines.append(",".join(["0", str(step - 1), *(str(values.get(n, "")) for n in names)]))
    log.write_text("\n".join(lines) + "\n", "utf-8")
    config = study.planned.configs[run.variant, run.stage]
    write_yaml(directory / "config.yaml", {**config, "seed_everything": run.seed})
    (directory / "manifest.json").write_text(json.dumps(manifest or {}), "utf-8")
    if predictions:
        text = "".join(json.dumps(line) + "\n" for line in predictions)
        (directory / "predictions.jsonl").write_text(text, "utf-8")
    if best is not None:
        (directory / "best.json").write_text(json.dumps({"results": best}), "utf-8")
    if complaints:
        (directory / "complaints.json").write_text(json.dumps(complaints), "utf-8")
    (directory / "results.json").write_text(json.dumps(results), "utf-8")
