"""``run.html``: is the run good, and where is it wrong? One page that needs no other file.

Figures beside their baselines, where heads are wrong, curves, samples, data and config. All of it
is read from the run's directory, which may come from anywhere, also while the run goes on.
"""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from bertlab.extend import (
    CONFIG_FILE,
    MANIFEST_FILE,
    STUDY_ENVIRONMENT,
    Results,
    Shares,
    explain_damage,
    hook_results,
    is_among,
    read_bytes,
    read_curves,
    read_object,
    read_results,
    read_shares,
    result_rows,
    write_text,
)
from bertlab_pages.head_section import head_section
from bertlab_pages.hookspecs import ReportSection
from bertlab_pages.line_charts import Line, line_chart
from bertlab_pages.rate_range import rates_section
from bertlab_pages.run_records import DIAGNOSIS, PAGE, SAMPLES, read_diagnosis, read_samples
from bertlab_pages.tables import PAGES, Grid, plain_grid
from bertlab_pages.word_curves import Curve

REFRESH = 10  # seconds after which a browser reads the page of a running run again
_LEAD = (
    ("parameters", "{:,} parameters"),
    ("seed", "seed {}"),
    ("training_tokens", "{:,.0f} tokens of training"),
)
_LIVE = ("running", "not finished")  # a run that may go on
_MOST_STEPS = 4  # at which samples are shown
_BASELINES = ("unigram", "majority")
_KINDS = (
    ("loss", "loss", "nats a prediction"),
    ("share", "scores", "share"),
    ("type", "f1 by type", "f1"),
    ("correlation", "correlations", "correlation"),
    ("perplexity", "perplexity", "perplexity"),
)
_TYPE = "f1 of "
_SPECIAL = {"[CLS]": "", "[SEP]": " · "}  # tokens, and what stands for them within a text
_RUNNING = (
    ("learning_rate", "learning rate"),
    ("gradient_norm", "gradient norm"),
    ("tokens_per_second", "tokens a second"),
)


def write_run_page(
    directory: Path, results: Results, tables: list[tuple[str, list[tuple[str, str]]]]
) -> None:
    """Write ``run.html``, unless the run is of a study, whose report shows its runs.

    ``BERTLAB_RUN_PAGES=true`` asks for it in a study as well.

    Args:
        directory: of the run, with its config, manifest and logs.
        results: metrics of the last step.
        tables: about the data, with their titles.
    """
    if STUDY_ENVIRONMENT not in os.environ or os.environ.get("BERTLAB_RUN_PAGES") == "true":
        found = hook_results("bertlab_page_sections", run_dir=directory, results=results)
        write_page(directory, None, results, tables, [each for part in found for each in part])


def write_page(
    directory: Path,
    state: str | None = None,
    results: Results | None = None,
    tables: list[tuple[str, list[tuple[str, str]]]] | None = None,
    sections: Sequence[ReportSection] = (),
) -> None:
    """Write ``run.html``; what is not given is read from the run's files."""
    write_text(directory / PAGE, run_page(directory, state, results, tables, sections))


def run_page(
    directory: Path,
    state: str | None = None,
    results: Results | None = None,
    tables: list[tuple[str, list[tuple[str, str]]]] | None = None,
    sections: Sequence[ReportSection] = (),
) -> str:
    """Return the page of a run.

    Args:
        directory: of the run.
        state: ``running``, ``not finished`` or ``stopped``; None of one that is whole.
        results: of the last step; if not given, those of ``results.json``, or in the logs.
        tables: about the data; if not given, those that the run has noted.
        sections: what packages add.

    Raises:
        DamagedRecordError: a record of the run cannot be read.
    """
    manifest = read_object(directory / MANIFEST_FILE)
    found = read_diagnosis(directory)
    curves, shares = read_curves(directory), read_shares(directory)
    if results is None:
        results = read_results(directory) or _last_evaluation(curves)
    with explain_damage(directory / DIAGNOSIS):
        names = _names(found)
        return PAGES.get_template("run.html").render(
            title=directory.resolve().name,
            refresh=REFRESH if state in _LIVE else None,
            state=state and _state(state, found, curves),
            lead=_lead(manifest),
            command=_command(manifest),
            results=_results_grid(results, shares, names),
            tasks=[
                head_section(names(name), each) for name, each in found.get("tasks", {}).items()
            ],
            rates=rates_section(directory),
            curves=[chart for chart in _curves(curves, shares, names) if chart is not None],
            samples=_samples(directory, names),
            run=plain_grid(("", ""), _run_rows(manifest, found, curves)),
            data=[
                (str(title), plain_grid(("", ""), [(str(a), str(b)) for a, b in rows]))
                for title, rows in tables or found.get("data", [])
            ],
            config=read_bytes(directory / CONFIG_FILE).decode(errors="replace"),
            facts=plain_grid(("", ""), _facts(manifest)),
            sections=sections,
            grid_of=lambda section: plain_grid(section.headings, section.rows),
        )


