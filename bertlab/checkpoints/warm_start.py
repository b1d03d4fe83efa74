"""``model.init_from``: weights, sizes and tokenizer of a run or of a Hugging Face model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from bertlab.api.examples import Labels
from bertlab.api.head import Head
from bertlab.checkpoints.huggingface import read_huggingface
from bertlab.checkpoints.huggingface_layers import HuggingFaceHead
from bertlab.checkpoints.loading import LoadReport, load_matching
from bertlab.checkpoints.run_checkpoint import find_checkpoint, read_run_checkpoint
from bertlab.errors import CheckpointError
from bertlab.model.optimizer import OptimizerState
from bertlab.tokenizer.wordpiece import WordPieceTokenizer

if TYPE_CHECKING:
    from bertlab.model.module import BertModule

_MAX_NAMED = 8


@dataclass
class WarmStart:
    """What a new run takes over from an earlier model.

    Attributes:
        source: where it comes from, for messages.
        encoder_name: entry-point name of the encoder.
        encoder_config: its arguments, without ``vocab_size``.
        encoder_state: its tensors.
        task_states: tensors of each task by name; a run's head is one of them.
        tokenizer: the one it was trained with, if the source has it.
        vocab_size: rows of its token embedding.
        labels: classes of the fine-tuned model; None if it has none, or they have no names.
        head: of a fine-tuned Hugging Face model.
        head_config: ``name`` and arguments of the head of a fine-tuned run.
        optimizer: state of AdamW and its schedule, if it was asked for.
    """

    source: str
    encoder_name: str
    encoder_config: dict[str, Any]
    encoder_state: dict[str, Tensor]
    task_states: dict[str, dict[str, Tensor]]
    tokenizer: WordPieceTokenizer | None
    vocab_size: int
    labels: Labels | None = None
    head: HuggingFaceHead | None = None
    head_config: dict[str, Any] | None = None
    optimizer: OptimizerState | None = None

    def release_weights(self) -> None:
        """Let go of the tensors, once a module has them; names, sizes and tokenizer stay."""
        self.encoder_state = {}
        self.task_states = {}
        self.head = None


def read_warm_start(source: str, with_optimizer: bool = False) -> WarmStart:
    """Read a run directory, a bertlab checkpoint, a Hugging Face folder or a hub name.

    Args:
        source: any of these. Of a run directory it is the best checkpoint.
        with_optimizer: read the optimiser's state as well, and of a run the last checkpoint.

    Raises:
        CheckpointError: if it is none of them, damaged or hostile, or has no optimiser's state
            where that is asked for.
    """
    file = find_checkpoint(source, best=not with_optimizer)
    if file is not None:
        run = read_run_checkpoint(file, with_optimizer)
        encoder = dict(run.config["model"]["encoder"])
        return WarmStart(
            source=str(file),
            encoder_name=encoder.pop("name"),
            encoder_config=encoder,
            encoder_state=run.encoder_state,
            task_states=run.task_states,
            tokenizer=run.tokenizer,
            vocab_size=run.tokenizer.vocab_size,
            labels=run.labels,
            head_config=run.config["model"].get("head"),
            optimizer=run.optimizer,
        )
    if with_optimizer:
        raise CheckpointError(
            f"model.init_optimizer: model.init_from, {source}, is not a run of bertlab, so it has "
            "no optimiser's state; take the key out"
        )
    peer = read_huggingface(source)
    config = dict(peer.encoder_config)
    vocab_size = config.pop("vocab_size")
    path = peer.tokenizer_path
    return WarmStart(
        source=peer.source,
        encoder_name="bert",
        encoder_config=config,
        encoder_state=peer.encoder_state,
        task_states=peer.task_states,
        # by its folder, whose tokenizer_config.json says whether it is cased
        tokenizer=None if path is None else WordPieceTokenizer.load(path.parent),
        vocab_size=vocab_size,
        labels=None if peer.head is None else peer.head.labels,
        head=peer.head,
    )


def apply_warm_start(start: WarmStart, module: "BertModule") -> LoadReport:
    """Copy the weights into a BertModule; tasks, pooler and BiLSTM that the source lacks stay new.

    A head takes the layers of the source's head if that is of the same kind (the same name in a
    run's config, the same class of ``transformers``) and has the same labels in the same order;
    else it stays new and a note says why. Its buffers, which its own data decides, stay as well.

    Returns:
        Which tensors were loaded, newly initialised and unused, and notes on the heads.

    Raises:
        CheckpointError: if the shape of a tensor of encoder or objectives differs; each is listed.
    """
    state = {f"encoder.{name}": tensor for name, tensor in start.encoder_state.items()}
    heads = {name: task for name, task in module.named_tasks().items() if isinstance(task, Head)}
    for task, tensors in start.task_states.items():
        if task not in heads:
            state |= _below(task, tensors)
    notes: list[str] = []
    left: list[str] = []
    for name, head in heads.items():
        source = start.task_states.get(name, {}) if start.head is None else start.head.state
        reason = _mismatch(start, source, head) if source else None
        if reason is not None:
            notes.append(f"the head {name} starts anew: {reason}")
        wanted = () if reason is not None else tuple(each for each, _ in head.named_parameters())
        state |= _below(name, {each: source[each] for each in wanted if each in source})
        left += [f"tasks.{name}.{each}" for each in source if each not in wanted]
    may_lack = ("tasks.", "encoder.pooler.", "encoder.bilstm.")
    report = load_matching(module, state, start.source, may_lack)
    report.unused += left
    report.notes += notes
    return report


def _below(task: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"tasks.{task}.{name}": tensor for name, tensor in tensors.items()}


def _mismatch(start: WarmStart, source: Mapping[str, Tensor], head: Head) -> str | None:
    """Say why a head cannot take over the tensors of the source's head; None if it can."""
    if start.head is not None and start.head.architecture != head.huggingface:
        return f"the source has that of a {start.head.architecture}"
    if start.head is not None and start.head.layout.has_pooler and start.encoder_config["causal"]:
        return "the source's reads the first token of a left-to-right encoder, bertlab's the last"
    theirs, ours = start.labels, head.labels or None
    if not _same_classes(start, ours):
        unnamed = "unnamed" if start.head is not None and start.head.has_classes else "none"
        there = unnamed if theirs is None else _list_names(theirs)
        here = "none" if ours is None else _list_names(ours)
        return f"labels differ: {there} in the source, {here} here"
    differing = [
        name
        for name, tensor in head.named_parameters()
        if name not in source or source[name].shape != tensor.shape
    ]
    return f"the source's has other layers ({', '.join(differing)})" if differing else None


def _same_classes(start: WarmStart, ours: Labels | None) -> bool:
    if start.labels is not None:
        return ours is not None and ours.names == start.labels.names
    if start.head is not None and start.head.has_classes:  # unnamed: data may number them as well
        numbers = tuple(str(number) for number in range(start.head.num_rows))
        return ours is not None and ours.names == numbers
    return ours is None


def _list_names(labels: Labels) -> str:
    shown = ", ".join(labels.names[:_MAX_NAMED])
    return shown if len(labels) <= _MAX_NAMED else f"{shown}, … ({len(labels)})"
