"""Exporter, reader, executor and format as they should be."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import save_file

from bertlab import Executor, OrderedMap
from bertlab.api import Exporter, ExportReport, ModelAddress
from bertlab.api.examples import Example
from bertlab.api.exchange import CheckpointReader, ForeignCheckpoint
from bertlab.api.format import NamedFormat, Submission
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.errors import CheckpointError
from bertlab.extend import HeadLayout
from bertlab_modern.roberta_form import RobertaForm

source_arguments = {"table": "This"}
huggingface_form_arguments = {"type_vocab_size": 1}
reader_arguments = {"path": Path(__file__).parent / "foreign" / "model.weights"}
tokenizer_model_arguments = {"path": Path(__file__).parent / "foreign" / "tokenizer.json"}


class GoodExporter(Exporter):
    """Tensors and settings.

    Args:
        indent: of the settings.
    """

    def __init__(self, indent: int = 2) -> None:
        self.indent = indent

    def write(self, model: Pretrained, folder: Path) -> ExportReport:
        (folder / "config.json").write_text(json.dumps(model.encoder_config, indent=self.indent))
        save_file({k: v.clone() for k, v in model.state.items()}, folder / "all.safetensors")
        return ExportReport("load_file", "All tensors")

    def loading_code(self, report: ExportReport, address: ModelAddress) -> list[tuple[str, str]]:
        return [("safetensors", f"load_file({address.arguments})")]


class GoodForm(RobertaForm):
    """CamemBERT: the layers of RoBERTa, under other names of classes."""

    model_type = "camembert"
    architectures: ClassVar[Mapping[frozenset[str], str]] = {
        tasks: name.replace("Roberta", "Camembert")
        for tasks, name in RobertaForm.architectures.items()
    }
    heads: ClassVar[Mapping[str, HeadLayout]] = {
        name.replace("Roberta", "Camembert"): layout for name, layout in RobertaForm.heads.items()
    }


class GoodReader(CheckpointReader):
    """JSON with lists of numbers."""

    def find(self, path: Path) -> Path | None:
        return path if path.suffix == ".weights" and path.is_file() else None

    def read(self, file: Path) -> ForeignCheckpoint:
        try:
            content = json.loads(file.read_text())
        except ValueError as error:
            raise CheckpointError(f"{file}: {error}") from error
        tensors = {name: torch.tensor(values) for name, values in content["tensors"].items()}
        return ForeignCheckpoint(content["config"], tensors, file, file)


class LabelLines(Submission):
    """A label a line."""

    def write(self, row: Example, prediction: Mapping[str, Any]) -> None:
        self.file.write(f"{self.get(prediction, 'label', row)}\n")


class GoodFormat(NamedFormat):
    """Sentences and their moods."""

    columns: ClassVar = {"text": ("sentence", "text"), "label": ("mood",)}
    label_names = ("bad", "good")
    submission = LabelLines


class GoodExecutor(Executor):
    """Threads.

    Args:
        threads: where no number of workers is given.
    """

    def __init__(self, threads: int = 2) -> None:
        self.threads = threads

    @contextmanager
    def mapping(self, workers: int | None) -> Iterator[OrderedMap]:
        with ThreadPoolExecutor(workers or self.threads) as pool:

            def mapped(read, function):
                for waiting in [pool.submit(function, batch) for batch in read()]:
                    yield waiting.result()

            yield mapped