def _names(found: Mapping[str, Any]) -> Any:  # noqa: ANN401  a function
    """Return what gives a task's name to people: a single head has the user's, if there is one."""
    own, heads = found.get("task_name"), list(found.get("tasks", {}))

    def name_of(task: str) -> str:
        head, slash, rest = task.partition("/")
        return f"{own}{slash}{rest}" if own and heads == [head] else task

    return name_of


def _state(state: str, found: Mapping[str, Any], curves: Mapping[str, Curve]) -> str:
    # steps are logged from 0 on
    done = max((steps[-1] + 1 for steps, _ in curves.values() if steps), default=0)
    steps = found.get("steps")
    if not isinstance(steps, int):
        return f"{state}: step {done:,}"
    return f"{state}: step {min(done, steps):,} of {steps:,}"


def _last_evaluation(curves: Mapping[str, Curve]) -> Results:
    evaluated = {name: curve for name, curve in curves.items() if name.startswith("val/")}
    return {name.removeprefix("val/"): values[-1] for name, (_, values) in evaluated.items()}


def _lead(manifest: Mapping[str, Any]) -> str:
    """Return what the manifest says of the run; another program may have left some of it out."""
    found = []
    for key, form in _LEAD:
        value = manifest.get(key)  # no training_tokens where a time ends the run
        if isinstance(value, int | float):
            found.append(form.format(value))
    return f"{', '.join(found) or 'No figures in the manifest'}."


def _command(manifest: Mapping[str, Any]) -> list[str]:
    """Return the words of the run's command, as a shell takes them."""
    command = manifest.get("command")
    return [shlex.quote(str(each)) for each in command] if isinstance(command, list) else []


def _results_grid(results: Results, shares: Shares, names: Any) -> Grid:  # noqa: ANN401
    rows = [(names(task), *rest) for task, *rest in result_rows(results, shares)]
    return plain_grid(("task", "metric", "held out", "baseline"), rows, 2)


# --- curves ---


def _curves(
    curves: Mapping[str, Curve],
    shares: Shares,
    names: Any,  # noqa: ANN401
) -> Iterator[Markup | None]:
    """Yield a chart for each task and kind of figure, then those of the whole run."""
    metrics = {name: curve for name, curve in curves.items() if name.startswith(("train/", "val/"))}
    tasks = sorted({name.split("/")[1] for name in metrics if name.count("/") > 1})
    for task in tasks:
        own = _renamed(metrics, task, len(tasks) == 1)
        for kind, title, label in _KINDS:
            lines = [
                Line(name, *curve, is_dashed=any(each in name for each in _BASELINES))
                for name, curve in own.items()
                if _kind(name, shares.get(task, ())) == kind
            ]
            lines = [line for line in lines if not line.is_dashed or kind in ("loss", "share")]
            yield line_chart(
                f"{names(task)}: {title}", lines, ("step", label), percent=kind in ("share", "type")
            )
    if not tasks and "train/loss" in metrics:
        yield line_chart("loss", [Line("train", *metrics["train/loss"])], ("step", "nats"))
    for key, title in _RUNNING:
        lines = [
            Line(name.removeprefix(key).strip("-/_") or title, *curve)
            for name, curve in sorted(curves.items())
            if name.startswith(key)
        ]
        yield line_chart(title, lines, ("step", title))


def _renamed(metrics: Mapping[str, Curve], task: str, is_alone: bool) -> dict[str, Curve]:
    """Return a task's curves by name: training, then held out, then baselines."""
    found = {}
    training = metrics.get(f"train/{task}/loss") or (
        metrics.get("train/loss") if is_alone else None
    )
    if training:
        found["training loss"] = training
    for name, curve in sorted(metrics.items(), key=lambda each: ("_" in each[0], each[0])):
        if name.startswith(f"val/{task}/"):
            # of two sets val/mnli/matched/loss -> held-out loss (matched)
            *sets, metric = name.split("/")[2:]
            if sets and sets[-1] == "f1":  # val/tagging/f1/PER
                metric = f"{_TYPE}{metric}"
                sets.pop()
            where = f" ({', '.join(sets)})" if sets else ""
            held_out = "held-out " if metric == "loss" else ""
            found[f"{held_out}{metric.replace('_', ' ')}{where}"] = curve
    return found


