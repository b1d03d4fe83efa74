"""Modules of hooks with one bug each, and a good one; ``expects`` as of the broken classes."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab.plugins.hooks import FitKeys, hookimpl


class Shrink(Callback):
    """Makes weights smaller after a step.

    Args:
        rate: what is taken of them.
        spared: steps before the first that does; the callback forgets them.
    """

    def __init__(self, rate: float, spared: int = 0) -> None:
        self.rate = rate
        self.spared = spared

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self.spared -= 1
        if self.spared < 0:
            for parameter in pl_module.parameters():
                parameter.data.mul_(1 - self.rate)


def module(name: str, expects: tuple[str, str] | None, *hooks: Callable[..., Any]) -> ModuleType:
    made = ModuleType(name, f"Hooks of {name}.")
    vars(made).update({hook.__name__: hook for hook in hooks}, expects=expects)
    sys.modules[name] = made  # where its entry point finds it
    return made


def keys(default: float, said: FitKeys | None = None, text: str | None = "what is taken") -> Any:
    def bertlab_fit_arguments(parser: Any) -> FitKeys | None:
        parser.add_argument("--shrink", type=float, default=default, help=text)
        return said

    return hookimpl(bertlab_fit_arguments)


def shrinks(spared: int = 0) -> Any:
    def bertlab_callbacks(config: Any) -> list[Callback]:
        return [Shrink(config.get("shrink", 0.01), spared)]

    return hookimpl(bertlab_callbacks)


def bertlab_callbacks(run_dir: Any) -> list[Callback]:
    raise RuntimeError("no such service")


def bertlab_callback() -> None: ...


def asking() -> Any:
    def bertlab_callbacks(folder: Any) -> list[Callback]:
        return []

    return hookimpl(bertlab_callbacks)


def misspelt() -> Any:
    def bertlab_callback() -> list[Callback]:
        return []

    return hookimpl(bertlab_callback)


def bertlab_run_ended(tables: list[Any]) -> None:
    while tables:
        print(tables.pop())


def bertlab_study_ended(done: Any, files: Any) -> None:
    print(f"{done[0]} and {done[1]}: {files[0]}")


Good = module("good_hooks", None, keys(0.0, FitKeys(stored=("shrink",))), shrinks())
Bare = module("bare_hooks", ("hooks_are_marked", "has no function called bertlab_…"))
Unmarked = module("unmarked", ("hooks_are_marked", "bertlab_callback is not"), bertlab_callback)
Misspelt = module(
    "misspelt_hooks",
    ("hooks_are_known", "no hook bertlab_callback; did you mean 'bertlab_callbacks'?"),
    misspelt(),
)
Asking = module(
    "asking_hooks",
    ("hooks_are_known", "takes folder, and is given run_dir, config"),
    asking(),
)
Silent = module("silent_hooks", ("keys_are_described", "shrink has no help"), keys(0.0, text=None))
OfOthers = module(
    "hooks_of_others",
    ("keys_are_described", "FitKeys names check_every, which it does not add"),
    keys(0.0, FitKeys(not_recorded=("check_every",))),
)
Raising = module(
    "raising_hooks", ("works_in_a_run", "is left out: RuntimeError"), hookimpl(bertlab_callbacks)
)
Forgetful = module(
    "forgetful_hooks",
    ("run_goes_on_without_its_config", "after steps 7 to 12 from a checkpoint"),
    shrinks(spared=4),
)
ByDefault = module(
    "hooks_by_default",
    ("defaults_change_nothing", "differs between a run without the package"),
    keys(0.01),
    shrinks(),
)
Emptying = module(
    "emptying_hooks",
    ("events_are_taken_note_of", "bertlab_run_ended changes tables"),
    hookimpl(bertlab_run_ended),
)
ForTwoRuns = module(
    "hooks_for_two_runs",
    ("events_are_taken_note_of", "IndexError: list index out of range"),
    hookimpl(bertlab_study_ended),
)
BUGS = [
    *(Bare, Unmarked, Misspelt, Asking, Silent, OfOthers),
    *(Raising, Forgetful, ByDefault, Emptying, ForTwoRuns),
]
