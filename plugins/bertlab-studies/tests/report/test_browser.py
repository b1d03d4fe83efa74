"""The page in a browser: headings sort tables, and no name runs, not even without the policy."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bertlab_studies.report.render import draw, html
from bertlab_studies.report.report import report_of
from made_up_scores import made_up_study
from tests.html_page import Page

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium"),
    pytest.mark.slow,
]


def shown(page: str, folder: Path, script: str = "") -> str:
    """Return the page's document after its scripts and another one have run without a policy."""
    text = re.sub(r"script-src '[^']*'", "script-src 'unsafe-inline'; img-src *", page)
    assert text != page
    file = folder / "page.html"
    file.write_text(text.replace("</body>", f"<script>{script}</script></body>"), "utf-8")
    command = (
        *(str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"),
        *(f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=2000", file.as_uri()),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def cells(document: str, column: int) -> list[str]:
    """Return a column of the first table."""
    body = document[document.index("<tbody>") : document.index("</tbody>")]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in body.split("</tr>")[:-1]]
    return [row[column] for row in rows]


def clicked(times: int, column: int) -> str:
    button = f'document.querySelectorAll("thead")[0].rows[0].cells[{column}].firstChild'
    return f"for (let i = 0; i < {times}; i++) {button}.click();"


@pytest.mark.nightly
def test_a_click_on_a_heading_sorts_its_table(tmp_path: Path) -> None:
    study = made_up_study(names=("b10", "b9", "a"))
    for variant, value in (("b10", 10.5), ("b9", 9.25)):
        study.variants[variant].cells["mlm loss"].values = dict.fromkeys(study.seeds, value)
    study.variants["a"].cells["mlm loss"].values = {}
    page = html(report_of(study))
    assert 'aria-sort="' not in page
    as_written = ["b10 (baseline)", "b9", "a"]
    for column, times, expected in (
        (0, 1, ["a", "b9", "b10 (baseline)"]),  # 9 before 10
        (0, 2, ["b10 (baseline)", "b9", "a"]),
        (3, 1, ["b9", "b10 (baseline)", "a"]),  # without a value last, either way
        (3, 2, as_written),
        (3, 3, as_written),
    ):
        document = shown(page, tmp_path, clicked(times, column))
        assert cells(document, 0) == expected, (column, times)
        direction = re.findall(r'aria-sort="(\w+)"', document.partition("<script>")[0])
        assert direction == [[], ["ascending"], ["descending"], []][times]


def test_no_name_runs_where_nothing_forbids_it(tmp_path: Path) -> None:
    run = "document.documentElement.dataset.ran=1"
    names = (
        f"</script><script>{run}</script>",
        f"<img src=x onerror={run}>",
        f'"><svg onload="{run}"><title>\'',
    )
    study = made_up_study(seeds=2, names=names, name=f"</title><script>{run}</script>")
    study.manifest["<script>"] = f"</pre><script>{run}</script>"
    report = report_of(study)
    page = html(report, draw(report))
    document = shown(page, tmp_path)
    assert "data-ran" not in document.partition("<head>")[0]
    found = Page(document)
    assert all(name in found.text for name in names)
    assert "data-ran" in shown(page, tmp_path, run).partition("<head>")[0]  # it would be seen
