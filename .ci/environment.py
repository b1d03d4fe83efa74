"""Makes an environment of wheels and of their dependencies alone, in seconds and without a network.

Usage::

    .venv/bin/python .ci/environment.py FOLDER WHEEL...

The dependencies, and theirs, are hard links to the files of the environment that runs this script.
`pip check` says whether any is missing.
"""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterable
from email.parser import Parser
from importlib.metadata import Distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def dependencies(wheels: Iterable[Path]) -> dict[str, Distribution]:
    """Return the installed distributions that wheels need, by name, without these wheels' own."""
    ours, waiting = set(), []
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            name = next(each for each in archive.namelist() if each.endswith("dist-info/METADATA"))
            metadata = Parser().parsestr(archive.read(name).decode())
        ours.add(canonicalize_name(metadata["Name"]))
        waiting += [(line, "") for line in metadata.get_all("Requires-Dist", [])]
    found: dict[str, Distribution] = {}
    seen = set()
    while waiting:
        line, extra = waiting.pop()
        wanted = Requirement(line)
        name = canonicalize_name(wanted.name)
        applies = wanted.marker is None or wanted.marker.evaluate({"extra": extra})
        if name in ours or not applies or (name, extras := frozenset(wanted.extras)) in seen:
            continue
        seen.add((name, extras))
        found[name] = distribution = Distribution.from_name(name)
        for each in distribution.requires or ():
            waiting += [(each, chosen) for chosen in ("", *extras)]
    return found


def link(distribution: Distribution, site: Path) -> None:
    """Link the modules and metadata of a distribution; its commands and data are left out."""
    for file in distribution.files or ():
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        target = site / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():  # two distributions may have it, as an empty __init__.py
            os.link(os.path.realpath(str(file.locate())), target)


def main(folder: Path, wheels: list[Path]) -> None:
    """Make the environment."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    for distribution in dependencies(wheels).values():
        link(distribution, site)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python")]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", *wheels], check=True)
    subprocess.run([*pip, "check"], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), [Path(each).absolute() for each in sys.argv[2:]])
