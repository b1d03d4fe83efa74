"""Config files by name: the configs that come with bertlab, such as ``finetune/mrpc``.

The repository has them in ``configs/``, and the wheel has that folder inside this package (see
``force-include`` in pyproject.toml). So ``bertlab fit finetune/mrpc`` works from any folder, with
or without a clone.
"""

import shlex
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from bertlab.errors import ConfigFileError
from bertlab.plugins.index import entry_points_of

_FOLDER = "configs"  # also in front of a name: configs/quickstart.yaml means the same
_ENDING = ".yaml"
_TEMPLATES = "/templates/"  # folder of what `bertlab init` writes


def shipped_folder() -> Path:
    """Return the folder of the configs that come with bertlab."""
    package = Path(str(files("bertlab.config")))
    inside = package / "shipped_configs"  # in a wheel; an editable install has only the clone's
    return inside if inside.is_dir() else package.parents[1] / _FOLDER


@cache
def shipped_configs() -> dict[str, Path]:
    """Return the path of each config of bertlab and of packages, by its name, in their order."""
    # configs/finetune/mrpc.yaml -> finetune/mrpc; of a package's entry point x: x/mrpc
    found = {
        f"{before}{path.relative_to(folder).with_suffix('').as_posix()}": path
        for before, folder in (*_folders_of_packages(), ("", shipped_folder()))
        for path in folder.rglob(f"*{_ENDING}")
    }
    return dict(sorted(found.items()))


def _folders_of_packages() -> Iterator[tuple[str, Path]]:
    """Yield the folders that packages name, ``x = "my_package.configs"``; none is imported."""
    for entry in entry_points_of("bertlab.configs"):
        top, *below = entry.value.split(".")
        spec = find_spec(top)
        for place in (spec and spec.submodule_search_locations) or ():
            yield f"{entry.name}/", Path(place, *below)


def find_config(given: str | Path, kind: str = "config file", others: Iterable[Path] = ()) -> Path:
    """Return the config file that a path or name stands for; a file in the way of a name wins.

    Args:
        given: a file, or the name of a config that comes with bertlab: ``finetune/mrpc``, also
            as ``finetune/mrpc.yaml`` and ``configs/finetune/mrpc.yaml``.
        kind: what it is called where there is none.
        others: files and folders that may be meant as well, for the message.

    Raises:
        ConfigFileError: there is none; names the nearest file or config.
    """
    path = Path(given)
    if path.exists() and not path.is_dir():  # not is_file(): it may be a pipe, as of <(command)
        return path
    name = _bare_name(path)
    shipped = shipped_configs()
    if name in shipped:
        return shipped[name]
    if path.is_dir():
        raise ConfigFileError(
            f"{given}: found a folder, expected a config file or the name of a config; a run is "
            f"continued with --ckpt_path {shlex.quote(str(given))}"
        )
    if "=" in path.name and not path.is_absolute():
        raise ConfigFileError(f"{given}: no such config file; an option begins with --: --{given}")
    hint = _nearest_config(path, others)
    raise ConfigFileError(f"{given}: no such {kind}, nor a config of bertlab's{hint}")


def offered_names() -> list[str]:
    """Return the names of the configs that run as they are."""
    return [name for name in shipped_configs() if _TEMPLATES not in f"/{name}"]


def _nearest_config(path: Path, others: Iterable[Path]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest file beside a path, or config by name."""
    names = offered_names()
    # what is compared, and what it stands for: mrpc -> finetune/mrpc
    choices = {name.rpartition("/")[2]: name for name in names} | {name: name for name in names}
    files = (*path.parent.glob("*.y*ml"), *others)  # my.yaml for my.yml
    choices |= {_bare_name(each).removesuffix(".yml"): str(each) for each in files}
    matches = get_close_matches(_bare_name(path).removesuffix(".yml"), choices, n=1, cutoff=0.6)
    return f"; did you mean {choices[matches[0]]!r}?" if matches else ""


def _bare_name(path: Path) -> str:
    # configs/finetune/mrpc.yaml -> finetune/mrpc
    return path.as_posix().removeprefix(f"{_FOLDER}/").removesuffix(_ENDING)
