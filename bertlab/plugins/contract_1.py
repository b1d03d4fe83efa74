"""Old names for packages that were written for version 1 of the plugin contract.

They import bertlab's modules where these stood in version 1. Such a module is made when it is
imported, and gives what is asked of it from where that is now. bertlab itself imports none of them.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

from bertlab.errors import check_share, warn

KEPT_UNTIL = "2027-06-01"
# a module of version 1: where its names are now
MOVED = {
    "bertlab.data.counter_rng": "bertlab.api.rng",
    "bertlab.data.documents": "bertlab.api.source",
    "bertlab.data.source": "bertlab.api.source",
    "bertlab.data.tokenizer": "bertlab.tokenizer.wordpiece",
    "bertlab.encoders.base": "bertlab.api.encoder",
    "bertlab.encoders.initialization": "bertlab.encoders.layers",
    "bertlab.encoders.packed_lstm": "bertlab.encoders.layers",
    "bertlab.heads.base": "bertlab.api.head",
    "bertlab.heads.classifier_head": "bertlab.heads.classification",
    "bertlab.hooks": "bertlab.plugins.hooks",
    "bertlab.labelled_rows": "bertlab.api.examples",
    "bertlab.objectives.token_prediction": "bertlab.objectives.language_model",
    "bertlab.packed_batch": "bertlab.api.batch",
    "bertlab.tasks": "bertlab.api.task",
}
# a name that is no longer in a module that there still is
MOVED_NAMES = {("bertlab.heads.classification", "text_ids"): "bertlab.api.examples"}
RENAMED_METHODS = {"rows": "examples", "raw_rows": "raw_examples", "complaint": "warning"}
RENAMED = {"Row": "Example", "LabelledRows": "LabelledExamples"}


class _OldModules(MetaPathFinder, Loader):
    """Finds the modules of version 1, and makes them."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return how to make an old module; None of any other."""
        del path, target
        return spec_from_loader(fullname, self) if fullname in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        """Let the module give the names of its place today."""
        now = importlib.import_module(MOVED[module.__name__])

        def give(name: str) -> object:
            return getattr(now, RENAMED.get(name, name))

        module.__dict__["__getattr__"] = give
        if module.__name__ == "bertlab.heads.classifier_head":
            module.__dict__["check_dropout"] = _check_dropout


def _check_dropout(dropout: float | None, name: str = "dropout") -> None:
    check_share(f"model.head.{name}", dropout)


_told: set[str] = set()
_finder = _OldModules()


def offer_old_names(package: str) -> None:
    """Make the modules of version 1 importable, for a package that says it needs them."""
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)  # the last: what exists is found before
        for (before, name), now in MOVED_NAMES.items():
            found = getattr(importlib.import_module(now), name)
            setattr(importlib.import_module(before), name, found)
    if package not in _told:
        _told.add(package)
        warn(f"{package} {until()}")


def rename_methods(plugin: type) -> None:
    """Let a class answer to the names that its methods have today."""
    for before, now in RENAMED_METHODS.items():
        if (method := getattr(plugin, before, None)) is not None:
            setattr(plugin, now, method)


def until() -> str:
    """Return how long a package of version 1 goes on working, and what ends that."""
    return (
        "was written for version 1 of the plugin contract, which works until "
        f"{KEPT_UNTIL}; docs/plugins.md, 'Versions of the contract', says what to change"
    )