def _kind(name: str, shares: Sequence[str]) -> str | None:
    bare = re.sub(r" \(.*\)$", "", name)
    if bare.startswith(_TYPE):
        return "type"
    if bare.endswith("loss"):
        return "loss"
    if bare.endswith(("pearson", "spearman", "matthews")):
        return "correlation"
    if bare.endswith("perplexity"):
        return "perplexity"
    return "share" if is_among(bare.replace(" ", "_"), shares) else None


# --- samples ---


Parts = list[tuple[str, str, str]]  # "", "right" or "wrong"; text or truth; guess
Steps = list[tuple[str, list[tuple[str, Parts]]]]


def _samples(directory: Path, names: Any) -> list[tuple[str, str, Steps]]:  # noqa: ANN401
    """Return title, legend and the samples of a few steps, the newest first, by task."""
    found = []
    rows = read_samples(directory / SAMPLES)
    for task in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == task]
        steps = _spread(sorted({row["step"] for row in own}, reverse=True))
        is_text = any(_masked(row) is not None for row in own)
        legend = "What the model predicts for a few held-out samples, the newest step first. "
        legend += (
            "In place of each masked token: truth → guess." if is_text else "Truth → prediction."
        )
        shown: Steps = [
            (f"{step:,}", [(row["sample"], _parts(row)) for row in own if row["step"] == step])
            for step in steps
        ]
        found.append((f"Samples: {names(task)}", legend, shown))
    return found


def _parts(row: Mapping[str, Any]) -> Parts:
    masked = _masked(row)
    if masked is not None:
        return masked
    kind = "right" if row["truth"] == row["prediction"] else "wrong"
    return [("", f"{row['text']} ", ""), (kind, row["truth"], row["prediction"])]


def _masked(row: Mapping[str, Any]) -> Parts | None:
    """Return a language model's text, its words joined; None if it is none.

    ``[CLS] the schedul [MASK]`` with ``##er`` at 3 → ``the schedul``, then ``er`` → guess.
    """
    tokens, truth, guesses = (row[key].split(" ") for key in ("text", "truth", "prediction"))
    places = row.get("places")
    if not isinstance(places, list) or not len(places) == len(truth) == len(guesses):
        return None
    if not all(isinstance(place, int) and 0 <= place < len(tokens) for place in places):
        return None
    at = dict(zip(places, zip(truth, guesses, strict=True), strict=True))
    parts: Parts = []
    for place, token in enumerate(tokens):
        word, guess = at.get(place, (token, ""))
        if place not in at and token in _SPECIAL:
            parts.append(("", _SPECIAL[token] if place + 1 < len(tokens) else "", ""))
            continue
        joins = word.startswith("##")
        parts.append(("", "" if joins or place == 0 else " ", ""))
        if place not in at:
            parts.append(("", word.removeprefix("##"), ""))
        else:
            parts.append(("right" if word == guess else "wrong", word, guess))
    return parts


def _spread(steps: list[int]) -> list[int]:
    """Return at most a few of the steps, the first and the last of them among these."""
    if len(steps) <= _MOST_STEPS:
        return steps
    # of 10: 0, 3, 6, 9
    places = [round(n * (len(steps) - 1) / (_MOST_STEPS - 1)) for n in range(_MOST_STEPS)]
    return [steps[place] for place in places]


# --- the run ---


def _run_rows(
    manifest: Mapping[str, Any], found: Mapping[str, Any], curves: Mapping[str, Curve]
) -> list[tuple[str, str]]:
    speeds = curves.get("tokens_per_second", ([], []))[1]
    seconds = found.get("seconds")
    rows = [
        ("wall time", _duration(seconds) if isinstance(seconds, int | float) else None),
        ("tokens a second", f"{sum(speeds) / len(speeds):,.0f}" if speeds else None),
        ("device", manifest.get("device")),
        ("precision", manifest.get("precision")),
        ("started", manifest.get("started")),
        ("commit of the folder that it ran in", found.get("commit")),
        ("bertlab", _version(manifest)),
    ]
    return [(key, str(value)) for key, value in rows if value not in (None, "")]


def _version(manifest: Mapping[str, Any]) -> object:
    packages = manifest.get("packages")
    return packages.get("bertlab") if isinstance(packages, dict) else None


def _duration(seconds: float) -> str:
    """Return a time as people read it: 3,723 → 1 h 2 min."""
    if not 0 <= seconds < 1e9:
        return ""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {left} s"


def _facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the manifest says beside the data, one line a fact."""
    rows = []
    for key, value in manifest.items():
        if isinstance(value, dict):
            inner = {name: each for name, each in value.items() if not isinstance(each, dict)}
            rows += [(f"{key}: {name}", str(each)) for name, each in inner.items()]
        elif not isinstance(value, list):
            rows.append((key, str(value)))
        elif key == "sessions":
            rows.append((key, json.dumps(value)[:1_000]))
    return rows
