"""Settings of Sphinx, which makes the site of these pages.

Usage::

    pip install -c constraints.txt -r plugins/requirements.txt -e '.[docs]'
    sphinx-build -W --keep-going -n docs docs/_build/html
"""

import os
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

import bertlab
from bertlab.errors import BertlabError, remedy_of

sys.path.insert(0, str(Path(__file__).parent))
from reference_pages import GENERATED

project = "bertlab"
author = "The bertlab authors"
copyright = "The bertlab authors, Apache License 2.0"
version = release = bertlab.__version__
REPOSITORY = "https://github.com/bertlab/bertlab"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build"]
default_role = "code"  # docstrings that the command prints have `single` quotes

# Markdown
myst_heading_anchors = 4  # the anchors that GitHub makes
myst_enable_extensions = ["colon_fence"]

# Notebooks: run when their text has changed; the command is that of this environment
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ |= {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}
# tqdm and rich would like ipywidgets, whose bars are nothing on a page
os.environ["PYTHONWARNINGS"] = 'ignore:IProgress not found,ignore:install "ipywidgets"'
nb_execution_mode = "cache"
nb_execution_in_temp = True
nb_execution_excludepatterns = [
    "notebooks/colab.md"
]  # the whole quickstart, which the README's command is
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

# Docstrings
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_custom_sections = [("Attributes", "params_style")]
add_module_names = False
nitpick_ignore_regex = [
    ("py:.*", r"(?!bertlab\.).*"),  # names of other packages
    # inner types
    (
        "py:class",
        r"bertlab\.[\w.]+\.(ArrayT|_Batch|Batch|Result|PairLayout|Change|ChangingNumber|ExportReport|KeyedDraws)",
    ),
    (
        "py:class",
        r"bertlab\.(data|encoders|model|errors)\.[\w.]+",
    ),  # what is no public name of its own
    ("py:mod", r"bertlab\.(api|config\.[\w.]+)"),
]

# Look
html_theme = "furo"
html_title = "bertlab"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    "source_repository": REPOSITORY,
    "source_branch": "main",
    "source_directory": "docs/",
}
copybutton_prompt_text = "$ "


def write_generated(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put what is installed into the pages that list it."""
    if docname in GENERATED:
        source[0] = source[0].replace("%GENERATED%", GENERATED[docname]())


def link_to_repository(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let links to files outside ``docs/`` lead to the repository, and name pages by their titles."""
    up = r"\.\./" * (docname.count("/") + 1)
    text = re.sub(rf"\]\({up}", f"]({REPOSITORY}/blob/main/", source[0])
    source[0] = re.sub(r"\[[\w-]+\.md\]\((?!http)", "[](", text)  # named by the page's title


def add_code_and_remedy(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Add to the docstring of an error what ``bertlab explain`` prints beside it."""
    if isinstance(obj, type) and issubclass(obj, BertlabError) and "code" in vars(obj):
        lines[:0] = [f".. _{obj.code}:", "", f"**{obj.code}**", ""]
        lines += ["", f"*What to do.* {remedy_of(obj)}", ""]


def setup(app: Sphinx) -> None:
    """Connect what is ours to Sphinx."""
    app.connect("source-read", write_generated)
    app.connect("source-read", link_to_repository)
    app.connect("autodoc-process-docstring", add_code_and_remedy)
