"""``bertlab new-plugin``: a complete package for a plugin of one's own."""

import shlex
from pathlib import Path

from bertlab.config.yaml_files import take_options
from bertlab.errors import CommandError, say
from bertlab.plugins.new.names import GROUP_OF_KIND, plugin_names
from bertlab.plugins.new.package_files import demonstration, package_files, write_package

_USAGE = """usage: bertlab new-plugin KIND NAME [--output FOLDER]

Write a package with a small plugin that works, its config and its tests.

  KIND             {kinds}
  NAME             of the package, as in my-objective; my_objective in configs.
                   bertlab-my-objective is my_objective in configs, too
  --output FOLDER  folder to write, which must not exist; ./NAME by default
"""


def main(command: str, argv: list[str]) -> int:
    """Write a plugin's package and say what to do with it; return the exit code."""
    if not argv or "-h" in argv or "--help" in argv:
        say(_USAGE.format(kinds=", ".join(GROUP_OF_KIND)))
        return 0
    given, rest = take_options(argv, ("--output",))
    if len(rest) != 2 or rest[0].startswith("-") or rest[1].startswith("-"):
        raise CommandError(
            f"{command}: found {shlex.join(argv)!r}, expected KIND NAME, as in "
            f"bertlab {command} objective my-objective; see bertlab {command} --help"
        )
    names = plugin_names(*rest)
    folder = Path(given["--output"][-1] if given["--output"] else names.package)
    content = package_files(names)
    write_package(folder, content)
    place = shlex.quote(str(folder))
    config = None if names.config is None else shlex.quote(str(folder / names.config))
    lines = [
        f"{folder}: {names.kind} {names.name!r}, {len(content)} files",
        f"  pip install -e {shlex.quote(f'{folder}[test]')} && pytest {place}",
        "  " + " && ".join(demonstration(names, config)),
    ]
    say("\n".join(lines))
    return 0
