"""The module of a command, restored from a checkpoint or made anew."""

from bertlab.api.task import Task, TaskContext
from bertlab.api.tokenizer import Tokenizer
from bertlab.checkpoints.huggingface_task import class_labels
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.restore import restore_module
from bertlab.config.run_config import RunConfig
from bertlab.data.module import TaskData
from bertlab.model.build import build_encoder, build_metrics, check_lengths
from bertlab.model.module import BertModule
from bertlab.model.optimizer_config import read_optimizer
from bertlab.model.task_checks import check_tasks


def build_module(
    config: RunConfig,
    data: TaskData,
    tasks: dict[str, Task],
    tokenizer: Tokenizer,
    checkpoint: Pretrained | None,
    warm: Pretrained | None,
) -> BertModule:
    """Return the checkpoint's module, or one with new weights, for tasks that have no layers yet.

    The data is prepared once all else that can be wrong is checked.
    """
    model = config.plain["model"]
    if checkpoint is not None and config.command != "fit":
        _prepare(config, data)
        sets, metrics = data.evaluation_sets(), build_metrics(model)
        module = restore_module(checkpoint, config.plain, tasks, sets, metrics)
        check_lengths(data.max_seq_length, module.encoder)
        return module
    encoder = build_encoder(model["encoder"], tokenizer.vocab_size)
    check_lengths(data.max_seq_length, encoder)
    check_tasks(tasks, encoder)
    optimizer = read_optimizer(model["optimizer"])
    _prepare(config, data)
    if config.command == "fit":  # which learns the labels from its data
        labels = (data.token_counts, data.labels, data.head_labels)
        context = TaskContext(encoder, tokenizer, *labels)
    else:
        start = warm or checkpoint
        counts = None if config.command == "predict" else data.token_counts
        known = None if start is None else class_labels(start)
        context = TaskContext(encoder, tokenizer, counts, known)
    sets, metrics = data.evaluation_sets(), build_metrics(model)
    dropout = config.seeds.dropout
    return BertModule(encoder, tasks, context, optimizer, sets, metrics, dropout)


def _prepare(config: RunConfig, data: TaskData) -> None:
    """Read the data, which may take long; predictions bring their own."""
    if config.command != "predict":
        data.prepare(config.command)
