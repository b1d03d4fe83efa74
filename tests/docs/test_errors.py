"""The catalogue of errors: codes, words, and the page that shows them."""

import json
import re
from pathlib import Path

import pytest

from bertlab import errors
from bertlab.errors import BertlabError, DataError, remedy_of
from bertlab_conformance.explain import catalogue, meaning
from tests.conftest import Command

DOCS = Path(__file__).parents[2] / "docs"
ROOT = Path(errors.__file__).parents[2]


def test_every_class_has_a_code_of_its_own() -> None:
    classes = {
        each
        for each in [*vars(errors).values(), *catalogue().values()]
        if isinstance(each, type) and issubclass(each, BertlabError)
    }
    codes = [vars(each).get("code") for each in classes]
    assert sorted(codes) == list(catalogue())
    assert len(set(codes)) == len(classes)
    for each in classes:
        assert re.fullmatch(r"E[1-6]\d\d", each.code)
        own = remedy_of(each)
        assert own
        assert each is BertlabError or own != remedy_of(BertlabError)


def test_every_text_of_the_core_is_of_a_code_of_its_own_and_of_no_other() -> None:
    texts = json.loads(Path(errors.__file__).with_name("remedies.json").read_text("utf-8"))
    core = [each for each in catalogue().values() if each.__module__.startswith("bertlab.")]
    assert [*texts] == [each.code for each in core]
    for each in core:
        assert remedy_of(each) == texts[each.code]
        assert texts[each.code].strip().endswith((".", ".md"))


def test_what_to_do_is_said_by_a_packages_own_class_or_as_of_its_kind() -> None:
    class OwnError(DataError):
        code = "E399"

    assert remedy_of(OwnError) == remedy_of(DataError)
    OwnError.remedy = "Wait."
    assert remedy_of(OwnError) == "Wait."


def test_every_class_is_raised() -> None:
    """A code that no command can print would be a promise of nothing."""
    text = "\n".join(
        path.read_text("utf-8")
        for folder in ("bertlab", "plugins")
        for path in (ROOT / folder).rglob("*.py")
    )
    for each in catalogue().values():
        if each is not BertlabError:  # for plugins
            assert re.search(rf"(?:raise|return) {each.__name__}\(", text), each


def test_what_remedies_name_exists() -> None:
    from bertlab.cli.main import command_names

    for each in catalogue().values():
        for command in re.findall(r"`bertlab (?!--)([a-z-]+)", remedy_of(each)):
            assert command in command_names(), (each, command)
        for page in re.findall(r"docs/[a-z-]+\.md", remedy_of(each)):
            assert (DOCS.parent / page).is_file(), (each, page)


def test_the_page_shows_the_module_of_all_errors() -> None:
    page = (DOCS / "errors.md").read_text("utf-8")
    modules = re.findall(r"^\.\. automodule:: (\S+)\n   :members:$", page, re.MULTILINE)
    assert {each.__module__ for each in catalogue().values()} == {
        *modules,
        "bertlab_guard.errors",
    }


@pytest.mark.parametrize("code", list(catalogue()))
def test_explain(bertlab: Command, code: str) -> None:
    exit_code, output, error = bertlab("explain", code.lower())
    assert (exit_code, error) == (0, "")
    assert output.startswith(f"{code}: {meaning(catalogue()[code])[0][:40]}")
    assert " ".join(remedy_of(catalogue()[code]).split()) in " ".join(output.split())


def test_explain_lists_all_codes(bertlab: Command) -> None:
    code, output, _ = bertlab("explain")
    assert code == 0
    assert re.findall(r"^  (E\d+)", output, re.MULTILINE) == list(catalogue())


def test_an_unknown_code(bertlab: Command) -> None:
    code, _, error = bertlab("explain", "E109")
    assert code == 2
    assert error.startswith("bertlab: error E103: explain: found 'E109'; did you mean 'E10")


def test_an_error_of_a_plugin_is_not_in_the_catalogue() -> None:
    class TreeError(DataError):
        """A tree has a cycle."""

    assert TreeError.code == DataError.code
    assert TreeError not in catalogue().values()
