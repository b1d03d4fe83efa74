"""Links, files, modules and commands that README and docs name exist; README's Python works."""

import importlib
import re
import runpy
from pathlib import Path

import pytest

import bertlab
from bertlab.cli.main import command_names
from bertlab.plugins.index import added_names

ROOT = Path(__file__).parents[2]
SITE = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *SITE]
OTHERS = [
    *(ROOT / each for each in ("SECURITY.md", "CHANGELOG.md", "plugins/README.md")),
    *sorted((ROOT / "plugins").glob("*/README.md")),
    *sorted((ROOT / "benchmarks").rglob("*.md")),
]
MOST_WORDS = 35_000
GENERATED = runpy.run_path(str(ROOT / "docs" / "reference_pages.py"))["GENERATED"]
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = page.read_text("utf-8")
    if "%GENERATED%" in text:
        text += GENERATED[f"{page.parent.name}/{page.stem}"]()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def words(page: Path) -> int:
    return len(page.read_text("utf-8").split())


def test_the_docs_are_short() -> None:
    figures = ROOT / "benchmarks" / "figures"
    written = ROOT / "docs" / "reference" / "contract-text.md"  # from docstrings
    counted = [page for page in [*PAGES, *OTHERS] if page.parent != figures and page != written]
    assert sum(map(words, counted)) <= MOST_WORDS


def test_every_page_is_two_clicks_from_the_readme() -> None:
    linked = re.findall(r"\]\(([\w/.-]+\.md)", PAGES[0].read_text("utf-8"))
    near = {(ROOT / link).resolve() for link in linked}
    for page in list(near):
        links = re.findall(r"\]\(([\w/.-]+\.md)", page.read_text("utf-8"))
        near |= {(page.parent / link).resolve() for link in links}
    included = {ROOT / "docs" / "index.md", *(ROOT / "docs" / "project").glob("*.md")}
    assert set(SITE) - near <= included


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text("utf-8")):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pages
def test_files(page: Path) -> None:
    named = r"(?<![\w/.-])((?:bertlab|tests|configs|benchmarks|docs)/[\w./*-]*[\w/])"
    for file in re.findall(named, page.read_text("utf-8")):
        if "_build" not in file:  # Sphinx makes the site
            assert list(ROOT.glob(file.replace("NAME", "*"))), file


def test_modules_in_the_text_of_the_architecture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert len(text.split()) <= 2500
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py|[a-z_]+(?:/[a-z_]+)+)`", text)
    assert len(named) > 15
    for file in named:
        assert (ROOT / "bertlab" / file).exists() or (ROOT / file).exists(), file


@pages
def test_modules(page: Path) -> None:
    for name in re.findall(r"(?:from|import) (bertlab(?:\.\w+)+)", page.read_text("utf-8")):
        importlib.import_module(name)


@pages
def test_subcommands(page: Path) -> None:
    blocks = re.findall(r"```bash\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    for command in re.findall(r"^(?:\S*/)?bertlab ([a-z][a-z-]+)", "\n".join(blocks), re.MULTILINE):
        assert command in command_names(), command


def python_of_readme() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", PAGES[0].read_text("utf-8"), re.DOTALL)
    return str(block)


def test_readme_names_the_public_face() -> None:
    code = python_of_readme()
    for name in re.findall(r"bertlab\.(\w+)", code):
        assert hasattr(bertlab, name), name
    for kind, made in (("Run", "run"), ("PretrainedModel", "model"), ("Study", "study")):
        for name in re.findall(rf"\b{made}\.(\w+)\(", code):
            is_added = name in added_names(f"bertlab.{kind}")
            assert is_added or hasattr(getattr(bertlab, kind), name), (kind, name)


@pytest.mark.slow
def test_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = python_of_readme().partition("study =")[0]
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    short = code.replace('{"trainer.max_steps": 500}', '{"trainer.max_steps": 2}')
    assert short != code
    (tmp_path / "readme.py").write_text(short)
    made = runpy.run_path("readme.py")
    assert set(made["model"].tasks) == {"mlm", "nsp"}
    assert (tmp_path / "my-bert" / "config.json").is_file()
