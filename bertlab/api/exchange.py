"""The contracts of models in forms of other programs: exporters write them, readers read them."""

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

if TYPE_CHECKING:
    from bertlab.checkpoints.pretrained import Pretrained


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
    """

    architecture: str
    description: str
    notes: list[str] = field(default_factory=list)
    pipeline: str | None = None
    output: Path = Path()
    form: str = ""


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
    def write(self, model: "Pretrained", folder: Path) -> ExportReport:
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


@dataclass(frozen=True)
class ForeignCheckpoint:
    """What a checkpoint of another program holds, in the words of ``transformers``.

    The core finds the encoder whose :class:`bertlab.api.huggingface.HuggingFaceForm` has the
    ``model_type``, checks every shape, and reads ``vocab.txt`` or ``tokenizer.json`` beside
    ``config_file`` if there is one.

    Attributes:
        config: content of a ``config.json``; without ``model_type`` it is a BERT's.
        tensors: by the names that ``transformers`` gives them, in the file's dtypes.
        config_file: where the config stands, for messages; its folder has the tokenizer's files.
        weights_file: where the tensors stand, for messages.
    """

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    config_file: Path
    weights_file: Path


class CheckpointReader(ABC):
    """Reads the checkpoints of another program, which may come from anywhere, as inert data.

    ``model.init_from``, ``bertlab.load``, ``bertlab export`` and all else that takes an earlier
    model ask the installed readers in the order of their names, if a path is neither a run of
    bertlab nor a folder with the weights of ``transformers``. The first that knows the path reads
    it. A reader is made without arguments.
    """

    @abstractmethod
    def find(self, path: Path) -> Path | None:
        """Return the file to read if a path names a checkpoint of this kind; None if not.

        Called for every such path, those of other programs and names of the hub too, so that it
        looks at names of files only.

        Args:
            path: a folder, a file, or what files begin with (``FOLDER/bert_model.ckpt``); there
                may be nothing.

        Raises:
            CheckpointError: there are several, and nothing says which.
        """

    @abstractmethod
    def read(self, file: Path) -> ForeignCheckpoint:
        """Read a checkpoint; nothing in it is executed.

        Args:
            file: what :meth:`find` returned.

        Raises:
            CheckpointError: a file is missing, or of a form that is not read.
            DamagedCheckpointError: it is damaged.
        """
