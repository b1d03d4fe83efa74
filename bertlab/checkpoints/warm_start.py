"""``model.init_from``: weights, sizes and tokenizer of a run or of a Hugging Face model."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from bertlab.checkpoints.huggingface import read_huggingface
from bertlab.checkpoints.loading import LoadReport, load_matching
from bertlab.checkpoints.run_checkpoint import find_checkpoint, read_run_checkpoint
from bertlab.data.tokenizer import WordPieceTokenizer


@dataclass
class WarmStart:
    """What a new run takes over from an earlier model.

    Attributes:
        source: where it comes from, for messages.
        encoder_name: entry-point name of the encoder.
        encoder_config: its arguments, without ``vocab_size``.
        encoder_state: its tensors.
        task_states: tensors of each task by name.
        tokenizer: the one it was trained with, if the source has it.
        vocab_size: rows of its token embedding.
    """

    source: str
    encoder_name: str
    encoder_config: dict[str, Any]
    encoder_state: dict[str, Tensor]
    task_states: dict[str, dict[str, Tensor]]
    tokenizer: WordPieceTokenizer | None
    vocab_size: int


def read_warm_start(source: str) -> WarmStart:
    """Read a run directory, a bertlab checkpoint, a Hugging Face folder or a hub name.

    Raises:
        CheckpointError: if it is none of them, damaged or hostile.
    """
    file = find_checkpoint(source)
    if file is not None:
        run = read_run_checkpoint(file)
        encoder = dict(run.config["model"]["encoder"])
        return WarmStart(
            source=str(file),
            encoder_name=encoder.pop("name"),
            encoder_config=encoder,
            encoder_state=run.encoder_state,
            task_states=run.task_states,
            tokenizer=run.tokenizer,
            vocab_size=run.tokenizer.vocab_size,
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
    )


def apply_warm_start(start: WarmStart, module: nn.Module) -> LoadReport:
    """Copy the weights into a BertModule; tasks and pooler that the source lacks stay new.

    Returns:
        Which tensors were loaded, newly initialised and unused.

    Raises:
        CheckpointError: if a tensor's shape differs; each is listed.
    """
    state = {f"encoder.{name}": tensor for name, tensor in start.encoder_state.items()}
    for task, tensors in start.task_states.items():
        state |= {f"tasks.{task}.{name}": tensor for name, tensor in tensors.items()}
    return load_matching(module, state, start.source, ("tasks.", "encoder.pooler."))
