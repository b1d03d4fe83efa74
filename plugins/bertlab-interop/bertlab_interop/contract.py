"""The contract of an exporter: it writes a model in a form that other programs load."""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from bertlab import Pretrained


@dataclass(frozen=True)
class ModelAddress:
    """By what an exported model is loaded.

    Attributes:
        name: of a folder, or of a repository of the Hugging Face hub.
        revision: branch of the repository; None for its main one.
        on_hub: it is a repository.
    """

    name: str
    revision: str | None = None
    on_hub: bool = False

    @property
    def arguments(self) -> str:
        """Arguments of ``from_pretrained``: on one line and in ASCII, whatever the names are."""
        arguments = json.dumps(self.name)
        if self.revision is not None:
            arguments += f", revision={json.dumps(self.revision)}"
        return arguments


@dataclass
class ExportReport:
    """What was written.

    Attributes:
        architecture: what loads it, as the command prints it: a class of ``transformers``, or the
            names of an ONNX file's outputs.
        description: what was written, for people: ``A BertModel of transformers``.
        notes: sentences for the user about what changed or stayed behind.
        pipeline: the hub's name of the task; None if ``architecture`` says it, or nothing does.
        output: the folder; ``bertlab export`` fills it in, as it does ``form``.
        form: the exporter's name.
        comparison: size, speed and scores of the forms of the model, where they were measured.
    """

    architecture: str
    description: str
    notes: list[str] = field(default_factory=list)
    pipeline: str | None = None
    output: Path = Path()
    form: str = ""
    comparison: dict[str, Any] = field(default_factory=dict)


class Exporter(ABC):
    """Writes a model in a form that other programs load: ``bertlab export --format NAME``.

    The arguments of ``__init__`` are the user's settings, ``--settings.KEY`` on the command line. A
    package that the exporter needs and that is not installed is told there, by a ``CommandError``
    that says what to install: nothing has been read yet.

    Attributes:
        has_heads: the form has the heads beside the encoder, so that of a run with several heads
            one has to be named.
    """

    has_heads: ClassVar[bool] = True

    @abstractmethod
    def write(self, model: Pretrained, folder: Path) -> ExportReport:
        """Write a model's files.

        Called once, in the main process. The core makes the folder, moves it to the place that the
        user named once it is whole, and removes it if anything raises.

        Args:
            model: config and tensors on the CPU, its tokenizer and labels; they are left as they
                are. Of a run with several heads it has the chosen one alone.
            folder: new and empty. One file has to be ``config.json``: by this a later export knows
                that the folder is one, and may be replaced.

        Raises:
            CheckpointError: the model cannot be written in this form; the message names its
                ``source`` and says why.
        """

    def loading_code(self, report: ExportReport, address: ModelAddress) -> list[tuple[str, str]]:
        """Return libraries that load the export, each with lines of Python that do it.

        The model card shows them. Names of others get into the code by ``address.arguments`` only.

        Args:
            report: of the export.
            address: by which it is loaded.
        """
        del report, address
        return []
