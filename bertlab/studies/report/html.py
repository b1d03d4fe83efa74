"""A study's report as files: one HTML page that needs nothing else, Markdown, LaTeX, pictures."""

import re
from collections.abc import Iterable
from dataclasses import replace
from html import escape
from pathlib import Path

from bertlab.api.study_scores import StudyScores
from bertlab.config.yaml_files import yaml_inline
from bertlab.files import write_whole
from bertlab.studies.report.cells import (
    DIFFERENCES_LEGEND,
    Grid,
    Report,
    grid_of,
    runs_of,
    settings_of,
)
from bertlab.studies.report.plot_axes import INK
from bertlab.studies.report.plots import Picture, pictures
from bertlab.studies.report.tables import latex, markdown, markdown_text

# the page may load nothing and run nothing, whatever is in it
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light dark; --ground: #fff; --ink: #24292f; --faint: #656d76;
  --line: #d0d7de; --band: #f6f8fa; --warn: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --ground: #0d1117; --ink: #e6edf3;
  --faint: #8d96a0; --line: #30363d; --band: #161b22; --warn: #d29922; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; background: var(--ground);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; font-size: 1.25rem; }
.lead { font-size: 1.1rem; }
.legend, figcaption { color: var(--faint); font-size: .875rem; }
.warnings { border-left: .25rem solid var(--warn); padding-left: 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9375rem; }
th, td { padding: .3rem .75rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
thead th { vertical-align: bottom; border-bottom-width: 2px; }
tbody th { font-weight: normal; }
.figure { text-align: right; white-space: nowrap; }
.settings td { overflow-wrap: anywhere; font-family: ui-monospace, monospace; font-size: .8125rem; }
figure { margin: 1.5rem 0; } figure svg { max-width: 100%; height: auto; }
pre { background: var(--band); padding: .5rem .75rem; margin: 0; overflow-x: auto;
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: .8125rem; }
@media print { body { max-width: none; } }
"""


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write ``report.html``, ``report.md``, ``report.tex`` and the pictures as SVG.

    Returns:
        The files; the page comes first.

    Raises:
        OutputError: if one cannot be written; each is then whole, as it was before, or not there.
    """
    drawn = [_pictures(report, number) for number in range(len(report.studies))]
    every = [picture for of_study in drawn for picture in of_study]
    shown = [f"![{markdown_text(p.caption)}]({p.name}.svg)\n" for p in every]
    texts = {
        "report.html": html(report, drawn),
        "report.md": "\n".join([markdown(report), *(["## Plots\n"] if shown else []), *shown]),
        "report.tex": latex(report),
        **{f"{picture.name}.svg": _on_white(picture.svg) for picture in every},
    }
    return [write_whole(folder / name, text) for name, text in texts.items()]


def html(report: Report, drawn: list[list[Picture]]) -> str:
    """Return the page.

    Args:
        report: of one study, or of several joined.
        drawn: the pictures of each study.
    """
    title = escape(report.title)
    first, *others = report.findings
    body = [
        f"<h1>{title}</h1>",
        f'<p class="lead">{escape(first)}</p>',
        _table(report.scores),
        f'<p class="legend">{escape(report.legend)}</p>',
    ]
    if report.warnings:
        body.append(
            f'<section class="warnings"><h2>Warnings</h2>{_list(report.warnings)}</section>'
        )
    if others:
        body.append(f"<h2>Findings</h2>{_list(others)}")
    for of_study in drawn:
        body += map(_figure, of_study)
    if report.differences.rows:
        body += [
            "<h2>Differences to the baseline</h2>",
            _table(report.differences),
            f'<p class="legend">{escape(DIFFERENCES_LEGEND)}</p>',
        ]
    for section in report.sections:
        body += [
            f"<h2>{escape(section.title)}</h2>",
            *(f"<p>{escape(p)}</p>" for p in section.text),
        ]
        body += [_table(grid_of(section))] if section.rows else []
    for study in report.studies:
        body += _details(study, f" of {escape(study.name)}" if len(report.studies) > 1 else "")
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
            *body,
            "</body>\n</html>\n",
        ]
    )


def _pictures(report: Report, number: int) -> list[Picture]:
    """Return the pictures of a study; with several studies, its number is in their names."""
    drawn = pictures(report.studies[number], report.comparisons[number])
    if len(report.studies) == 1:
        return drawn
    name = report.studies[number].name
    return [
        replace(p, name=f"{number + 1}_{p.name}", caption=f"{name}: {p.caption}") for p in drawn
    ]


def _details(study: StudyScores, of_study: str) -> Iterable[str]:
    settings = settings_of(study)
    if settings.rows:
        yield f"<h2>Variants{of_study}</h2>"
        yield f'<div class="settings">{_table(settings)}</div>'
    yield f"<h2>Runs{of_study}</h2>"
    failures = [line for variant in study.variants.values() for line in variant.failures]
    yield f"<p>Failed:</p>{_list(failures)}" if failures else "<p>No run has failed.</p>"
    yield f"<details><summary>Values of each seed</summary>{_table(runs_of(study))}</details>"
    if study.manifest:
        yield f"<h2>To repeat{of_study}</h2>"
        for key, value in study.manifest.items():
            text = value if isinstance(value, str) else yaml_inline(value)
            yield f"<p>{escape(str(key))}</p><pre>{escape(text)}</pre>"


def _table(grid: Grid) -> str:
    names = len(grid.headings) - grid.figures
    kinds = [""] * names + [' class="figure"'] * grid.figures
    headings = [
        f'<th scope="col"{kind}>{"<br>".join(map(escape, heading))}</th>'
        for kind, heading in zip(kinds, grid.headings, strict=True)
    ]
    rows = [
        f'<th scope="row">{escape(name)}</th>'
        + "".join(f"<td{kind}>{escape(c)}</td>" for kind, c in zip(kinds[1:], cells, strict=True))
        for name, *cells in grid.rows
    ]
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    head = f"<thead><tr>{''.join(headings)}</tr></thead>"
    return f'<div class="scroll"><table>{head}\n<tbody>{body}</tbody></table></div>'


def _list(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _figure(picture: Picture) -> str:
    """Return a picture in the page's own ink, with names that no other picture of it has."""
    prefix = f"{picture.name}-"

    def adapt(tag: re.Match[str]) -> str:
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}", tag[0])
        return text.replace(INK, "currentColor")

    svg = re.sub(r"<[^>]+>", adapt, picture.svg[picture.svg.index("<svg") :])
    label = escape(picture.caption)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return f"<figure>{svg}<figcaption>{label}</figcaption></figure>"


def _on_white(svg: str) -> str:
    """Return a picture that can be read where the viewer's own ground is dark."""
    return svg.replace("<svg", '<svg style="background: white"', 1)
