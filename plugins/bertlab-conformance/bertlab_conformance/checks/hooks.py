"""Checks of a module of hooks: names, arguments, and the keys that it adds to ``fit``."""

import inspect
from types import FunctionType

from lightning.pytorch.cli import LightningArgumentParser

from bertlab import FitKeys, nearest
from bertlab.extend import HOOKS, entry_points_of, hook_modules
from bertlab_conformance.cases import Case
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check

_PREFIX, _MARK = "bertlab_", "bertlab_impl"  # pluggy's, of a function that hookimpl has marked


@check("hooks")
def hooks_are_marked(case: Case) -> None:
    """Each function that is named as a hook is marked with ``hookimpl``; there is one."""
    named = _named(case)
    if not named:
        raise ConformanceFailure(
            f"{case.plugin.__name__} has no function called {_PREFIX}…",
            "define one of the hooks of docs/plugins.md",
        )
    bare = [name for name, hook in named.items() if not hasattr(hook, _MARK)]
    if bare:
        raise ConformanceFailure(
            f"{', '.join(bare)} is not marked, and never called", "write @hookimpl above it"
        )


@check("hooks", after=("hooks_are_marked",))
def hooks_are_known(case: Case) -> None:
    """There are hooks of these names, and each takes some of the arguments that it is given."""
    declared = hook_modules().manager.hook
    for name, hook in _named(case).items():
        spec = getattr(getattr(declared, name, None), "spec", None)
        if spec is None:
            known = [each for each in vars(declared) if each.startswith(_PREFIX)]
            raise ConformanceFailure(
                f"there is no hook {name}{nearest(name, known)}", "rename the function"
            )
        unknown = [each for each in inspect.signature(hook).parameters if each not in spec.argnames]
        if unknown:
            raise ConformanceFailure(
                f"{name} takes {', '.join(unknown)}, and is given {', '.join(spec.argnames)}",
                "take arguments of these names, or fewer",
            )


@check("hooks", after=("hooks_are_known",))
def entry_point_names_it(case: Case) -> None:
    """If its package is installed, one of the package's entry points names the module."""
    package = case.plugin.__name__.partition(".")[0]
    beside = [each for each in entry_points_of(HOOKS) if each.value.partition(".")[0] == package]
    if not beside:
        raise NotApplicable(f"no installed package has hooks in {package}")
    if all(each.value != case.plugin.__name__ for each in beside):
        raise ConformanceFailure(
            f"no entry point names {case.plugin.__name__} (there is "
            f"{', '.join(f'{each.name} = {each.value}' for each in beside)})",
            f'write NAME = "{case.plugin.__name__}" into pyproject.toml, under '
            f'[project.entry-points."{HOOKS}"], and install the package again',
        )


@check("hooks", after=("hooks_are_known",))
def keys_are_described(case: Case) -> None:
    """Each key of ``bertlab_fit_arguments`` has a help; ``FitKeys`` names no others."""
    hook = _named(case).get("bertlab_fit_arguments")
    if hook is None:
        raise NotApplicable("it adds no keys to fit")
    parser = LightningArgumentParser(exit_on_error=False)
    said = hook(parser)
    keys = {each.dest: each.help for each in parser._actions if each.dest != "help"}
    silent = [key for key, text in keys.items() if not text]
    if silent:
        raise ConformanceFailure(
            f"{', '.join(silent)} has no help", "say in help= what it is, its unit, and what is off"
        )
    if said is None:
        return
    if not isinstance(said, FitKeys):
        raise ConformanceFailure(f"it returns {said!r:.80}", "return FitKeys(…), or nothing")
    named = {*said.not_recorded, *said.stored, *said.not_in_stages}
    # --words.rate is the key words in FitKeys too
    if unknown := named - keys.keys() - {key.partition(".")[0] for key in keys}:
        raise ConformanceFailure(
            f"FitKeys names {', '.join(sorted(unknown))}, which it does not add",
            f"name its own keys: {', '.join(keys)}",
        )


def _named(case: Case) -> dict[str, FunctionType]:
    found = vars(case.plugin).items()
    return {k: v for k, v in found if k.startswith(_PREFIX) and isinstance(v, FunctionType)}
