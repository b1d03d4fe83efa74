"""Files from elsewhere, each with the names of a class, a pickle and a tag in all of its places.

Whatever command reads them, nothing is imported or called: the file is data, or it is refused.
"""

import json
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Never

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from bertlab.errors import CommandError
from bertlab_pages.demo import server
from bertlab_studies.execute.run_state import Attempt, Outcome, attempts_file, write_attempts
from small_study import finish, opened
from tests.reliability.commands import check_answered, run_command

pytestmark = pytest.mark.slow

MODULE = "canary_of_the_walk"
NAME = f"{MODULE}.Trap"
CLASS = {"class_path": NAME, "init_args": {"path": "x"}}
TAG = f"!!python/object/apply:{NAME} [x]\n"
# keys by which some library finds a class or function
KEYS: dict[str, Any] = {
    **{"class_path": NAME, "init_args": {}, "_target_": NAME, "_type": NAME, "__class__": NAME},
    **{
        "auto_map": {"AutoModel": f"{MODULE}.Trap"},
        "trust_remote_code": True,
        "builder_name": NAME,
    },
    **{"tokenizer_class": NAME, "custom_pipelines": {"x": {"impl": NAME}}, "py/object": NAME},
}


class Trap:
    """Pickled, it is a call that leaves the canary's file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.file), "a")


@pytest.fixture
def sung(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that is there once the module of the canary is imported, or a pickle runs."""
    modules, file = folder / "modules", folder / "sung"
    modules.mkdir()
    code = f"open({str(file)!r}, 'a').close()\nclass Trap:\n    def __init__(self, *a, **b): pass\n"
    (modules / f"{MODULE}.py").write_text(code)
    monkeypatch.syspath_prepend(str(modules))
    yield file
    assert not file.exists(), "it ran"
    assert MODULE not in sys.modules


Plant = Callable[[Path, Path], None]


def keys_everywhere(file: Path, sung: Path) -> None:
    """Give each mapping the keys that name classes."""

    def grown(value: Any) -> Any:
        if isinstance(value, dict):
            return {**{key: grown(each) for key, each in value.items()}, **KEYS}
        return [grown(each) for each in value] if isinstance(value, list) else value

    change(file, grown)


def names_for_texts(file: Path, sung: Path) -> None:
    """Put the name of the class in the place of each text."""

    def named(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: named(each) for key, each in value.items()}
        if isinstance(value, list):
            return [named(each) for each in value]
        return NAME if isinstance(value, str) else value

    change(file, named)


def classes_for_values(file: Path, sung: Path) -> None:
    """Put a class in the place of each value below the first level."""

    def classed(value: Any, depth: int = 0) -> Any:
        if isinstance(value, dict) and depth < 2:
            return {key: classed(each, depth + 1) for key, each in value.items()}
        return CLASS

    change(file, classed)


def yaml_for_values(file: Path, sung: Path) -> None:
    """Put a text that is the YAML of a class in the place of each value."""
    text = yaml.safe_dump(CLASS)
    change(file, lambda value: dict.fromkeys(value, text) if isinstance(value, dict) else [text])


def tag(file: Path, sung: Path) -> None:
    file.write_text(TAG)


def pickled(file: Path, sung: Path) -> None:
    file.write_bytes(pickle.dumps(Trap(sung), 2))


def change(file: Path, changed: Callable[[Any], Any]) -> None:
    """Change what a file of JSON, of lines of JSON or of YAML says; append names to any other."""
    text = file.read_text("utf-8")
    match file.suffix:
        case ".json":
            file.write_text(json.dumps(changed(json.loads(text))))
        case ".jsonl":
            lines = [json.dumps(changed(json.loads(line))) for line in text.splitlines()]
            file.write_text("\n".join(lines) + "\n")
        case ".yaml":
            file.write_text(yaml.safe_dump(changed(yaml.safe_load(text)), sort_keys=False))
        case _:
            file.write_text(text + f"\n{NAME}\n{TAG}")


PLANTS = [keys_everywhere, names_for_texts, classes_for_values, yaml_for_values, tag, pickled]
each_plant = pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
STEP = ("--trainer.max_steps=1", "--trainer.val_check_interval=1", "--trainer.accelerator=cpu")


def read_by(commands: Sequence[Sequence[object]], names: tuple[str, ...] = ("",)) -> None:
    """Run each command: it takes the file as data, or refuses it in one message."""
    for command in commands:
        check_answered(run_command([str(each) for each in command]), names)


