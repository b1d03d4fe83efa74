"""Checks of DataModules: what a run asks of its data is there, and its keys are arguments."""

import inspect

from lightning.pytorch import LightningDataModule
from lightning.pytorch.cli import LightningArgumentParser

from bertlab.api import TaskData
from bertlab_conformance.cases import Case
from bertlab_conformance.check import ConformanceFailure, check

_LOADERS = ("train_dataloader", "val_dataloader", "predict_dataloader")


@check("data_module")
def answers_what_a_run_asks(case: Case) -> None:
    """Every method that the contract leaves open is defined, and so are the loaders."""
    # Lightning's class is no ABC, so Python itself makes objects of an incomplete one
    asked = [name for name, each in vars(TaskData).items() if _is_open(each)]
    missing = [name for name in asked if _is_open(getattr(case.plugin, name))]
    missing += [n for n in _LOADERS if getattr(case.plugin, n) is getattr(LightningDataModule, n)]
    if missing:
        raise ConformanceFailure(
            f"{case.plugin.__name__} does not define {', '.join(missing)}",
            "define what is missing; its docstring in bertlab.TaskData says what it does",
        )


def _is_open(found: object) -> bool:
    found = found.fget if isinstance(found, property) else found
    return getattr(found, "__isabstractmethod__", False)


@check("data_module")
def takes_the_seed_of_the_order(case: Case) -> None:
    """``__init__`` takes ``seed``, which every run hands over beside the keys of ``data``."""
    found = inspect.signature(case.plugin).parameters.values()
    if not any(each.name == "seed" or each.kind is each.VAR_KEYWORD for each in found):
        raise ConformanceFailure(
            "__init__ takes no seed", "add seed: int = 0, and draw the order of rows by it"
        )


@check("data_module", after=("takes_the_seed_of_the_order",))
def keys_are_arguments(case: Case) -> None:
    """``add_arguments`` adds keys below ``data`` only, each of an argument of ``__init__``."""
    parser = LightningArgumentParser(exit_on_error=False)
    case.plugin.add_arguments(parser, ["first", "second"], ["mlm"])
    keys = [each.dest for each in parser._actions if each.dest not in ("help", "print_config")]
    known = set(inspect.signature(case.plugin).parameters)
    for key in keys:
        section, _, below = key.partition(".")
        name = below.partition(".")[0]
        if section != "data" or (name and name != "help" and name not in known):
            raise ConformanceFailure(
                f"add_arguments adds {key}, which __init__ is not given",
                "add keys below data, named as the arguments of __init__",
            )
