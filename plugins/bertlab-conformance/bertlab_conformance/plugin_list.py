"""``bertlab plugins``: what is installed, and what it takes."""

import importlib
import inspect
from importlib.metadata import EntryPoint
from typing import Any

from bertlab import BertlabError, CommandError, nearest
from bertlab.api import CONTRACT, PluginError
from bertlab.extend import (
    COMMANDS,
    GROUPS,
    HOOKS,
    KEYS,
    Kind,
    Plugin,
    entry_package,
    entry_points_of,
    import_class,
    installed,
    listed,
    load_module,
    print_table,
    say,
    why_unusable,
)

_BASES: dict[Kind, str] = {
    "encoder": "bertlab.api:Encoder",
    "objective": "bertlab.api:Objective",
    "head": "bertlab.api:Head",
    "adapter": "bertlab.api:Adapter",
    "source": "bertlab.api:DataSource",
    "input_format": "bertlab.extend:SequenceSampler",
    "masking_unit": "bertlab:MaskingUnit",
    "transform": "bertlab:RowTransform",
    "metric": "torchmetrics:Metric",
    "evaluation": "bertlab.api:Evaluation",
    "optimizer": "bertlab.api:OptimizerRecipe",
    "schedule": "bertlab.api:Schedule",
    "tokenizer": "bertlab.api:TokenizerKind",
    "tokenizer_model": "bertlab.api:Tokenizer",
    "exporter": "bertlab.api:Exporter",
    "reader": "bertlab.api:CheckpointReader",
    "format": "bertlab.api:NamedFormat",
    "data_module": "bertlab.api:TaskData",
    "command": "bertlab.api:Command",
    "executor": "bertlab.api:Executor",
    "huggingface_form": "bertlab.extend:HuggingFaceForm",
}
# what a class says of itself, beside its arguments
_DECLARED = (
    "requires_pairs",
    "requires_mask",
    "corrupts_input",
    "rearranges_input",
    "requires_causal",
    "requires",
    "compares_sequences",
    "columns",
    "label_names",
    "files",
    "monitor",
    "keeps_examples_together",
    "trains_encoder",
    "reads_all_layers",
    "splits_by",
    "huggingface",
    "has_weight_decay",
    "needs_end",
    "has_heads",
    "has_pairs",
    "has_parts",
)

ACTIONS = ("list", "show", "check")
_USAGE = """\
usage: bertlab plugins list          encoders, objectives, heads, … and where they come from
       bertlab plugins show NAME …   arguments with their defaults and help
       bertlab plugins check         import every plugin; say what is broken and why

`list` imports no plugin. `check` imports each of others in a process of its own, for at most half
a minute, and exits with code 2 if one is broken. bertlab new-plugin writes one.
"""


def main(argv: list[str]) -> int:
    """Run ``list``, ``show`` or ``check``; return the exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        say(_USAGE)
        return 0
    action, names = argv[0], argv[1:]
    if action == "show":
        return show_plugins(names)
    if action not in ACTIONS:
        raise CommandError(
            f"plugins: there is no {action!r}{nearest(action, ACTIONS)} "
            "(there are: list, show, check)"
        )
    if names:
        raise CommandError(f"plugins {action}: found {names[0]!r}, expected nothing after it")
    if action == "list":
        return list_plugins()
    from bertlab_conformance.plugin_check import check_plugins  # noqa: PLC0415  this module's user

    return check_plugins()


def list_plugins() -> int:
    """Print a row for each plugin, without importing any."""
    rows = [
        [
            *(plugin.kind, name_in_configs(plugin)),
            *(f"{plugin.package} {plugin.version}", why_not_used(plugin) or ""),
        ]
        for plugin in all_plugins()
    ]
    for entry in entry_points_of(HOOKS):
        rows.append(["hooks", entry.name, " ".join(entry_package(entry)), ""])
    headings = ["kind", "name", "package", "cannot be used"]
    if not any(row[-1] for row in rows):
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    print_table(f"plugins (version {CONTRACT} of the contract)", rows, headings)
    return 0


def show_plugins(names: list[str]) -> int:
    """Print what each named plugin is and takes."""
    if not names:
        raise CommandError("plugins show: found no name, expected one, for example: mlm")
    for name in names:
        found = [each for each in all_plugins() if name in (each.name, each.full_name)]
        hooks = [each for each in entry_points_of(HOOKS) if name in (each.name, package_name(each))]
        if not found and not hooks:
            known = {plugin.name for plugin in all_plugins()}
            raise CommandError(
                f"plugins show: no plugin is called {name!r}{nearest(name, known)} "
                f"(bertlab plugins list has all)"
            )
        usable = [plugin for plugin in found if why_not_used(plugin) is None]
        if not usable and not hooks:
            raise PluginError(f"{found[0]} cannot be used: {why_not_used(found[0])}")
        for plugin in usable:
            _show(plugin)
        for entry in hooks:
            _show_hooks(entry)
    return 0


def arguments_of(plugin: Plugin, loaded: type) -> list[list[str]]:
    """Return name, default and help of each config key, as jsonargparse reads them."""
    from jsonargparse import ArgumentParser  # noqa: PLC0415  slow, and not for the list

    parser: Any = ArgumentParser(exit_on_error=False)
    skip = {"name", "argument"} if plugin.kind == "source" else {"vocab_size"}
    parser.add_class_arguments(loaded, "x", skip=skip)
    return _rows_of(parser, "x.")


def _rows_of(parser: Any, section: str) -> list[list[str]]:  # noqa: ANN401  of jsonargparse
    """Return name, default and help of each key of a parser's section."""
    return [
        [
            action.dest.removeprefix(section),
            _said(action.default),
            " ".join((action.help or "").split()),
        ]
        for action in parser._actions
        if action.dest.startswith(section)
        # --x.rate.help of a class, which jsonargparse adds
        and action.dest.rpartition(".")[2] not in ("help", "print_shtab")
    ]


