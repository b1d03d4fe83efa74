"""Checks of commands: help, refusals, and that nothing heavy is imported for a line of help."""

import contextlib
import io
import os
import subprocess
import sys

from bertlab.api import BertlabError
from bertlab_conformance.cases import Case
from bertlab_conformance.check import BARE_KINDS, ConformanceFailure, check

_HEAVY = ("torch", "numpy", "lightning", "jsonargparse")


@check(*BARE_KINDS, after=("is_complete",))
def is_made_without_arguments(case: Case) -> None:
    """An object is made without arguments, as the core makes it."""
    try:
        case.plugin()
    except TypeError as error:
        raise ConformanceFailure(
            f"{case.plugin.__name__}() raises {error}", "give every argument of __init__ a default"
        ) from None


@check("command", after=("is_made_without_arguments",))
def answers_help(case: Case) -> None:
    """``--help`` prints to standard output, and the exit code is 0."""
    code, printed = _run(case, "--help")
    if code != 0 or not printed.strip():
        raise ConformanceFailure(
            f"main(['--help']) returns {code!r} and prints {printed[:60]!r}",
            "print how the command is used, and return 0",
        )


@check("command", after=("is_made_without_arguments",))
def unknown_options_are_refused(case: Case) -> None:
    """An option that there is not is a ``BertlabError``: one line for the user, exit code 2."""
    try:
        code, _ = _run(case, "--no-such-option")
    except BertlabError:
        return
    raise ConformanceFailure(
        f"main(['--no-such-option']) returns {code!r}",
        "raise bertlab.ConfigError, which names what was found and what was expected",
    )


@check("command")
def is_imported_lightly(case: Case) -> None:
    """Its module imports nothing heavy: ``bertlab --help`` imports it for one line."""
    module = case.plugin.__module__
    code = f"import sys, {module}; print(*(name for name in {_HEAVY} if name in sys.modules))"
    done = subprocess.run(  # noqa: S603  the author's own module
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ConformanceFailure(
            f"importing {module} alone fails: {done.stderr.strip().splitlines()[-1]}",
            "import in the module all that it needs",
        )
    if found := done.stdout.split():
        raise ConformanceFailure(
            f"importing {module} imports {', '.join(sorted(found))}",
            "import it inside the methods that need it",
        )


@check("command", after=("is_made_without_arguments",))
def parsers_are_by_action(case: Case) -> None:
    """``parsers`` gives jsonargparse's parsers by the word between command and arguments."""
    from jsonargparse import ArgumentParser  # noqa: PLC0415  heavy, and of this check alone

    for action, parser in case.plugin().parsers().items():
        if not isinstance(action, str) or not isinstance(parser, ArgumentParser):
            raise ConformanceFailure(
                f"parsers() has {action!r}: {type(parser).__name__}",
                "return {'run': ArgumentParser(…)}, or {'': …} where no word is in between",
            )


def _run(case: Case, *arguments: str) -> tuple[object, str]:
    """Return the exit code and what is printed; argparse leaves the process, which is as good."""
    printed, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
            code: object = case.plugin().main(list(arguments))
    except SystemExit as leaving:
        code = leaving.code or 0
    return code, printed.getvalue()
