"""Errors that a user can cause: one clear message with a code, exit code 2, no traceback.

Each kind of mistake is a class. Its ``code`` stands in front of the message; ``bertlab explain
CODE`` prints its docstring and its ``remedy``, and docs/errors.md shows them. Packages
of bertlab add theirs as entry points of the group ``bertlab.errors``.
"""

from typing import ClassVar

DOCS = "https://github.com/bertlab/bertlab/blob/main/docs"  # a wheel has none beside it


class BertlabError(Exception):
    """Something that was given cannot be used: config, data, tokenizer, checkpoint or plugin.

    The message says which file and key, what was found, what was expected and the nearest valid
    choice. The command line prints it on its own and exits with code 2.
    """

    code: ClassVar[str] = "E100"
    remedy: ClassVar[str] = "Change what the message names, and start the same command again."


class ConfigError(BertlabError):
    """A key in a config file or on the command line is unknown, or its value is wrong.

    The message names the key as it is written on the command line, `data.batch_size` for
    example, with the file if it stands in one. Keys of a plugin exist only where the plugin is
    named: `model.objectives.mlm.rate` needs `mlm` among the objectives.
    """

    code = "E101"
    remedy = (
        "Take the key that is proposed, or the value that is expected, in the file or on the "
        "command line, which wins. `bertlab fit --help all` lists all keys with their types."
    )


class ConfigFileError(ConfigError):
    """A config file is missing, cannot be read, or is not a YAML mapping."""

    code = "E102"
    remedy = "Check the path, and the indentation and quotes at the line that the message names."


class CommandError(ConfigError):
    """A command is unknown, incomplete, or has arguments that exclude each other."""

    code = "E103"
    remedy = "`bertlab --help` lists the commands, and `bertlab COMMAND --help` what each takes."


class OutputError(ConfigError):
    """A file or directory to be written is in the way, or cannot be written.

    Nothing is overwritten without being asked. A full disk, a quota, a read-only directory and a
    vanished mount end here as well; checkpoints that were whole before still are.
    """

    code = "E104"
    remedy = (
        "Choose another place, make room or get the right to write there. A run that was stopped "
        "continues with `bertlab fit --ckpt_path RUN`."
    )


class TrainerError(ConfigError):
    """The Trainer cannot be made of its settings: devices, strategy, precision, lengths.

    Lightning's own words stand in the message where Lightning refuses.
    """

    code = "E105"
    remedy = (
        "Set `trainer.accelerator`, `trainer.devices`, `trainer.strategy` and `trainer.precision` "
        "to what this machine has; left out, they are chosen for it."
    )


class CorpusError(BertlabError):
    """A corpus is missing, empty, unreadable or unfit for pre-training."""

    code = "E301"
    remedy = (
        "`bertlab prepare --corpus …` reads a corpus and prints its report without training. What "
        f"is read: {DOCS}/data-formats.md"
    )


class DataError(BertlabError):
    """Labelled rows are missing, unreadable, or unfit for the task.

    The message names the file, the row or line, and the column.
    """

    code = "E302"
    remedy = (
        "Correct or remove the row, or name other columns (`data.columns`). The columns of each "
        f"task, and the formats: {DOCS}/finetuning.md"
    )


class EmptyTextError(DataError):
    """A row has an empty text where the task needs one."""

    code = "E303"
    remedy = (
        "Fill in the text, or remove the row; or leave such rows out of a fine-tuning or a "
        "prediction: `--data.empty skip`."
    )


class TokenizerError(BertlabError):
    """A vocabulary or tokenizer file is missing, damaged or does not fit."""

    code = "E304"
    remedy = (
        "Give a `vocab.txt`, a `tokenizer.json` of WordPiece, BPE or Unigram, or the folder that "
        "has one; `bertlab tokenizer` trains one. A pre-trained model needs the tokenizer that it "
        "came with."
    )


class TokenStoreError(BertlabError):
    """A prepared corpus (token store) is incomplete, damaged or was made by something else."""

    code = "E305"
    remedy = "Prepare the corpus again: `bertlab prepare --corpus … --output …`."


