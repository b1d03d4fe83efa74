"""The pages of docs/reference have every public name, plugin, hook, command and error."""

import re
import runpy
from pathlib import Path

import bertlab
import bertlab.api
from bertlab.cli.main import command_names
from bertlab.errors import BertlabError
from bertlab.plugins import hooks
from bertlab.plugins.index import FIRST_PARTY, GROUPS, installed

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = runpy.run_path(str(ROOT / "docs" / "reference_pages.py"))
NOT_OURS = {"__version__", "hookimpl", "hookspec", "IntArray", "Metric"}


def documented(*pages: str) -> set[str]:
    """Return what pages have the docstring of, by the name that the directive is given."""
    text = "\n".join((REFERENCE / page).read_text("utf-8") for page in pages)
    for name, generate in PAGES["GENERATED"].items():
        if f"{name.removeprefix('reference/')}.md" in pages:
            text += generate()
    return set(re.findall(r"^\.\. auto\w+:: ([\w.]+)", text, re.MULTILINE))


def is_error(name: str) -> bool:
    """Tell whether a name is an error: docs/errors.md has all of them."""
    found = getattr(bertlab, name, None)
    return isinstance(found, type) and issubclass(found, BertlabError)


def test_every_public_name_is_documented() -> None:
    pages = [page.name for page in REFERENCE.glob("*.md")]
    named = {name.rpartition(".")[2] for name in documented(*pages)}
    assert {each for each in bertlab.__all__ if not is_error(each)} - named == NOT_OURS


def test_every_contract_is_documented_among_the_contracts() -> None:
    contracts = {each for each in bertlab.api.__all__ if not is_error(each)}
    found = {name.removeprefix("bertlab.") for name in documented("contracts.md")}
    assert contracts - found == {"CONTRACT", "Metric", "hookimpl", "hookspec"}


def test_every_hook_is_documented() -> None:
    named = {name for name in vars(hooks) if name.startswith("bertlab_")}
    found = {name.rpartition(".")[2] for name in documented("contracts.md")}
    assert named <= found


def test_every_kind_of_plugin_has_its_place() -> None:
    assert PAGES["KINDS"].keys() | PAGES["ELSEWHERE"] == set(GROUPS)


def test_the_built_in_plugins_are_those_of_the_packages() -> None:
    shown = PAGES["built_ins"]()
    assert "### `mlm`\n\n```{eval-rst}\n.. autoclass:: bertlab.objectives." in shown
    strangers = [
        name
        for kind in PAGES["KINDS"]
        for name, plugin in installed(kind).items()
        if plugin.package not in FIRST_PARTY
    ]
    assert not [name for name in strangers if f"### `{name}`" in shown]
    assert "%GENERATED%" in (REFERENCE / "built-ins.md").read_text("utf-8")


def test_the_help_of_every_command_is_shown() -> None:
    shown = PAGES["commands"]()
    assert re.findall(r"^!bertlab (\S+) --help", shown, re.M) == command_names()
    assert "%GENERATED%" in (REFERENCE / "commands.md").read_text("utf-8")


def test_the_formats_are_in_their_table() -> None:
    page = (REFERENCE.parent / "finetuning.md").read_text("utf-8")
    table = page[page.index("| `data.format`") :].partition("\n\n")[0]
    assert set(installed("format")) <= set(re.findall(r"`(\w+)`", table))


def test_the_contract_in_a_clone_is_that_of_the_docstrings() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "contract_text.py"))
    text = made["PAGE"].read_text("utf-8")
    assert text == made["text"](), "run: python docs/contract_text.py"
    for name in ("Objective", "Head", "Encoder", "DataSource", "bertlab_run_ended", "MaskingUnit"):
        assert f"### {name}\n" in text
    assert "#### Objective.prepare\n" in text
