"""``bertlab check-plugins``: import every plugin, and say what is broken and why."""

import contextlib
import json
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError
from multiprocessing.connection import Connection

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bertlab import CommandError, PluginError
from bertlab.extend import (
    FIRST_PARTY,
    HOOKS,
    METAPACKAGE,
    OWN_PACKAGE,
    Plugin,
    add_to_json,
    entry_package,
    entry_points_of,
    import_class,
    load_module,
    name_of_hooks,
    say,
    told,
)
from bertlab_conformance.plugin_list import all_plugins, arguments_of, base_of, why_not_used

LIMIT = 30.0  # seconds for the import of a plugin of others
_USAGE = """\
usage: bertlab check-plugins

Import every plugin; say what is broken and why. Each of others is imported in a process of its own,
for at most half a minute. The exit code is 2 if one is broken.
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


def main(arguments: list[str]) -> int:
    """Run ``check-plugins``; return the exit code."""
    if arguments and arguments[0] not in ("-h", "--help"):
        raise CommandError(f"check-plugins: found {arguments[0]!r}, expected nothing after it")
    if arguments:
        say(_USAGE)
        return 0
    return check_plugins()


def check_plugins() -> int:
    """Import every plugin and print what is wrong with any; return 2 if one is broken."""
    everything = all_plugins()
    # our own first: they import torch, which the processes of the others then have
    found = {each: _check(each) for each in everything if each.package in FIRST_PARTY}
    findings = [found.get(each) or _apart(str(each), partial(_check, each)) for each in everything]
    for entry in entry_points_of(HOOKS):
        findings.append(_apart(name_of_hooks(entry), partial(_check_hooks, entry)))
    add_to_json(plugins=findings)
    for finding in findings:
        state = "broken" if finding.is_broken else "note" if finding.reason else "ok"
        reason = f": {finding.reason}" if finding.reason else ""
        say(f"{state:<6} {finding.what}{reason}")
    broken = sum(finding.is_broken for finding in findings)
    say(f"{len(findings)} plugins, {broken} broken")
    return 2 if broken else 0


def _check(plugin: Plugin) -> Finding:
    reason = why_not_used(plugin)
    if reason is not None:
        return Finding(str(plugin), reason, is_broken=True)
    try:
        loaded, printed = import_class(plugin, base_of(plugin.kind))
        arguments_of(plugin, loaded)
    except PluginError as error:
        # the message begins with the plugin's name, as the line that is printed does
        return Finding(str(plugin), str(error).removeprefix(f"{plugin}").lstrip(": "), True)
    except Exception as error:  # jsonargparse, on what it cannot make an argument of
        return Finding(str(plugin), f"its arguments cannot be config keys: {error}", True)
    odd = _version_mismatch(plugin.package)  # a run would use it: no more than a note
    return Finding(str(plugin), odd or ("prints when it is imported" if printed else ""))


def _check_hooks(entry: EntryPoint) -> Finding:
    try:
        load_module(entry)
    except BaseException as error:  # whatever a stranger's module raises
        return Finding(name_of_hooks(entry), told(error), True)
    return Finding(name_of_hooks(entry), _version_mismatch(entry_package(entry)[0]) or "")


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


def _version_mismatch(package: str) -> str | None:
    """Return which bertlab an installed package asks for, if it is not this one."""
    try:
        distribution = Distribution.from_name(package)
        own = Distribution.from_name(OWN_PACKAGE).version
    except PackageNotFoundError:
        return None
    for line in distribution.requires or ():
        wanted = Requirement(line)
        name = canonicalize_name(wanted.name)
        if name in (OWN_PACKAGE, METAPACKAGE) and own not in wanted.specifier:
            return f"its package asks for {name} {wanted.specifier}, found {own}"
    return None
