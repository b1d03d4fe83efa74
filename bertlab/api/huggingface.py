"""The contract of an encoder that ``transformers`` can hold: its form in a Hugging Face folder.

bertlab reads and writes the files, checks shapes and lays tensors out. A form says how one
``model_type`` is described in ``config.json``, and what its tensors are called. All that a form is
given of a checkpoint is data: JSON and tensors.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from bertlab.errors import CheckpointError

if TYPE_CHECKING:
    from bertlab.api.encoder import Encoder
    from bertlab.api.tokenizer import Tokenizer


@dataclass(frozen=True)
class HeadLayout:
    """What a class of ``transformers`` with a fine-tuned head has beside the encoder.

    Attributes:
        kind: the head that bertlab's heads name as ``huggingface``: BERT's class of that task.
        layer: name of its one linear layer.
        has_pooler: the layer reads the pooled output.
        rows: rows of the layer's weight; None: one for each class, or one for regression.
        written_as: the layer's name in ``transformers``, where that is another.
    """

    kind: str
    layer: str
    has_pooler: bool
    rows: int | None = None
    written_as: str | None = None

    @property
    def names(self) -> tuple[str, str]:
        """Names of the layer's tensors in bertlab's heads."""
        return f"{self.layer}.weight", f"{self.layer}.bias"

    @property
    def written_names(self) -> tuple[str, str]:
        """Names of the layer's tensors in ``transformers``."""
        layer = self.written_as or self.layer
        return f"{layer}.weight", f"{layer}.bias"


class HuggingFaceForm(ABC):
    """How ``transformers`` keeps an encoder. Names of its tensors have no prefix here.

    An encoder names its own forms as ``huggingface``. A package adds a form to an encoder of
    another one by an entry point of the group ``bertlab.huggingface_forms``, which is called as its
    ``model_type``: RoBERTa's is such a form of BERT's encoder.

    Attributes:
        model_type: of ``config.json``.
        extends: of a form that is added: the ``model_type`` of the encoder's own form.
        prefix: before the encoder's tensors in a class that has a head, for example ``bert.``.
        word_embedding: the token embedding's name.
        layers: what stands before the number of a layer.
        parts: what the names of the encoder's tensors begin with.
        head_parts: what those of pre-training's heads begin with.
        decoder: name of the layer that is tied to the token embedding.
        decoder_bias: the tensor that ``decoder``'s bias is tied to.
        architectures: class of ``transformers`` by the objectives whose heads it has.
        heads: fine-tuned classes that bertlab reads and writes.
    """

    model_type: ClassVar[str]
    extends: ClassVar[str | None] = None
    prefix: ClassVar[str]
    word_embedding: ClassVar[str]
    layers: ClassVar[str]
    parts: ClassVar[tuple[str, ...]]
    head_parts: ClassVar[tuple[str, ...]]
    decoder: ClassVar[str]
    decoder_bias: ClassVar[str]
    architectures: ClassVar[Mapping[frozenset[str], str]]
    heads: ClassVar[Mapping[str, HeadLayout]] = {}

    def __str__(self) -> str:
        return self.model_type

    @abstractmethod
    def arguments(self, content: Mapping[str, Any], path: Path) -> dict[str, Any]:
        """Return the encoder's arguments, ``vocab_size`` too, that a ``config.json`` describes.

        Args:
            content: of the file.
            path: the file, for messages.

        Raises:
            CheckpointError: naming file and key, if the encoder would compute something else.
        """

    @abstractmethod
    def config(self, encoder: Any, architecture: str) -> dict[str, Any]:  # noqa: ANN401
        """Return the content of ``config.json`` for an encoder and a class of ``transformers``."""

    @abstractmethod
    def encoder_names(self, num_hidden_layers: int) -> dict[str, tuple[str, ...]]:
        """Return bertlab's names of the encoder's tensors with those of Hugging Face.

        Several stand for one that bertlab keeps stacked along the first dimension, in this order.
        Names that an encoder of these arguments does not have are left out.
        """

    @abstractmethod
    def head_names(self, causal: bool) -> dict[str, dict[str, str]]:
        """Return the tensors of pre-training's heads by objective: bertlab's names to theirs."""

    def pooler_names(self) -> dict[str, str]:
        """Return the pooler's tensors that belong to a head in ``transformers``, as such names."""
        return {}

    def suits(self, encoder: Any, tokenizer: "Tokenizer") -> bool:  # noqa: ANN401
        """Return whether this form is written, where it is not the first of the encoder's."""
        del encoder, tokenizer
        return False

    def refusal(self, encoder: Any) -> str | None:  # noqa: ANN401
        """Say what of an encoder ``transformers`` has no place for; None if there is nothing."""
        del encoder
        return None

    def drops_segments(self, encoder: Any) -> bool:  # noqa: ANN401
        """Return whether text B of a pair is read as text A, though the encoder reads it apart.

        A model whose head reads pairs is then not written; others are, as of one text alone all is
        the same.
        """
        del encoder
        return False

    def notes(self, encoder: Any) -> list[str]:  # noqa: ANN401
        """Return sentences for the user on what is written in another way than it was."""
        del encoder
        return []

    def state(self, encoder: "Encoder") -> dict[str, Tensor]:
        """Return the tensors to write by bertlab's names."""
        return dict(encoder.state_dict())

    def after_reading(
        self, content: Mapping[str, Any], encoder: dict[str, Tensor], heads: dict[str, Tensor]
    ) -> None:
        """Bring what was read, by Hugging Face's names, into the shapes that bertlab keeps."""
        del content, encoder, heads

    def before_writing(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Bring config and tensors, with the prefix of their class, into those of its class."""
        del config, tensors

    def head_layout(self, content: Mapping[str, Any]) -> tuple[str, HeadLayout] | None:
        """Return the fine-tuned class of a ``config.json``; None if bertlab does not know it."""
        architectures = content.get("architectures")
        named = architectures[0] if isinstance(architectures, list) and architectures else None
        layout = self.heads.get(named) if isinstance(named, str) else None
        return None if layout is None else (str(named), layout)


def whole_number(path: Path, key: str, found: object, minimum: int) -> int:
    """Return a whole number of a ``config.json``; raise CheckpointError if it is none."""
    # isinstance would take JSON's true for 1
    if type(found) is not int or not minimum <= found < 2**63:
        expected = f"a whole number of at least {minimum}, and below 2**63"
        raise CheckpointError(f"{path}: found {key} {found!r}, expected {expected}")
    return found


def real_number(path: Path, key: str, found: object) -> float:
    """Return a number from 0 of a ``config.json``; raise CheckpointError if it is none."""
    # the comparison refuses NaN and Infinity, which Python's json reads
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= 1e9:
        raise CheckpointError(f"{path}: found {key} {found!r}, expected a number from 0")
    return float(found)


def check_only(
    path: Path, content: Mapping[str, Any], only: Mapping[str, tuple[object, ...]], why: str
) -> None:
    """Raise CheckpointError unless some keys of a ``config.json`` have values that are known.

    Args:
        path: the file, for messages.
        content: of the file.
        only: the values by key; a missing key means the first.
        why: others are refused, for the message.
    """
    for key, allowed in only.items():
        found = content.get(key, allowed[0])
        # 1 == True in Python, but not here
        if not any(found == each and type(found) is type(each) for each in allowed):
            choices = " or ".join(repr(each) for each in allowed if each is not None)
            raise CheckpointError(f"{path}: found {key} {found!r}, expected {choices}; {why}")
