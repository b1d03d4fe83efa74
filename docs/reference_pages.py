"""Pages of the reference that list what there is: contracts, building blocks, plugins, commands.

``conf.py`` puts the text in place of ``%GENERATED%`` when the site is built.
"""

import importlib
import inspect
from collections import defaultdict

import bertlab
import bertlab.api
from bertlab.cli.main import command_names
from bertlab.errors import BertlabError
from bertlab.plugins import hooks
from bertlab.plugins.index import FIRST_PARTY, installed

# sections of the contracts: modules of bertlab.api, and names from elsewhere
CONTRACTS = {
    "Objectives and heads": ("task",),
    "Batches": ("batch", "rng"),
    "Encoders": (
        "encoder",
        "bertlab.api.huggingface.HuggingFaceForm",
        "bertlab.api.huggingface.HeadLayout",
    ),
    "Examples and sources": ("examples",),
    "Tokenizers": (
        "tokenizer",
        "bertlab.api.tokenizer.TokenizerFiles",
        "bertlab.WordPieceTokenizer",
    ),
    "Evaluations": (
        "bertlab.Evaluation",
        "bertlab.EvaluatedModel",
        "bertlab.EvaluationResult",
        "bertlab.ScoreGrid",
        "bertlab.language_model",
        "bertlab.text_sequences",
    ),
    "Optimizers and schedules": ("optimizer",),
    "Input formats and masking units": (
        "bertlab.extend.SequenceSampler",
        "bertlab.MaskingUnit",
        "bertlab.MaskableTokens",
    ),
    "Named formats and DataModules": ("format", "bertlab.TaskData", "bertlab.RowTransform"),
    "Exporters and readers": (
        "exchange",
        "bertlab.Exporter",
        "bertlab.ExportReport",
        "bertlab.ModelAddress",
        "bertlab.Pretrained",
    ),
    "Executors": (
        "bertlab.Executor",
        "bertlab.OrderedMap",
        "bertlab_studies.execute.executor.StudyExecutor",
    ),
    "Commands": ("command",),
}
HOOK_ARGUMENTS = [
    "bertlab.FitKeys",
    "bertlab.ReportSection",
    "bertlab.StudyScores",
    "bertlab_studies.study_scores.Measure",
    "bertlab_studies.study_scores.VariantScores",
    "bertlab_studies.study_scores.Cell",
    "bertlab_studies.study_scores.GroupScores",
    "bertlab_studies.study_scores.GroupCurves",
    "bertlab_studies.study_scores.TuningScores",
    "bertlab_studies.study_scores.Trial",
    "bertlab_studies.study_scores.Curve",
]
# objects that users get and do not make: their signatures are left out
GIVEN = {
    "ExportReport",
    "ModelAddress",
    "Pretrained",
    *(n.rpartition(".")[2] for n in HOOK_ARGUMENTS),
} - {"ReportSection"}
FIELDS_ONLY = {"ExportReport", "FitKeys", "ForeignCheckpoint", "Pretrained"}
MEMBERS = {"OrderedMap": "__call__", "StudyExecutor": "execute"}  # all members, if it has no line
ON_OTHER_PAGES = {"fit", "load", "main", "Run", "PretrainedModel", "__version__", "IntArray"}
ROOMS = {
    "api": "Text and examples",
    "data": "Text and examples",
    "tokenizer": "Text and examples",
    "encoders": "Encoders",
    "errors": "Messages",
    "heads": "Objectives and heads",
    "model": "Optimizers",
    "objectives": "Objectives and heads",
}

KINDS = {
    "encoder": ("Encoders", "In a config: `model.encoder: NAME`."),
    "objective": ("Objectives", "In a config: `model.objectives: [NAME, …]`."),
    "head": ("Heads", "In a config: `model.head: NAME`."),
    "source": ("Sources", "In a config: `data.corpus: NAME:…` or `data.source: NAME:…`."),
    "adapter": ("Adapters", "In a config: `model.adapter: {name: NAME, …}`."),
    "masking_unit": ("Masking units", "In a config: `model.objectives.mlm.unit: NAME`."),
    "transform": ("Transforms of rows", "In a config: `data.transforms: [NAME, …]`."),
    "metric": ("Metrics", "In a config: `model.metrics: [NAME]`."),
    "tokenizer": ("Kinds of tokenizer", "In a config: `data.tokenizer_kind: NAME`."),
    "evaluation": ("Evaluations", "In a config: `evaluations: {MINE: {evaluation: NAME, …}}`."),
    "optimizer": ("Optimizers", "In a config: `model.optimizer: {name: NAME, …}`."),
    "schedule": ("Schedules", "In a config: `model.optimizer.schedule: NAME`."),
    "data_module": ("DataModules", "`model.heads` and `data.transforms` take these."),
    "exporter": ("Exporters", "On the command line: `bertlab export RUN FOLDER --format NAME`."),
    "reader": ("Readers", "Chosen by the files: `model.init_from`, `bertlab.load`, `bertlab export`."),
    "executor": ("Executors", "On the command line: `--executor NAME` of `study run` and `prepare`."),
}  # fmt: skip
# a table of finetuning.md has the formats, a page of its own the commands; nobody types the others
ELSEWHERE = {"command", "format", "input_format", "tokenizer_model", "huggingface_form"}


