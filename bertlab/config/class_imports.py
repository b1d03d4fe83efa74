"""Why a class that a config names by its path cannot be had: the error behind jsonargparse's.

jsonargparse imports what ``class_path`` names, and says only that the value does not fit when that
fails. Here the import is done once more, and what it raises is told.
"""

import importlib
import inspect
import re
import traceback
from pathlib import Path
from types import ModuleType

import jsonargparse

from bertlab.errors import causes, nearest, told_with_place

_JSONARGPARSE = Path(jsonargparse.__file__).parent
_LONGEST = 500
# of the values that jsonargparse shows: {'class_path': 'a.b.Class'}, and a path as it is
_PATH = re.compile(r"class_path'?: '?((?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*)")


def why_no_class(details: str) -> str:
    """Return why the first class that cannot be had is not there; empty if all can be."""
    for path in dict.fromkeys(_PATH.findall(details)):
        if reason := _why_not(path):
            return reason
    return ""


def _why_not(path: str) -> str:
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a stranger's module raises
        return f"{path} cannot be imported: {told_with_place(error)}"
    if not hasattr(module, name):
        return f"{module_name} has no class {name!r}{nearest(name, _classes(module))}"
    return ""


def _classes(module: ModuleType) -> list[str]:
    return [name for name, each in vars(module).items() if inspect.isclass(each)]


def why_not_made(error: BaseException) -> str:
    """Return why a class cannot be made: what it raised, with its place, if jsonargparse keeps it.

    Where jsonargparse tries several types for a value, it keeps what each raised as words only.
    """
    for found in causes(error):
        frames = traceback.extract_tb(found.__traceback__)
        if frames and not Path(frames[-1].filename).is_relative_to(_JSONARGPARSE):
            return told_with_place(found)
    return " ".join(str(error).split())[:_LONGEST]
