"""``run.html``: what a run came to, as one page that needs no other file and runs nothing.

Results beside their baselines, curves, what the run predicted for sample rows as it went on, its
data and its config. All of it is read from the run's directory.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from markupsafe import Markup

from bertlab.extend import (
    CONFIG_FILE,
    MANIFEST_FILE,
    STUDY_ENVIRONMENT,
    Results,
    read_bytes,
    read_curves,
    read_object,
    result_rows,
    shown_figure,
    write_text,
)
from bertlab_pages.loss_curve import draw_curves
from bertlab_pages.pictures import Picture, hover, inline_svg, svg_of
from bertlab_pages.plot_axes import SETTINGS
from bertlab_pages.samples import SAMPLES, read_samples
from bertlab_pages.tables import PAGES, Grid, plain_grid

PAGE = "run.html"
_MOST_POINTS = 200  # of a curve whose points say their value
_LEAD = (
    ("parameters", "{:,} parameters"),
    ("seed", "seed {}"),
    ("training_tokens", "{:,.0f} tokens of training"),
)
_MOST_COLUMNS = 3  # steps at which a sample is shown


def write_run_page(
    directory: Path, results: Results, tables: list[tuple[str, list[tuple[str, str]]]]
) -> None:
    """Write ``run.html``, unless the run is of a study, whose report shows its runs.

    Args:
        directory: of the run, with its config, manifest and logs.
        results: metrics of the last step.
        tables: about the data, with their titles.
    """
    if STUDY_ENVIRONMENT in os.environ:
        return
    manifest = read_object(directory / MANIFEST_FILE)
    page = PAGES.get_template("run.html").render(
        title=directory.name,
        lead=_lead(manifest),
        results=_results_grid(results),
        curves=_curves(directory),
        samples=_samples(directory),
        data=[(title, plain_grid(("", ""), rows)) for title, rows in tables],
        config=read_bytes(directory / CONFIG_FILE).decode(errors="replace"),
        facts=plain_grid(("", ""), _facts(manifest)),
    )
    write_text(directory / PAGE, page)


def _lead(manifest: Mapping[str, Any]) -> str:
    """Return what the manifest says of the run; another program may have left some of it out."""
    found = []
    for key, form in _LEAD:
        value = manifest.get(key)  # no training_tokens where a time ends the run
        if isinstance(value, int | float):
            found.append(form.format(value))
    command = manifest.get("command")
    words = " ".join(map(str, command)) if isinstance(command, list) else ""
    return f"{', '.join(found) or 'No figures in the manifest'}. {words}"


def _results_grid(results: Results) -> Grid:
    return plain_grid(("task", "metric", "held out", "baseline"), result_rows(results), 2)


def _curves(directory: Path) -> Markup | None:
    curves = read_curves(directory)
    if not curves:
        return None
    with mpl.rc_context(SETTINGS):
        figure = draw_curves(curves)
        for axis in figure.axes:
            for line in list(axis.lines):
                name = str(line.get_label())
                steps, values = curves[name]
                hover(line, name)
                if len(steps) > _MOST_POINTS:
                    continue
                for step, value in zip(steps, values, strict=True):
                    (point,) = axis.plot(
                        [step], [value], marker="o", markersize=8, alpha=0.0, label="_point"
                    )
                    hover(point, f"{name}, step {step}: {shown_figure(name, value)}")
        picture = Picture("curves", "losses and scores against steps", svg_of(figure))
    return inline_svg(picture)


def _samples(directory: Path) -> list[tuple[str, str, Grid]]:
    """Return a table for each task: a row a sample, a column a step, the last one first."""
    found = []
    rows = read_samples(directory / SAMPLES)
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        steps = _spread(sorted({row["step"] for row in own}, reverse=True))
        predicted = {(row["sample"], row["step"]): row for row in own}
        last = {row["sample"]: row for row in own}
        is_text = any(_pairs(row) for row in own)
        truth = () if is_text else ("truth",)
        grid = plain_grid(
            ("sample", *truth, *(f"step {step}" for step in steps), "text"),
            [
                (
                    name,
                    *(row[key] for key in truth),
                    *(_cell(predicted.get((name, step)), is_text) for step in steps),
                    row["text"].replace(" ##", ""),  # schedul ##e -> schedule
                )
                for name, row in last.items()
            ],
        )
        legend = "What the model predicted for a few held-out samples as training went on."
        pairs = " In place of each masked token: truth → prediction." if is_text else ""
        found.append((f"Samples: {task}", f"{legend}{pairs}", grid))
    return found


def _pairs(row: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return truth and prediction of each token of a language model's sample; [] of others."""
    truth, predicted = row["truth"].split(), row["prediction"].split()
    masked = row["text"].startswith("[CLS]") and len(truth) == len(predicted)
    return list(zip(truth, predicted, strict=True)) if masked else []


def _cell(row: Mapping[str, str] | None, is_text: bool) -> str:
    """Return what is shown of a prediction; of tokens, those that are right are coloured."""
    if row is None or not is_text:
        return "" if row is None else row["prediction"]
    found = (
        Markup('<span class="right">{}</span>').format(truth)
        if truth == guess
        else Markup('{} → <span class="wrong">{}</span>').format(truth, guess)
        for truth, guess in _pairs(row)
    )
    return Markup("<br>").join(found)


def _spread(steps: list[int]) -> list[int]:
    """Return at most a few of the steps, the first and the last of them among these."""
    if len(steps) <= _MOST_COLUMNS:
        return steps
    # of 11: 0, 5, 10
    places = [round(n * (len(steps) - 1) / (_MOST_COLUMNS - 1)) for n in range(_MOST_COLUMNS)]
    return [steps[place] for place in places]


def _facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the manifest says beside the data, one line a fact."""
    rows = []
    for key, value in manifest.items():
        if isinstance(value, dict):
            inner = {name: each for name, each in value.items() if not isinstance(each, dict)}
            rows += [(f"{key}: {name}", str(each)) for name, each in inner.items()]
        elif not isinstance(value, list):
            rows.append((key, str(value)))
    return rows
