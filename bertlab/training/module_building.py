"""``ModuleBuilder``: the module of a command, restored from a checkpoint or made anew."""

from dataclasses import dataclass

from bertlab.api.encoder import Encoder
from bertlab.api.task import Task, TaskContext
from bertlab.api.tokenizer import Tokenizer
from bertlab.checkpoints.huggingface_task import class_labels
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.restore import restore_module
from bertlab.checkpoints.warm_start import warm_start
from bertlab.config.run_config import RunConfig
from bertlab.data.module import TaskData
from bertlab.errors import say
from bertlab.model.build import build_encoder, build_metrics, check_lengths
from bertlab.model.module import BertModule
from bertlab.model.optimizer_config import read_optimizer
from bertlab.model.task_checks import check_tasks


@dataclass(frozen=True)
class ModuleBuilder:
    """Makes the module of a command, and reads the data on the way.

    Attributes:
        config: of the command.
        data: connected; it is prepared once all else that can be wrong is checked.
        checkpoint: of ``--ckpt_path``.
        warm: of ``model.init_from``, where there is no checkpoint.
        prints: whether this process says where weights come from.
    """

    config: RunConfig
    data: TaskData
    checkpoint: Pretrained | None
    warm: Pretrained | None
    prints: bool

    def build(self, tasks: dict[str, Task], tokenizer: Tokenizer) -> BertModule:
        """Return the checkpoint's module, or one with new or taken-over weights.

        Args:
            tasks: by config name, without their layers.
            tokenizer: of the run.

        Raises:
            BertlabError: if weights, config and data do not go together.
        """
        if self.checkpoint is not None and not self._fits:
            self._prepare()
            module = restore_module(
                self.checkpoint,
                self.config.plain,
                tasks,
                self.data.evaluation_sets(),
                build_metrics(self.config.plain["model"]),
            )
            check_lengths(self.data.max_seq_length, module.encoder)
        else:
            module = self._new_module(tasks, tokenizer)
        if self.warm is not None and not self.config.plain["model"]["from_scratch"]:
            for line in warm_start(self.warm, module):
                self._note(line)
        for start in (self.checkpoint, self.warm):
            if start is not None:
                start.release_weights()
        return module

    @property
    def _fits(self) -> bool:
        return self.config.command == "fit"

    def _new_module(self, tasks: dict[str, Task], tokenizer: Tokenizer) -> BertModule:
        """Draw the weights; what can be wrong is checked before data is prepared."""
        model = self.config.plain["model"]
        encoder = build_encoder(model["encoder"], tokenizer.vocab_size)
        check_lengths(self.data.max_seq_length, encoder)
        check_tasks(tasks, encoder)
        optimizer = read_optimizer(model["optimizer"])
        self._prepare()
        return BertModule(
            encoder,
            tasks,
            self._context(encoder, tokenizer),
            optimizer,
            self.data.evaluation_sets(),
            build_metrics(model),
            self.config.seeds.dropout,
        )

    def _context(self, encoder: Encoder, tokenizer: Tokenizer) -> TaskContext:
        """Return the context of new tasks; ``fit`` learns the labels from its data."""
        if self._fits:
            return TaskContext(
                encoder,
                tokenizer,
                self.data.token_counts,
                self.data.labels,
                self.data.head_labels,
            )
        start = self.warm or self.checkpoint
        counts = None if self.config.command == "predict" else self.data.token_counts
        labels = None if start is None else class_labels(start)
        return TaskContext(encoder, tokenizer, counts, labels)

    def _prepare(self) -> None:
        """Read the data, which may take long; predictions bring their own."""
        if self.config.command != "predict":
            self.data.prepare(self.config.command)

    def _note(self, line: str) -> None:
        """Print where weights come from; ``predict`` keeps standard output for predictions."""
        if self.prints:
            say(line, to_errors=self.config.command == "predict")