class CheckpointError(BertlabError):
    """A checkpoint or model folder is missing, hostile, or of another kind or shape.

    Checkpoints are read as data: what would run code on loading is refused.
    """

    code = "E401"
    remedy = (
        "Give a run's directory, a checkpoint of it, or a Hugging Face folder with `config.json` "
        "and `model.safetensors`."
    )


class DamagedCheckpointError(CheckpointError):
    """A checkpoint is cut short, or its content does not have its checksum."""

    code = "E402"
    remedy = (
        "Copy or download it again. In a run's directory, continue from the checkpoint before it: "
        "the message names the newest one that is whole."
    )


class DamagedRecordError(CheckpointError):
    """A record that bertlab wrote, such as results.json, is not as it was written.

    It was cut off or changed since, or comes from elsewhere.
    """

    code = "E405"
    remedy = "Restore the file from a copy, or make it again with the command that wrote it."


class ResumeError(CheckpointError):
    """A run cannot be resumed exactly, because its config, data or labels have changed since.

    What changes nothing in the result (paths, workers, logging) may be changed.
    """

    code = "E403"
    remedy = "Leave the change out, or begin a run from these weights with `--model.init_from RUN`."


class EvaluationError(CheckpointError):
    """An evaluation cannot score this model: it lacks what is scored.

    `minimal_pairs` and `held_out_loss` need a language model (`mlm` or `clm`), `probing` an encoder
    that returns its layers, and `attention` one with bertlab's attention layers; a fine-tuned model
    has its head only.
    """

    code = "E404"
    remedy = (
        "Evaluate the pre-training that the model was fine-tuned from, or choose an evaluation "
        "that reads hidden states. `bertlab plugins list` prints the installed ones."
    )


class PluginError(BertlabError):
    """A plugin is broken, or does not keep its contract."""

    code = "E501"
    remedy = (
        "`bertlab plugins check` imports all plugins and says what is wrong with each; update or "
        "uninstall the package that the message names."
    )


class UnknownPluginError(PluginError):
    """No installed package has a plugin of this name and kind."""

    code = "E502"
    remedy = (
        "`bertlab plugins list` prints the names that are installed, with their packages; install "
        "the package that has yours into this environment."
    )


class PluginCodeError(PluginError):
    """The code of a plugin, or of a callback that the config names, raised an error.

    The message names the package with its version, the file and the line. A run goes on from its
    last checkpoint with `bertlab fit --ckpt_path RUN` once that is mended.
    """

    code = "E503"
    remedy = (
        "Set `BERTLAB_DEBUG=1` for the traceback, and report it to who wrote the package that the "
        "message names. A callback may want a module of another kind: Lightning's "
        "`BackboneFinetuning` reads `pl_module.backbone`, which bertlab's has not."
    )


class NumericalError(BertlabError):
    """A loss or gradient is not finite; training on would ruin the weights.

    The step was not taken. The message names the step and the sequences or rows of the batch.
    """

    code = "E601"
    remedy = (
        "Lower `model.optimizer.learning_rate`, set `trainer.gradient_clip_val`, look at the rows, "
        "or leave such steps out with `--on_nonfinite skip`."
    )


class LostProcessError(BertlabError):
    """A process that the run needs is gone: a data worker, or another rank.

    Mostly the kernel killed it because memory ran out (`dmesg` tells), or somebody did, or its
    machine went away. No checkpoint is lost.
    """

    code = "E602"
    remedy = (
        "Go on from the last checkpoint, as the message says; if memory ran out, with fewer "
        "`data.num_workers` or a smaller `data.batch_size`."
    )


class OutOfMemoryError(BertlabError):
    """A model or a batch needs more memory than there is, or a file more than reading may take.

    Reading takes 512 MB, or 64 times the file. Checkpoints that were whole before still are.
    """

    code = "E604"
    remedy = (
        "Lower `data.batch_size` (with `trainer.accumulate_grad_batches` the batch of a step stays "
        "as it is), `data.max_seq_length`, or the sizes of `model.encoder`. `BERTLAB_READING_MB` "
        "in the environment allows reading more."
    )
