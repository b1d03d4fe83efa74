"""A mistake of a first run: a template that is not filled in, told before torch is imported."""

from pathlib import Path

from bertlab.api import ConfigError
from bertlab.extend import Request, shipped_configs

_MARK = "<<<"
_KEYS = {"source": "data.source", "corpus": "data.corpus"}


def check_filled_in(request: Request) -> None:
    """Refuse a config of ``bertlab init`` in which the path is still the template's.

    Raises:
        ConfigError: it names a file or folder that is not there; says the lines to fill in.
    """
    for path, _ in request.files:
        try:
            lines = path.read_text("utf-8").splitlines()
        except (OSError, ValueError):
            continue
        marked = [(number, line) for number, line in enumerate(lines, 1) if f"# {_MARK}" in line]
        templates = _lines_of_templates() if marked else set()
        # "  source: my-texts.csv   # <<< your texts" as the template has it
        same = [(number, line) for number, line in marked if line.strip() in templates]
        for number, line in same:
            key, value = (part.strip() for part in line.partition("#")[0].split(":", 1))
            if key not in _KEYS or _given(request, _KEYS[key]) != value or Path(value).exists():
                continue
            numbers = ", ".join(str(each) for each, _ in same)
            raise ConfigError(
                f"{path}:{number}: {_KEYS[key]}: {value} is the template's and is not there; fill "
                f"in line{'s'[: len(same) != 1]} {numbers}, marked with {_MARK}"
            )


def _given(request: Request, key: str) -> object:
    section, _, last = key.partition(".")
    found = (request.values.get(section) or {}).get(last)
    return found[0] if isinstance(found, list) and len(found) == 1 else found


def _lines_of_templates() -> set[str]:
    files = [path for name, path in shipped_configs().items() if name.startswith("templates/")]
    return {
        line.strip()
        for file in files
        for line in file.read_text("utf-8").splitlines()
        if _MARK in line
    }
