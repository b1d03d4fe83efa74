"""Errors that a user can cause: one clear message, exit code 2, no traceback."""

import difflib
import sys
from collections.abc import Iterable


class BertlabError(Exception):
    """A mistake in what the user gave: config, data, tokenizer, checkpoint or plugin.

    The message says which file and key, what was found, what was expected and the nearest valid
    choice. The command line prints it on its own and exits with code 2.
    """


class ConfigError(BertlabError):
    """A config file, a key of it, or a command-line argument is wrong."""


class CorpusError(BertlabError):
    """A corpus is missing, empty, unreadable or unfit for pre-training."""


class DataError(BertlabError):
    """Labelled rows are missing, unreadable, or unfit for the task."""


class TokenizerError(BertlabError):
    """A vocabulary or tokenizer file is missing, damaged or does not fit."""


class TokenStoreError(BertlabError):
    """A token store is incomplete, damaged or was made by something else."""


class CheckpointError(BertlabError):
    """A checkpoint is missing, damaged, hostile or of another shape."""


class PluginError(BertlabError):
    """A plugin is unknown, broken or does not keep its contract."""


class NumericalError(BertlabError):
    """A loss or gradient is not finite; training on would ruin the weights."""


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest of ``choices``, or an empty string."""
    matches = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def warn(words: str) -> None:
    """Tell the user, on standard error, of something that does not end the command."""
    sys.stderr.write(f"bertlab: warning: {words}\n")
