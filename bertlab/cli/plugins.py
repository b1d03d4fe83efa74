"""``bertlab plugins``: what is installed, what it takes, and what is broken and why."""

import contextlib
import importlib
import inspect
import json
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint
from multiprocessing.connection import Connection
from typing import Any

from bertlab.api import CONTRACT
from bertlab.cli.main import COMMANDS
from bertlab.errors import CommandError, PluginError, nearest, say, told
from bertlab.plugins import hooks
from bertlab.plugins.first_party import FIRST_PARTY
from bertlab.plugins.index import (
    GROUPS,
    KEYS,
    Kind,
    Plugin,
    brought_by,
    entry_package,
    entry_points_of,
    import_class,
    listed,
    version_mismatch,
    why_unusable,
)
from bertlab.training.results import print_table

_BASES: dict[Kind, str] = {
    "encoder": "bertlab.api.encoder:Encoder",
    "objective": "bertlab.api.task:Objective",
    "head": "bertlab.api.head:Head",
    "source": "bertlab.api.source:DataSource",
    "metric": "torchmetrics:Metric",
    "evaluation": "bertlab.api.evaluation:Evaluation",
    "optimizer": "bertlab.api.optimizer:OptimizerRecipe",
    "schedule": "bertlab.api.schedule:Schedule",
    "tokenizer": "bertlab.api.tokenizer:TokenizerKind",
    "tokenizer_model": "bertlab.api.tokenizer:Tokenizer",
    "exporter": "bertlab.api.exporter:Exporter",
    "reader": "bertlab.api.reader:CheckpointReader",
    "format": "bertlab.api.format:NamedFormat",
    "data_module": "bertlab.data.module:TaskData",
    "command": "bertlab.api.command:Command",
    "executor": "bertlab.api.executor:Executor",
    "huggingface_form": "bertlab.api.huggingface:HuggingFaceForm",
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
)

LIMIT = 30.0  # seconds for the import of a plugin of others

_USAGE = """\
usage: bertlab plugins list          encoders, objectives, heads, … and where they come from
       bertlab plugins show NAME …   arguments with their defaults and help
       bertlab plugins check         import every plugin; say what is broken and why

`list` imports no plugin. `check` imports each of others in a process of its own, for at most half
a minute, and exits with code 2 if one is broken. bertlab new-plugin writes one.
"""


@dataclass(frozen=True)
class Finding:
    """What ``check`` says of a plugin.

    Attributes:
        what: the plugin.
        reason: why it cannot be used, or what is odd; empty if all is well.
        is_broken: whether it cannot be used.
    """

    what: str
    reason: str = ""
    is_broken: bool = False


def main(command: str, argv: list[str]) -> int:
    """Run ``list``, ``show`` or ``check``; return the exit code."""
    del command
    if not argv or argv[0] in ("-h", "--help"):
        say(_USAGE)
        return 0
    action, names = argv[0], argv[1:]
    if action == "show":
        return show_plugins(names)
    actions = {"list": list_plugins, "check": check_plugins}
    if action not in actions:
        raise CommandError(
            f"plugins: there is no {action!r}{nearest(action, (*actions, 'show'))} "
            "(there are: list, show, check)"
        )
    if names:
        raise CommandError(f"plugins {action}: found {names[0]!r}, expected nothing after it")
    return actions[action]()


def list_plugins() -> int:
    """Print a row for each plugin, without importing any."""
    rows = [
        [
            *(plugin.kind, plugin.name),
            *(brought_by(plugin.package, plugin.version), _why_unusable(plugin) or ""),
        ]
        for plugin in _all()
    ]
    for entry in entry_points_of(hooks.GROUP):
        rows.append(["hooks", entry.name, brought_by(*entry_package(entry)), ""])
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
        found = [plugin for plugin in _all() if plugin.name == name]
        if not found:
            known = {plugin.name for plugin in _all()}
            raise CommandError(
                f"plugins show: no plugin is called {name!r}{nearest(name, known)} "
                f"(bertlab plugins list has all)"
            )
        usable = [plugin for plugin in found if _why_unusable(plugin) is None]
        if not usable:
            raise PluginError(f"{found[0]} cannot be used: {_why_unusable(found[0])}")
        for plugin in usable:
            _show(plugin)
    return 0