def no_server(*_: object) -> Never:
    raise CommandError("the page would be served now")


def users_of(model: Path, folder: Path) -> list[list[object]]:
    """Return the commands that read a model, whether of a run or a Hugging Face folder."""
    pairs = folder / "pairs.jsonl"
    pairs.write_text('{"good": "A word.", "bad": "Word a."}\n')
    (folder / "text").write_text("A word.\n")
    shutil.rmtree(folder / "scores", ignore_errors=True)
    shutil.rmtree(folder / "exported", ignore_errors=True)
    return [
        ["predict", "--ckpt_path", model, "--text", "A [MASK]."],
        ["demo", model],
        ["embed", "text", "out.safetensors", "--model", model, "--layers=[-1]", "--overwrite=true"],
        ["export", model, "exported"],
        [
            *("evaluate", "--ckpt_path", model, "--evaluation", "minimal_pairs"),
            *("--data", pairs, "--output", "scores"),
        ],
    ]


OF_A_RUN = (
    *("manifest.json", "results.json", "best.json", "stages.yaml"),
    *("tokenizer/tokenizer.json", "tokenizer/vocab.txt", "tokenizer/tokenizer_config.json"),
    "samples.jsonl tensorboard/version_0/hparams.yaml",
)


@pytest.mark.first_slow
@each_plant
@pytest.mark.parametrize(
    "names",
    [
        "config.yaml",
        *(pytest.param(each, marks=pytest.mark.nightly) for each in OF_A_RUN),
    ],
)
def test_a_run_directory(
    names: str,
    plant: Plant,
    sung: Path,
    folder: Path,
    tiny_run: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "new_server", no_server)
    run = folder / "run"
    shutil.copytree(tiny_run, run)
    if names == "stages.yaml":
        shutil.copy(run / "config.yaml", run / names)
    for name in names.split():
        if not (run / name).exists():
            (run / name).write_text('{"results": {"loss": 1.0}}')
        plant(run / name, sung)
    more = [["validate", "--ckpt_path", run], ["fit", "--ckpt_path", run]]
    read_by([*users_of(run, folder), *more] if names != "stages.yaml" else more[1:])


@pytest.mark.parametrize("name", ["last.ckpt", "step-3.ckpt"])
def test_a_pickle_for_a_checkpoint(
    name: str, sung: Path, folder: Path, tiny_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "new_server", no_server)
    run = folder / "run"
    shutil.copytree(tiny_run, run)
    file = run / "checkpoints" / name
    content = torch.load(file, weights_only=True)
    torch.save({**content, "callbacks": {"x": Trap(sung)}}, file)
    fits = [["fit", "--ckpt_path", file], ["validate", "--ckpt_path", file]]
    read_by([*users_of(file, folder), *fits], (name,))


@pytest.mark.first_slow
@each_plant
@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "weights"]
)
def test_a_huggingface_folder(
    name: str,
    plant: Plant,
    sung: Path,
    folder: Path,
    tiny_run: Path,
    tiny_config: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "new_server", no_server)
    model = folder / "model"
    assert run_command(["export", str(tiny_run), str(model)]).code == 0
    for each in ("modeling_trap", "tokenization_trap", MODULE):
        (model / f"{each}.py").write_text(f"open({str(sung)!r}, 'a').close()\n")
    if name == "weights":
        (model / "model.safetensors").unlink()
        torch.save({"x": Trap(sung)}, model / "pytorch_model.bin")
    else:
        plant(model / name, sung)
    warm = ("fit", "--config", tiny_config, "--model.init_from", model, "--run_dir", "warm", *STEP)
    read_by([*users_of(model, folder), warm])


@pytest.mark.first_slow
@each_plant
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "vocab.txt"])
def test_a_tokenizer(
    name: str, plant: Plant, sung: Path, folder: Path, tiny_run: Path, corpus_file: Path
) -> None:
    shutil.copytree(tiny_run / "tokenizer", folder / "tokenizer")
    plant(folder / "tokenizer" / name, sung)
    given = ("--corpus", corpus_file, "--corpus_format", "sentences", "--output", "store")
    read_by([["prepare", "--tokenizer", folder / "tokenizer", *given]])


