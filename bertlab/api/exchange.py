"""The contract of a reader: it reads the checkpoints of another program."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor


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
            path: a folder, a file, what files begin with (``FOLDER/bert_model.ckpt``), or nothing.

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
