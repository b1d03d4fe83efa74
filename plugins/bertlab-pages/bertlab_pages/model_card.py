"""The model card of an export: what a reader has to know before the model is used.

It is made of the run's manifest and results. These may come from anywhere, as names of runs and
labels may: each value is plain text in the card, cut to a length, whatever markup it holds.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from bertlab import Pretrained
from bertlab.api import ExportReport, ModelAddress
from bertlab.extend import (
    BEST_CHECKPOINT,
    CONFIG_FILE,
    MANIFEST_FILE,
    Results,
    as_mistakes,
    printable,
    read_config,
    read_object,
    read_results,
    read_shares,
    result_rows,
    visible,
    without_secrets,
    write_text,
)
from bertlab_pages.card_head import (
    USES,
    card_head,
    is_on_hub,
    own_results,
    pipeline_code,
    pipeline_of,
)
from bertlab_pages.escaping import markdown_templates

CARD = "README.md"
_LONGEST = 200  # characters of a value
_LARGEST = 1e30  # number
_MOST_NAMES = 20
_MOST_ROWS = 100  # of a table
_TEMPLATES = "bertlab_pages"
_SOURCE = re.compile(r"[a-z-]{2,}:")  # hf:nyu-mll/glue/mrpc
Pairs = list[tuple[str, str]]


@dataclass
class ModelCard:
    """The content of a card; see the template ``model_card.md``.

    Attributes:
        name: of the model.
        summary: one sentence.
        source: where the weights were read.
        head: lines of YAML for the hub.
        use: what it is for; empty if that is not known.
        model: what it is, as keys and values.
        ways: libraries that load it, with lines of Python.
        training: how it was trained; empty if bertlab did not train it.
        data: name, amount and hash of each text or split.
        scores: task, measure, score and baseline.
        step: optimiser step of the weights.
        seed: of the run.
        limits: sentences.
    """

    name: str
    summary: str
    source: str
    head: Markup
    use: str
    model: Pairs
    ways: list[tuple[str, Markup]]
    training: Pairs = field(default_factory=list)
    data: list[tuple[str, str, str]] = field(default_factory=list)
    scores: list[tuple[str, str, str, str]] = field(default_factory=list)
    step: int = 0
    seed: str = "not recorded"
    limits: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return the card as GitHub's Markdown, each value escaped."""
        template = markdown_templates(_TEMPLATES).get_template("model_card.md")
        return template.render(card=self).rstrip("\n") + "\n"


def write_card(
    folder: Path,
    start: Pretrained,
    report: ExportReport,
    loading_code: list[tuple[str, str]],
    address: ModelAddress,
) -> None:
    """Write ``README.md``; arguments and errors as those of :func:`model_card`."""
    with as_mistakes():
        card = model_card(start, report, loading_code, address)
    write_text(folder / CARD, without_secrets(card.text()))


