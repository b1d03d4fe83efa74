"""The stable contract of plugins, and its version; every name is in :mod:`bertlab` as well.

What is listed here changes only together with :data:`CONTRACT`. The other public names of bertlab,
its building blocks, may change in any minor version.
"""

from typing import TYPE_CHECKING

CONTRACT = 3
"""Version of what plugins can rely on; raised when what keeps it could break (docs/plugins.md)."""
OLDEST_CONTRACT = 2
"""Oldest version that plugins may be written for."""

__all__ = [
    "CONTRACT",
    "BertlabError",
    "CheckpointReader",
    "Column",
    "Command",
    "ConfigError",
    "CorpusError",
    "CounterRNG",
    "DataError",
    "DataSource",
    "Encoder",
    "EncoderOutput",
    "EvaluatedModel",
    "Evaluation",
    "EvaluationError",
    "EvaluationResult",
    "Example",
    "Executor",
    "ExportReport",
    "Exporter",
    "Features",
    "ForeignCheckpoint",
    "Head",
    "Labels",
    "Metric",
    "ModelAddress",
    "NamedFormat",
    "Objective",
    "OptimizerRecipe",
    "OrderedMap",
    "PackedBatch",
    "PackedSequences",
    "ParameterGroup",
    "PluginError",
    "Progress",
    "RawDocument",
    "RawExamples",
    "ReportSection",
    "Schedule",
    "ScoreGrid",
    "SpecialTokens",
    "Submission",
    "Task",
    "TaskContext",
    "TaskData",
    "TaskLoss",
    "TokenLabels",
    "Tokenizer",
    "TokenizerError",
    "TokenizerKind",
    "WordPieceTokenizer",
    "first_token",
    "hookimpl",
    "last_token",
    "pack",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'bertlab.api' has no attribute {name!r}")
    import bertlab  # noqa: PLC0415  only when a name is asked for, which imports torch

    found = globals()[name] = getattr(bertlab, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if TYPE_CHECKING:
    from bertlab import (
        BertlabError,
        CheckpointReader,
        Column,
        Command,
        ConfigError,
        CorpusError,
        CounterRNG,
        DataError,
        DataSource,
        Encoder,
        EncoderOutput,
        EvaluatedModel,
        Evaluation,
        EvaluationError,
        EvaluationResult,
        Example,
        Executor,
        Exporter,
        ExportReport,
        Features,
        ForeignCheckpoint,
        Head,
        Labels,
        Metric,
        ModelAddress,
        NamedFormat,
        Objective,
        OptimizerRecipe,
        OrderedMap,
        PackedBatch,
        PackedSequences,
        ParameterGroup,
        PluginError,
        Progress,
        RawDocument,
        RawExamples,
        ReportSection,
        Schedule,
        ScoreGrid,
        SpecialTokens,
        Submission,
        Task,
        TaskContext,
        TaskData,
        TaskLoss,
        Tokenizer,
        TokenizerError,
        TokenizerKind,
        TokenLabels,
        WordPieceTokenizer,
        first_token,
        hookimpl,
        last_token,
        pack,
    )
