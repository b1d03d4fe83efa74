"""Pages of the reference whose content is what is installed: plugins and commands.

``conf.py`` puts the text in place of ``%GENERATED%`` when the site is built.
"""

from bertlab.cli.main import command_names
from bertlab.plugins.first_party import FIRST_PARTY
from bertlab.plugins.index import installed

KINDS = {
    "encoder": ("Encoders", "In a config: `model.encoder: NAME`."),
    "objective": ("Objectives", "In a config: `model.objectives: [NAME, …]`."),
    "head": ("Heads", "In a config: `model.head: NAME`."),
    "source": ("Sources", "In a config: `data.corpus: NAME:…` or `data.source: NAME:…`."),
    "metric": ("Metrics", "In a config: `model.metrics: [NAME]`."),
    "tokenizer": ("Kinds of tokenizer", "In a config: `data.tokenizer_kind: NAME`."),
    "evaluation": ("Evaluations", "In a config: `evaluations: {MINE: {evaluation: NAME, …}}`."),
    "optimizer": ("Optimizers", "In a config: `model.optimizer: {name: NAME, …}`."),
    "schedule": ("Schedules", "In a config: `model.optimizer.schedule: NAME`."),
    "data_module": ("DataModules", "`model.heads` takes this one."),
    "exporter": ("Exporters", "On the command line: `bertlab export RUN FOLDER --format NAME`."),
    "reader": ("Readers", "Chosen by the files: `model.init_from`, `bertlab.load`, `bertlab export`."),
    "executor": ("Executors", "On the command line: `--executor NAME` of `study run` and `prepare`."),
}  # fmt: skip
# a table of finetuning.md has the formats, a page of its own the commands; nobody types the others
ELSEWHERE = {"command", "format", "tokenizer_model", "huggingface_form"}


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


GENERATED = {"reference/built-ins": built_ins, "reference/commands": commands}
