"""The keys of ``data``: which DataModule a request has, and the arguments of its parts.

A single head's rows, those of several heads, which a package brings, or text alone, with the kind
of tokenizer that may be trained on it.
"""

from lightning.pytorch.cli import LightningArgumentParser

from bertlab.api.tokenizer import TokenizerKind
from bertlab.config.request import Request
from bertlab.data.fine_tuning import LabelledData
from bertlab.data.module import TaskData
from bertlab.data.pretraining import PretrainingData
from bertlab.plugins.index import installed, load_class


def data_class(request: Request) -> type[TaskData]:
    """Return the DataModule of a request.

    That is labelled rows for a head, those of each of several heads, or unlabelled text.

    Raises:
        PluginError: nothing is installed for several heads.
    """
    if request.heads:
        return load_class("data_module", "several_heads", TaskData)
    return PretrainingData if request.head is None else LabelledData


def add_data(parser: LightningArgumentParser, request: Request) -> None:
    """Add the data and, for text, the kind of tokenizer that is trained on it."""
    data = data_class(request)
    data.add_arguments(parser, list(request.heads), request.objectives)
    if data is not PretrainingData:
        return
    parser.add_argument(
        "--data.tokenizer_kind.name",
        type=str | None,
        default=request.tokenizer,
        help=f"tokenizer to train, wordpiece by default: {', '.join(installed('tokenizer'))}",
    )
    if request.tokenizer is not None:
        chosen = load_class("tokenizer", request.tokenizer, TokenizerKind)
        parser.add_class_arguments(chosen, "data.tokenizer_kind", instantiate=False)