def model_card(
    start: Pretrained,
    report: ExportReport,
    loading_code: list[tuple[str, str]],
    address: ModelAddress,
) -> ModelCard:
    """Return the card of what was exported.

    Args:
        start: the source; of a run's checkpoint, the manifest and the results beside it are read.
        report: of the export.
        loading_code: libraries, and lines of Python by which they load it.
        address: by which it is loaded.

    Raises:
        DamagedRecordError: the run's manifest or results are damaged.
    """
    what = _shown(report.description)
    tag = report.pipeline or pipeline_of(report.architecture)
    card = ModelCard(
        name=_shown(address.name),
        summary=f"{what}, written by bertlab from {_last_part(start.source)}.",
        source=_last_part(start.source),
        head=Markup(),
        use=USES.get(tag or "", ""),
        model=_model_rows(start),
        limits=[f"{each[0].upper()}{each[1:]}." for each in map(_shown, report.notes) if each],
        ways=[(_shown(library), _code(code)) for library, code in loading_code],
    )
    mask = start.tokenizer.special.mask if start.tokenizer is not None else None
    if code := pipeline_code(tag, report.form, address.arguments, mask or "[MASK]"):
        card.ways.insert(0, ("a pipeline", _code(code)))
    results: Results = {}
    run = None if start.path is None else start.path.parent.parent
    if start.path is not None and run is not None and (run / MANIFEST_FILE).is_file():
        manifest = read_object(run / MANIFEST_FILE)
        card.summary = f"{what}, written by bertlab from its run {_shown(run.name)}."
        card.seed = _shown(manifest.get("seed", card.seed))
        card.training = _training_rows(start, manifest)
        card.data = _data_rows(start, manifest)
        found, card.step = _scores_of(run, start.path, start.global_step)
        head = None if start.head_config is None else str(start.head_config["name"])
        objectives = {} if start.config is None else start.config["model"].get("objectives") or {}
        results = own_results(found, report.architecture, head, _heads_of(run), objectives)
        card.scores = [
            (_shown(task), _shown(measure), value, baseline)
            for task, measure, value, baseline in result_rows(results, read_shares(run))[
                :_MOST_ROWS
            ]
        ]
    card.head = card_head(
        card.name, _shown(report.form), tag, _base_model(start), *_hub_data(start), results
    )
    card.limits += _limits(start, bool(card.scores))
    return card


def _heads_of(run: Path) -> Mapping[str, Any]:
    """Return the heads of a run that has several, by name; the exported one has lost it."""
    config = read_config(run / CONFIG_FILE) if (run / CONFIG_FILE).is_file() else {}
    model = config.get("model")
    heads = model.get("heads") if isinstance(model, dict) else None
    return heads if isinstance(heads, dict) else {}


def _base_model(start: Pretrained) -> str | None:
    """Return the model of the hub that training began from, or that was exported as it is."""
    given = start.source if start.config is None else start.config["model"].get("init_from")
    return str(given) if isinstance(given, str) and is_on_hub(given) else None


def _hub_data(start: Pretrained) -> tuple[list[str], str | None]:
    """Return the data sets of the hub in a run's config, and what all of its data is called."""
    data = {} if start.config is None else start.config["data"]
    places = [data.get(key) for key in ("source", "train", "corpus")]
    texts = [text for place in places for text in _texts_of(place)]
    # hf:nyu-mll/glue/mrpc -> nyu-mll/glue
    named = [text.removeprefix("hf:").split("/") for text in texts if text.startswith("hf:")]
    sets = ["/".join(parts[:2]) for parts in named]
    datasets = [_shown(each) for each in dict.fromkeys(sets) if is_on_hub(each)]
    place = next((place for place in places if place), None)
    return datasets, None if place is None else _last_part(place)


def _texts_of(place: object) -> list[str]:
    several = place.values() if isinstance(place, dict) else place
    return [place] if isinstance(place, str) else [str(each) for each in several or ()]  # type: ignore[attr-defined]


def _shown(value: object) -> str:
    text = printable(" ".join(str(value).split()))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _code(code: str) -> Markup:
    # exporters write names as ASCII on one line; no other line may end the block either
    lines = [line for line in visible(code).splitlines() if not line.lstrip().startswith("```")]
    return Markup("\n".join(lines))  # noqa: S704


def _last_part(place: object) -> str:
    """Return what a place is called, without the folders above it: they are nobody's business.

    ``/home/me/rows/train.csv`` becomes ``train.csv``; names of the hub stay whole.
    """
    match place:
        case {"source": str(name)}:  # a source with settings
            return _last_part(name)
        case {**named}:  # several texts, by name
            return _shown(", ".join(map(str, named)))
        case [*several]:
            return _shown(", ".join(map(_last_part, several)))
    text = str(place)
    is_name = _SOURCE.match(text) or is_on_hub(text)
    return _shown(text if is_name else Path(text).name)


