"""The keys of ``data``: which DataModule a request has, and the arguments of its parts.

A single head's rows, the rows of each of several heads (``data.heads.NAME``) with the text of
objectives beside them (``data.objectives``), or text alone, with the kind of tokenizer that may be
trained on it.
"""

from inspect import signature

from lightning.pytorch.cli import LightningArgumentParser

from bertlab.api.tokenizer import TokenizerKind
from bertlab.config.request import Request
from bertlab.data.fine_tuning import LabelledData
from bertlab.data.module import TaskData
from bertlab.data.own_keys import OWN_DATA, OWN_TEXT
from bertlab.data.pretraining import PretrainingData
from bertlab.plugins.index import installed, load_class
from bertlab_tasks.mixing import Mixing
from bertlab_tasks.several_heads import SeveralHeadsData


def data_class(request: Request) -> type[TaskData]:
    """Return the DataModule of a request.

    That is labelled rows for a head, those of each of several heads, or unlabelled text.
    """
    if request.heads:
        return SeveralHeadsData
    return PretrainingData if request.head is None else LabelledData


def add_data(parser: LightningArgumentParser, request: Request) -> None:
    """Add the data and, for text, the kind of tokenizer that is trained on it."""
    data = data_class(request)
    kind = set() if data is not PretrainingData else {"tokenizer_kind"}
    own = {"seed", "mask_seed", "heads", "objectives", "mixing", *kind}
    parser.add_class_arguments(data, "data", instantiate=False, skip=own)
    if data is SeveralHeadsData:
        _add_heads_data(parser, request)
    if not kind:
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


def _add_heads_data(parser: LightningArgumentParser, request: Request) -> None:
    """Add how steps are dealt out among heads, where the rows of each are, and objectives' text.

    What all share, such as the batch size, is no key of one of them.
    """
    parser.add_class_arguments(Mixing, "data.mixing", instantiate=False)
    shared = set(signature(LabelledData).parameters) - set(OWN_DATA)
    for name in request.heads:
        parser.add_class_arguments(
            LabelledData, f"data.heads.{name}", instantiate=False, skip=shared
        )
    if request.objectives:
        shared = set(signature(PretrainingData).parameters) - set(OWN_TEXT)
        parser.add_class_arguments(
            PretrainingData, "data.objectives", instantiate=False, skip=shared
        )