def all_plugins() -> list[Plugin]:
    """Return all classes that are installed, by kind and name."""
    return [plugin for kind in GROUPS for plugin in listed(kind)]


def name_in_configs(plugin: Plugin) -> str:
    """Return the name that a config gives to a plugin: ``package:name`` where it is not alone."""
    return plugin.full_name if installed(plugin.kind).get(plugin.name) != plugin else plugin.name


def package_name(entry: EntryPoint) -> str:
    """Return the package that an entry point is of."""
    return entry_package(entry)[0]


def why_not_used(plugin: Plugin) -> str | None:
    """Return why a plugin cannot be used, as far as that is known without importing it."""
    if plugin.kind == "command" and plugin.name in COMMANDS:
        return "bertlab has a command of that name, which is used; rename the entry point"
    return why_unusable(plugin)


def base_of(kind: Kind) -> type[Any]:
    """Return the class that a plugin of a kind is a subclass of."""
    # names and not classes, since `list` should not wait for torch
    module, _, name = _BASES[kind].partition(":")
    base: type[Any] = getattr(importlib.import_module(module), name)
    return base


def _show(plugin: Plugin) -> None:
    loaded, _ = import_class(plugin, base_of(plugin.kind))
    text = inspect.getdoc(loaded) or ""
    out = [f"{name_in_configs(plugin)}: {plugin.kind} of {plugin.package} {plugin.version}"]
    out += [f"  {plugin.target}, {KEYS[plugin.kind]}, contract version {plugin.contract}", ""]
    # the sections of the docstring come as tables below
    out += [f"  {line}" for line in text.split("\nArgs:")[0].split("\nAttributes:")[0].splitlines()]
    say("\n".join(out))
    say("")
    for name in _DECLARED:
        if hasattr(loaded, name):
            say(f"  {name}: {_said(getattr(loaded, name))}")
    rows = arguments_of(plugin, loaded)
    if rows:
        print_table("\narguments", rows, ["argument", "default", "help"])


def _show_hooks(entry: EntryPoint) -> None:
    """Print which hooks a module has, what each does, and the keys that it adds to ``fit``."""
    from lightning.pytorch.cli import LightningArgumentParser  # noqa: PLC0415  torch

    try:
        module: Any = load_module(entry)
    except BertlabError:
        raise
    except Exception as error:
        of = " ".join(entry_package(entry))
        told = f"{type(error).__name__}: {error}"
        raise PluginError(f"{entry.value} (hooks of {of}) cannot be imported: {told}") from error
    say(f"{entry.name}: hooks of {' '.join(entry_package(entry))}")
    say(f"  {entry.value}; not called with --without_hooks {package_name(entry)}\n")
    say("".join(f"  {line}\n" for line in (inspect.getdoc(module) or "").splitlines()))
    found = [getattr(module, name) for name in dir(module) if name.startswith("bertlab_")]
    known = [(each, inspect.getdoc(each) or "") for each in found if callable(each)]
    rows = [[each.__name__, text.partition("\n")[0]] for each, text in known]
    print_table("hooks", rows, ["hook", "what it does here"])
    add = getattr(module, "bertlab_fit_arguments", None)
    if add is None:
        return
    parser = LightningArgumentParser(exit_on_error=False)
    add(parser)
    if keys := _rows_of(parser, ""):
        print_table("\nkeys of fit", keys, ["key", "default", "help"])


def _said(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(getattr(each, "name", str(each)) for each in value)  # columns by name
    return str(value)