def check_plugins() -> int:
    """Import every plugin and print what is wrong with any; return 2 if one is broken."""
    everything = _all()
    # our own first: they import torch, which the processes of the others then have
    found = {each: _check(each) for each in everything if each.package in FIRST_PARTY}
    findings = [found.get(each) or _apart(str(each), partial(_check, each)) for each in everything]
    for entry in entry_points_of(hooks.GROUP):
        findings.append(_apart(hooks.name_of(entry), partial(_check_hooks, entry)))
    for finding in findings:
        state = "broken" if finding.is_broken else "note" if finding.reason else "ok"
        reason = f": {finding.reason}" if finding.reason else ""
        say(f"{state:<6} {finding.what}{reason}")
    broken = sum(finding.is_broken for finding in findings)
    say(f"{len(findings)} plugins, {broken} broken")
    return 2 if broken else 0


def arguments_of(plugin: Plugin, loaded: type) -> list[list[str]]:
    """Return name, default and help of each config key, as jsonargparse reads them."""
    if plugin.kind == "source":
        return []
    from jsonargparse import ArgumentParser  # noqa: PLC0415  slow, and not for the list

    parser: Any = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(loaded, "x", skip={"vocab_size"})
    return [
        [
            action.dest.removeprefix("x."),
            _said(action.default),
            " ".join((action.help or "").split()),
        ]
        for action in parser._actions
        if action.dest.startswith("x.")
    ]


def _all() -> list[Plugin]:
    return [plugin for kind in GROUPS for plugin in listed(kind)]


def _why_unusable(plugin: Plugin) -> str | None:
    if plugin.kind == "command" and plugin.name in COMMANDS:
        return "bertlab has a command of that name, which is used; rename the entry point"
    return why_unusable(plugin)


def _base(kind: Kind) -> type:
    # names and not classes, since `list` should not wait for torch
    module, _, name = _BASES[kind].partition(":")
    base: type = getattr(importlib.import_module(module), name)
    return base


def _check(plugin: Plugin) -> Finding:
    reason = _why_unusable(plugin)
    if reason is not None:
        return Finding(str(plugin), reason, is_broken=True)
    try:
        loaded, printed = import_class(plugin, _base(plugin.kind))
        arguments_of(plugin, loaded)
    except PluginError as error:
        # the message begins with the plugin's name, as the line that is printed does
        return Finding(str(plugin), str(error).removeprefix(f"{plugin}").lstrip(": "), True)
    except Exception as error:  # jsonargparse, on what it cannot make an argument of
        return Finding(str(plugin), f"its arguments cannot be config keys: {error}", True)
    if (asked := version_mismatch(plugin.package)) is not None:
        return Finding(str(plugin), asked, is_broken=True)
    return Finding(str(plugin), "prints when it is imported" if printed else "")


def _check_hooks(entry: EntryPoint) -> Finding:
    try:
        hooks.load_module(entry)
    except BaseException as error:  # whatever a stranger's module raises
        return Finding(hooks.name_of(entry), told(error), True)
    return Finding(hooks.name_of(entry))


def _apart(what: str, check: Callable[[], Finding]) -> Finding:
    """Return what a check finds in a process of its own, which has half a minute.

    A plugin that loops, exits or breaks what all share harms its own check only.
    """
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(check, there))
    with warnings.catch_warnings():  # Python 3.12 warns where there are threads, as torch's
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    there.close()
    try:
        if not here.poll(LIMIT):
            return Finding(what, f"its import takes more than {LIMIT:.0f} s", True)
        reason, is_broken = json.loads(here.recv_bytes())
        return Finding(what, reason, is_broken)
    except EOFError:
        process.join()
        return Finding(what, f"its import ends the process (code {process.exitcode})", True)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.kill()
        process.join()


def _send(check: Callable[[], Finding], to: Connection) -> None:
    """Send what a check finds; what is printed meanwhile goes nowhere."""
    os.setsid()  # so that what it starts ends with it
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    finding = check()
    to.send_bytes(json.dumps([finding.reason, finding.is_broken]).encode())
    os._exit(0)  # without what the plugin has asked for at the end


def _show(plugin: Plugin) -> None:
    loaded, _ = import_class(plugin, _base(plugin.kind))
    text = inspect.getdoc(loaded) or ""
    out = [f"{plugin.name}: {plugin.kind} of {brought_by(plugin.package, plugin.version)}"]
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


def _said(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(getattr(each, "name", str(each)) for each in value)  # columns by name
    return str(value)
