"""Errors that a user can cause: one clear message with a code, exit code 2, no traceback.

Each kind of mistake is a class. Its ``code`` stands in front of the message; ``bertlab explain
CODE`` prints its docstring and what to do (:func:`remedy_of`), and docs/errors.md shows them.
Packages of bertlab add theirs as entry points of the group ``bertlab.errors``.
"""

import json
from pathlib import Path
from typing import ClassVar


class BertlabError(Exception):
    """Something that was given cannot be used: config, data, tokenizer, checkpoint or plugin.

    The message says which file and key, what was found, what was expected and the nearest valid
    choice. The command line prints it on its own and exits with code 2.
    """

    code: ClassVar[str] = "E100"
    remedy: ClassVar[str] = ""  # of a package's own; those of the core: see remedy_of


class ConfigError(BertlabError):
    """A key in a config file or on the command line is unknown, or its value is wrong.

    The message names the key as it is written on the command line, `data.batch_size` for
    example, with the file if it stands in one. Keys of a plugin exist only where the plugin is
    named: `model.objectives.mlm.rate` needs `mlm` among the objectives.
    """

    code = "E101"


class ConfigFileError(ConfigError):
    """A config file is missing, cannot be read, or is not a YAML mapping."""

    code = "E102"


class CommandError(ConfigError):
    """A command is unknown, incomplete, or has arguments that exclude each other."""

    code = "E103"


class OutputError(ConfigError):
    """A file or directory to be written is in the way, or cannot be written.

    Nothing is overwritten without being asked. A full disk, a quota, a read-only directory and a
    vanished mount end here as well; checkpoints that were whole before still are.
    """

    code = "E104"


class TrainerError(ConfigError):
    """The Trainer cannot be made of its settings: devices, strategy, precision, lengths.

    Lightning's own words stand in the message where Lightning refuses.
    """

    code = "E105"


class CorpusError(BertlabError):
    """A corpus is missing, empty, unreadable or unfit for pre-training."""

    code = "E301"


class DataError(BertlabError):
    """Labelled rows are missing, unreadable, or unfit for the task.

    The message names the file, the row or line, and the column.
    """

    code = "E302"


class EmptyTextError(DataError):
    """A row has an empty text where the task needs one."""

    code = "E303"


class TokenizerError(BertlabError):
    """A vocabulary or tokenizer file is missing, damaged or does not fit."""

    code = "E304"


class TokenStoreError(BertlabError):
    """A prepared corpus (token store) is incomplete, damaged or was made by something else."""

    code = "E305"


class CheckpointError(BertlabError):
    """A checkpoint or model folder is missing, hostile, or of another kind or shape.

    Checkpoints are read as data: what would run code on loading is refused.
    """

    code = "E401"


class DamagedCheckpointError(CheckpointError):
    """A checkpoint is cut short, or its content does not have its checksum."""

    code = "E402"


class DamagedRecordError(CheckpointError):
    """A record that bertlab wrote, such as results.json, is not as it was written.

    It was cut off or changed since, or comes from elsewhere.
    """

    code = "E405"


class ResumeError(CheckpointError):
    """A run cannot be resumed exactly, because its config, data or labels have changed since.

    What changes nothing in the result (paths, workers, logging) may be changed.
    """

    code = "E403"


class EvaluationError(CheckpointError):
    """An evaluation cannot score this model: it lacks what is scored.

    `minimal_pairs` and `held_out_loss` need a language model (`mlm` or `clm`), `probing` an encoder
    that returns its layers, and `attention` one with bertlab's attention layers; a fine-tuned model
    has its head only.
    """

    code = "E404"


class PluginError(BertlabError):
    """A plugin is broken, or does not keep its contract."""

    code = "E501"


class UnknownPluginError(PluginError):
    """No installed package has a plugin of this name and kind."""

    code = "E502"


class PluginCodeError(PluginError):
    """The code of a plugin, or of a callback that the config names, raised an error.

    The message names the package with its version, the file and the line. A run goes on from its
    last checkpoint with `bertlab fit --ckpt_path RUN` once that is mended.
    """

    code = "E503"


class NumericalError(BertlabError):
    """A loss or gradient is not finite; training on would ruin the weights.

    The step was not taken. The message names the step and the sequences or rows of the batch.
    """

    code = "E601"


class LostProcessError(BertlabError):
    """A process that the run needs is gone: a data worker, or another rank.

    Mostly the kernel killed it because memory ran out (`dmesg` tells), or somebody did, or its
    machine went away. No checkpoint is lost.
    """

    code = "E602"


class OutOfMemoryError(BertlabError):
    """A model or a batch needs more memory than there is, or a file more than reading may take.

    Reading takes 512 MB, or 64 times the file. Checkpoints that were whole before still are.
    """

    code = "E604"


def remedy_of(kind: type[BertlabError]) -> str:
    """Return what to do about a mistake: its class says so, or ``remedies.json`` of its code."""
    known = json.loads(Path(__file__).with_name("remedies.json").read_text("utf-8"))
    codes = (getattr(each, "code", None) for each in kind.__mro__)
    return str(kind.remedy or next(known[code] for code in codes if code in known))