def built_ins() -> str:
    """Return a section for each first-party plugin, by kind."""
    text = []
    for kind, (title, use) in KINDS.items():
        plugins = {
            name: plugin.target.replace(":", ".")
            for name, plugin in installed(kind).items()
            if plugin.package in FIRST_PARTY
        }
        if plugins:
            text.append(f"## {title}\n\n{use}\n")
        for name, target in plugins.items():
            text.append(f"### `{name}`\n\n```{{eval-rst}}\n.. autoclass:: {target}\n```\n")
    return "\n".join(text)


def commands() -> str:
    """Return a section for each command, with a cell that prints its help."""
    cell = "```{{code-cell}} python3\n:tags: [remove-input]\n!bertlab {0} --help\n```\n"
    return "\n".join(f"## {name}\n\n{cell.format(name)}" for name in command_names())


def _documented(name: str, found: object) -> str:
    """Return the directive for a class or function."""
    if inspect.isclass(found):
        own = found.__name__
        members = f"   :members: {MEMBERS.get(own, '')}\n" if own not in FIELDS_ONLY else ""
        return f".. autoclass:: {name}{'()' * (own in GIVEN)}\n{members}"
    return f".. autofunction:: {name}\n"


def _section(title: str, names: list[str]) -> str:
    """Return a section with the docstrings of names."""
    found = [_documented(name, _object(name)) for name in names]
    return f"## {title}\n\n```{{eval-rst}}\n" + "\n".join(found) + "```\n"


def _object(name: str) -> object:
    """Return what a dotted name stands for."""
    module, _, own = name.rpartition(".")
    return getattr(importlib.import_module(module), own)


def _is_error(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, BertlabError)


def contract_names() -> dict[str, list[str]]:
    """Return the dotted names of each kind of contract, and of hooks, by title."""
    names = defaultdict(list)
    for name in bertlab.api.__all__:
        names[getattr(getattr(bertlab, name, None), "__module__", "")].append(f"bertlab.{name}")
    found = {
        title: [name for each in parts for name in names.get(f"bertlab.api.{each}", [])]
        + [each for each in parts if "." in each]
        for title, parts in CONTRACTS.items()
    }
    specifications = [
        f"{module.__name__}.{name}"
        for module in hooks.spec_modules()
        for name in vars(module)
        if name.startswith("bertlab_")
    ]
    return {**found, "Hooks": [*specifications, *HOOK_ARGUMENTS]}


def contracts() -> str:
    """Return a section for each kind of contract, and one for hooks."""
    return "\n".join(_section(title, names) for title, names in contract_names().items())


def building_block_names() -> dict[str, list[str]]:
    """Return the dotted public names that are neither contracts nor plugins, by title."""
    plugins = {
        plugin.target.partition(":")[2] for kind in KINDS for plugin in installed(kind).values()
    }
    of_contracts = {
        each.rpartition(".")[2] for found in contract_names().values() for each in found
    }
    other = {
        *of_contracts,
        *bertlab.api.__all__,
        *plugins,
        *ON_OTHER_PAGES,
        "Pretrained",
        "FitKeys",
    }
    names = defaultdict(list)
    for name in sorted(set(bertlab.__all__) - other):
        found = getattr(bertlab, name)
        if not _is_error(found):
            names[ROOMS[found.__module__.split(".")[1]]].append(f"bertlab.{name}")
    return {title: names[title] for title in sorted(names)}


def building_blocks() -> str:
    """Return a section for each room with such names."""
    return "\n".join(_section(title, names) for title, names in building_block_names().items())


GENERATED = {
    "reference/contracts": contracts,
    "reference/building-blocks": building_blocks,
    "reference/built-ins": built_ins,
    "reference/commands": commands,
}