def _model_rows(start: Pretrained) -> Pairs:
    encoder = start.encoder_config
    rows = [
        ("encoder", _shown(encoder["name"])),
        ("parameters", f"{sum(each.numel() for each in start.state.values()):,}"),
        ("vocabulary", f"{start.vocab_size:,} tokens"),
    ]
    if start.tokenizer is not None:
        rows.append(("lower-cases text", "yes" if start.tokenizer.lowercase else "no"))
    if start.labels is not None:
        names = start.labels.names[:_MOST_NAMES]
        more = len(start.labels) - len(names)
        rows.append(("classes", _shown(", ".join(names)) + (f" and {more} more" if more else "")))
    if start.trained_max_length is not None:
        rows.append(("longest sequence in training", f"{start.trained_max_length:,} tokens"))
    return rows


def _training_rows(start: Pretrained, manifest: Mapping[str, Any]) -> Pairs:
    assert start.config is not None
    packages = manifest.get("packages")
    versions = packages if isinstance(packages, dict) else {}
    rows = [
        ("tasks", ", ".join(start.task_states) or "none"),
        ("started from", _last_part(start.config["model"].get("init_from") or "new weights")),
        ("optimiser steps", f"{start.global_step:,}"),
        ("seed", manifest.get("seed")),
        ("tokens that the whole run reads", _rounded(manifest.get("training_tokens"))),
        ("precision", manifest.get("precision")),
        ("device", manifest.get("device")),
        ("started", manifest.get("started")),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("tokenizer, SHA-256", manifest.get("tokenizer")),
    ]
    return [(key, _shown(value)) for key, value in rows if value not in (None, "")]


def _rounded(number: object) -> str | None:
    is_number = isinstance(number, int | float) and abs(number) < _LARGEST
    return f"{number:,.0f}" if is_number else None


def _data_rows(start: Pretrained, manifest: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return name, amount and hash of the corpus, or of each split of labelled rows."""
    assert start.config is not None
    settings, found = start.config["data"], manifest.get("data")
    parts = found if isinstance(found, dict) else {}
    if "corpus" in manifest and "corpus" in settings:  # beside heads, objectives have their own
        report = parts.get("StoreReport")
        counts = report if isinstance(report, dict) else {}
        amounts = [
            f"{_rounded(counts.get(key))} {key}"
            for key in ("documents", "words", "tokens")
            if _rounded(counts.get(key))
        ]
        name = _last_part(settings.get("corpus"))
        return [(name, ", ".join(amounts), _shown(manifest["corpus"]))]
    rows = []
    for split, each in parts.items():
        if isinstance(each, dict):
            place = settings.get(split) or settings.get("source") or settings.get("train")
            # those of several heads, mrpc/train, each have a place of their own
            of = _last_part(place) if isinstance(place, str) and "/" not in str(split) else ""
            named = f"{split}, of {of}" if of else str(split)
            rows.append(
                (_shown(named), f"{each.get('rows')} rows", _shown(each.get("fingerprint")))
            )
    return rows


def _scores_of(run: Path, checkpoint: Path, step: int) -> tuple[Results, int]:
    """Return the held-out scores of a run's checkpoint and their step; empty if there are none."""
    if (run / BEST_CHECKPOINT).is_file():
        best = read_object(run / BEST_CHECKPOINT)
        if best.get("checkpoint") == checkpoint.name:
            return read_results(run, best=True), step
    return (read_results(run) if checkpoint.name == "last.ckpt" else {}), step


def _limits(start: Pretrained, has_scores: bool) -> list[str]:
    lines = []
    if has_scores:
        lines += [
            "The scores are of one run. Runs with other seeds have other scores; on small data "
            "they differ by points.",
            "The scores are of held-out parts of the data above. Other texts may give other ones.",
        ]
    if start.trained_max_length is not None:
        lines.append(
            f"Training had no sequence of over {start.trained_max_length:,} tokens. What the model "
            "does with longer ones was not measured."
        )
    lines.append(
        "The model may repeat what its training texts say of people, rightly or not. It was not "
        "examined for that."
    )
    return lines