@pytest.mark.first_slow
@each_plant
@pytest.mark.parametrize("name", ["store.json", "tokens.npy", "document_offsets.npy"])
@pytest.mark.parametrize("is_cached", [True, False])
def test_a_token_store(
    is_cached: bool,
    name: str,
    plant: Plant,
    sung: Path,
    folder: Path,
    tiny_run: Path,
    tiny_config: Path,
    corpus_file: Path,
    cache_dir: Path,
) -> None:
    if is_cached:
        shutil.copytree(cache_dir, folder / "cache")
        files = list((folder / "cache").rglob(name))
        settings = ("--data.cache_dir", folder / "cache")
    else:
        given = ("--corpus", corpus_file, "--corpus_format", "sentences", "--output", "store")
        command = ["prepare", "--tokenizer", tiny_run / "tokenizer", *given]
        assert run_command([str(each) for each in command]).code == 0
        files, settings = [folder / "store" / name], ("--data.corpus", folder / "store")
    assert files
    for file in files:
        if name.endswith(".npy"):
            np.save(file, np.array([Trap(sung)], dtype=object), allow_pickle=True)
        else:
            plant(file, sung)
    read_by([["fit", "--config", tiny_config, *settings, "--run_dir", "new", *STEP]])


@pytest.mark.first_slow
@each_plant
@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "parquet"])
def test_labelled_rows(form: str, plant: Plant, sung: Path, folder: Path, tiny_run: Path) -> None:
    rows = [{"text": f"it is {n}", "label": "ab"[n % 2]} for n in range(12)]
    file = folder / f"rows.{form}"
    if form == "parquet":
        named = {"_type": NAME, "class_path": NAME, "names": [NAME]}
        features = {"info": {"features": {"text": named, "label": named}, "builder_name": NAME}}
        metadata = {
            b"huggingface": json.dumps(features).encode(),
            b"pandas": pickle.dumps(Trap(sung)),
        }
        pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata(metadata), file)
    else:
        lines = [json.dumps(row) for row in rows]
        texts = {
            "json": json.dumps(rows),
            "jsonl": "\n".join(lines) + "\n",
            "csv": "text,label\n" + "".join(f"{r['text']},{r['label']}\n" for r in rows),
        }
        file.write_text(texts[form])
        plant(file, sung)
    data = ("--data.source", file, "--data.validation_fraction=0.3", "--data.max_seq_length=32")
    head = ("--model.head=single_sentence", "--data.batch_size=4", "--run_dir=run", *STEP)
    read_by(
        [
            ["fit", "--model.init_from", tiny_run, *head, *data],
            ["predict", "--ckpt_path", tiny_run, "--input", file],
        ]
    )


@pytest.mark.first_slow
@each_plant
@pytest.mark.parametrize("name", ["dataset_info.json", "state.json"])
def test_a_saved_data_set(
    name: str, plant: Plant, sung: Path, folder: Path, tiny_run: Path
) -> None:
    import datasets

    rows = [{"text": f"it is {n}", "label": "ab"[n % 2]} for n in range(12)]
    datasets.Dataset.from_list(rows).save_to_disk(str(folder / "saved"))
    plant(folder / "saved" / name, sung)
    data = ("--data.source", folder / "saved", "--data.validation_fraction=0.3")
    head = ("--model.head=single_sentence", "--data.max_seq_length=32", "--run_dir=run", *STEP)
    read_by([["fit", "--model.init_from", tiny_run, *head, *data]])


RUN_FILES = ("config.yaml", "manifest.json", "results.json", "best.json", "predictions.jsonl")


@pytest.mark.first_slow
@each_plant
@pytest.mark.parametrize(
    "name", ["study.yaml", "plan.json", "analysis.json", "attempts", "base.yaml", *RUN_FILES]
)
def test_the_directory_of_a_study(name: str, plant: Plant, sung: Path, folder: Path) -> None:
    study = opened(folder)
    study.claim()
    for run in study.runs:
        rows = [{"row": "1", "mlm": 1}]
        results = {"mlm/accuracy": 0.5 + 0.1 * run.seed, "loss": 1.0}
        finish(study, run, results, predictions=rows, best=results)
    study_dir = study.study_dir
    attempts = attempts_file(study.runs[0], study_dir)
    write_attempts(study.runs[0], study_dir, [Attempt(1.0, False, Outcome.DONE)])
    place = study.runs[0].directory(study_dir) if name in RUN_FILES else study_dir
    place = folder if name == "base.yaml" else place
    plant(attempts if name == "attempts" else place / name, sung)
    actions = ["status", "plan", "report", "design"]
    read_by([["study", action, study_dir] for action in actions])
    read_by([["study", "compare", study_dir, study_dir, "--output", "both"]])
