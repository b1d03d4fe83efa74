"""``bertlab study design``: designs of a study, what each shows and costs, and which is enough."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bertlab import CommandError, nearest
from bertlab.api import BertlabError
from bertlab_studies.design_costs import SeedCosts, seed_costs
from bertlab_studies.errors import StudyError
from bertlab_studies.execute.run_state import is_done
from bertlab_studies.report.collect import measures_of
from bertlab_studies.report.contrast_noise import POWER
from bertlab_studies.report.design import (
    Design,
    Deviations,
    Question,
    evaluate_design,
    limit_of_rows,
    pilot_deviations,
    rows_needed,
    seeds_needed,
)
from bertlab_studies.report.earlier_noise import (
    as_noise,
    earlier_noise,
    kinds_of,
    read_record,
)
from bertlab_studies.study_scores import Measure, StudyScores
from bertlab_studies.tables import Table

if TYPE_CHECKING:
    from bertlab_studies.study import Study

SEEDS = (3, 5, 10, 15, 20, 25)
FINETUNINGS = (1, 3, 5)
_ASK = "what it can show: bertlab study design"


@dataclass(frozen=True)
class GivenDeviations:
    """Deviations as a user gives them: in percentage points, of measures that are no shares as is.

    Attributes:
        deviation: over seeds of pre-training.
        finetune_deviation: over fine-tunings of one pre-training.
        row_deviation: over rows, of the difference of two variants.
        rows: of the test set; also of a pilot, where another number is planned.
        earlier: record of earlier studies, which tells the first.
    """

    deviation: float | None = None
    finetune_deviation: float | None = None
    row_deviation: float | None = None
    rows: int | None = None
    earlier: Path | None = None


def design_tables(
    study: "Study",
    pilot: "Study | None" = None,
    given: GivenDeviations | None = None,
    effect: float = 1.0,
    measure: str | None = None,
) -> list[Table]:
    """Return what designs of a study show and cost: a table for each measure of the pilot.

    Args:
        study: that is designed: its variants and the measures that decide.
        pilot: an earlier study, or the first seeds of this one.
        given: deviations, instead of a pilot.
        effect: the true difference that matters; in percentage points, where shares decide.
        measure: name of the only one that is looked at.

    Raises:
        CommandError: if a number is out of range, or measures of several units need one effect.
        StudyError: if the pilot does not tell the deviations of a measure.
    """
    given = given or GivenDeviations()
    _check(given, pilot is not None, effect)
    measures = measures_of(study.config, study.planned, study.study_dir)
    deciding = [each for each in measures if each.is_primary]
    if not deciding:
        raise StudyError("study design: no measure decides; expected evaluate, or decide")
    own = as_noise(study.analysis().get("earlier_noise", {}).get("measures", {}))
    if given.earlier is not None:
        noise = _of_record(given, study, _choose(deciding, measure))
    elif pilot is None:
        one = _choose(deciding, measure)[0]
        noise = [(measure or "all measures", one, _as_deviations(given, one))]
    else:
        found = pilot.scores(accept_mixture=True)
        chosen = _choose([each for each in found.measures if each.is_primary], measure)
        noise = [(each.name, each, _of_pilot(found, each, pilot, given.rows)) for each in chosen]
    variants, looks = len(study.config.variants), study.analysis()["looks"] or 1
    costs = seed_costs(study, pilot)
    return [
        _table(
            name,
            each,
            deviations,
            Question(
                effect / _scale(each),
                variants,
                (variants - 1) * len(deciding),
                looks,
                own[each.name].freedom if each.name in own else 0.0,
            ),
            costs,
            _repeats(study, each, deviations),
        )
        for name, each, deviations in noise
    ]


def shown_by_plan(study: "Study") -> str:
    """Return a line on what a study as it is planned can show, if its runs so far tell."""
    if not any(is_done(run.directory(study.study_dir)) for run in study.runs):
        return _ASK
    try:
        scores = study.scores(accept_mixture=True)
        told = "; ".join(_shown(study, scores))
    except BertlabError as error:  # a plan is a plan whatever its runs have left
        return f"what it can show is not known: {error}"
    return f"shown four times in five: {told}" if told else _ASK


def _shown(study: "Study", scores: StudyScores) -> Iterator[str]:
    deciding = [each for each in scores.measures if each.is_primary]
    variants, seeds = len(study.config.variants), len(study.config.seeds)
    for measure in deciding:
        deviations = pilot_deviations(scores, measure)
        if deviations is not None and seeds > 1:
            question = Question(0.0, variants, (variants - 1) * len(deciding), scores.looks)
            repeats = len(study.config.finetune_seeds or (1,))
            shows = evaluate_design(deviations, question, seeds, repeats).shows
            yield f"{measure.name} {_amount(shows, measure)} with {seeds} seeds"


def _check(given: GivenDeviations, has_pilot: bool, effect: float) -> None:
    """Raise CommandError if options do not go together, or a number is out of range."""
    deviations = {
        "deviation": given.deviation,
        "finetune_deviation": given.finetune_deviation,
        "row_deviation": given.row_deviation,
    }
    for name, value in {"effect": effect, **deviations}.items():
        if value is not None and not 0 < value < math.inf:
            raise CommandError(f"--{name}: found {value}, expected a number above 0")
    if given.rows is not None and given.rows < 2:
        raise CommandError(f"--rows: found {given.rows}, expected 2 or more")
    named = [f"--{name}" for name, value in deviations.items() if value is not None]
    _refuse_two_sources(given, has_pilot, named)
    if has_pilot:
        return
    if given.deviation is None and given.earlier is None:
        raise CommandError(
            "study design: found no deviations, expected --pilot DIR (a study that was run), "
            "--earlier FILE (a record of studies) or --deviation NUMBER"
        )
    if (given.row_deviation is None) != (given.rows is None):
        raise CommandError(
            "study design: found one of --row_deviation and --rows, expected both, or --pilot"
        )


def _refuse_two_sources(given: GivenDeviations, has_pilot: bool, named: Sequence[str]) -> None:
    """Raise CommandError if two options tell the same deviation."""
    record = given.earlier is not None
    source = "--pilot" if has_pilot else "--earlier"
    others = [*(["--earlier"] if has_pilot and record else ()), *named]
    if record and not has_pilot:
        others = [each for each in named if each != "--row_deviation"]
    if (has_pilot or record) and others:
        raise CommandError(f"study design: found {source} and {others[0]}, expected one of them")


def _choose(measures: Sequence[Measure], name: str | None) -> list[Measure]:
    """Return the measures that are looked at, all of one unit."""
    names = [each.name for each in measures]
    if name is not None and name not in names:
        raise CommandError(
            f"--measure: found {name!r}{nearest(name, names)} (there are: {', '.join(names)})"
        )
    chosen = [each for each in measures if name in (None, each.name)]
    if len({each.is_share for each in chosen}) > 1:
        raise CommandError(
            "study design: shares and other measures decide, and --effect is of one unit; expected "
            f"--measure with one of: {', '.join(names)}"
        )
    return chosen


def _as_deviations(given: GivenDeviations, measure: Measure) -> Deviations:
    scale = _scale(measure)
    over_seeds, repeats, row = (
        None if value is None else value / scale
        for value in (given.deviation, given.finetune_deviation, given.row_deviation)
    )
    assert over_seeds is not None, "_check() refuses what has none"
    return Deviations(over_seeds, repeats, row, given.rows)


def _of_record(
    given: GivenDeviations, study: "Study", measures: Sequence[Measure]
) -> list[tuple[str, Measure, Deviations]]:
    """Return the deviations over seeds of earlier studies of the same kind."""
    assert given.earlier is not None, "the caller asks"
    if study.config.finetune_seeds is not None:
        raise StudyError("study design: --earlier knows no nested seeds; expected --pilot")
    entries = read_record(given.earlier)
    found = as_noise(earlier_noise(entries, study.config, study.planned, measures))
    missing = [each.name for each in measures if each.name not in found]
    if missing:
        kind = kinds_of(study.config, study.planned, measures)[missing[0]]
        asked = "; ".join(kind.values()) if kind else "variants are of several kinds"
        raise StudyError(
            f"{given.earlier}: {missing[0]}: no earlier study of this kind ({asked}); expected "
            "--pilot or --deviation"
        )
    return [
        (
            each.name,
            each,
            Deviations(
                found[each.name].variance ** 0.5,
                row=None if given.row_deviation is None else given.row_deviation / _scale(each),
                rows=given.rows,
                freedom=(round(found[each.name].freedom), 0),
            ),
        )
        for each in measures
    ]


def _of_pilot(found: StudyScores, measure: Measure, pilot: "Study", rows: int | None) -> Deviations:
    deviations = pilot_deviations(found, measure)
    if deviations is None:
        raise StudyError(
            f"{pilot.study_dir}: {measure.name}: no variant has two seeds with different values; "
            "expected a pilot with two seeds or more, or --deviation"
        )
    return deviations if rows is None else deviations.with_rows(rows)


def _repeats(study: "Study", measure: Measure, deviations: Deviations) -> tuple[int, ...]:
    """Return the numbers of fine-tunings that make a difference to a measure."""
    untrained = [each.name for each in study.config.evaluations if each.zero_shot is not None]
    trains = len(study.config.evaluations) > len(untrained) and measure.task not in untrained
    return FINETUNINGS if trains and deviations.finetuning is not None else FINETUNINGS[:1]


def _table(
    name: str,
    measure: Measure,
    deviations: Deviations,
    question: Question,
    costs: SeedCosts,
    repeats: tuple[int, ...],
) -> Table:
    designs = [
        evaluate_design(deviations, question, seeds, each) for seeds in SEEDS for each in repeats
    ]
    nested = len(repeats) > 1
    # two figures of the smallest: 3.16, 1.8, 0.74 points -> 2 decimals
    smallest = _scale(measure) * min(each.shows for each in designs)
    digits = max(0, 1 - math.floor(math.log10(smallest)))
    rows = []
    for each in designs:
        runs, cost = costs.of(each.seeds, each.finetunings)
        at_least = "" if costs.are_known else "≥ "
        rows.append(
            (
                str(each.seeds),
                *((str(each.finetunings),) if nested else ()),
                f"{_scale(measure) * each.shows:.{digits}f}",
                f"{100 * each.power:.0f} %",
                str(runs),
                *(f"{at_least}{one:.2e}" if one else "0" for one in (cost.tokens, cost.flops)),
            )
        )
    asked = _amount(question.effect, measure)
    headings = (
        "seeds",
        *(("fine-tunings",) if nested else ()),
        f"shows{_unit(measure)}",
        f"power for {asked}",
        "runs",
        "tokens",
        "FLOPs",
    )
    note = "\n".join(
        (
            _conclusion(designs, deviations, question, costs, measure),
            _basis(deviations, question, measure, nested, costs),
        )
    )
    return Table(name, headings, tuple(rows), figures=len(headings), note=note)


def _conclusion(
    designs: Sequence[Design],
    deviations: Deviations,
    question: Question,
    costs: SeedCosts,
    measure: Measure,
) -> str:
    """Return the cheapest design that shows the effect, or why none does."""
    asked = _amount(question.effect, measure)
    enough = [each for each in designs if each.power >= POWER]
    if enough:
        best = min(enough, key=lambda each: _price(each, costs))
        repeats = "" if best.finetunings == 1 else f", {best.finetunings} fine-tunings of each"
        return (
            f"The cheapest of these designs that shows {asked} four times in five: {best.seeds} "
            f"seeds{repeats}, {costs.of(best.seeds, best.finetunings)[0]} runs."
        )
    most = max(designs, key=lambda each: each.power)
    limit = limit_of_rows(deviations, question)
    if limit >= question.effect:
        wanted = rows_needed(deviations, question, most.seeds, most.finetunings)
        more = "" if wanted is None else deviations.with_rows(wanted).counted_rows
        rest = f"; with {most.seeds} seeds about {more} would" if wanted else ""
        return (
            f"None of these designs shows {asked} four times in five: {deviations.counted_rows} "
            f"alone cannot show less than {_amount(limit, measure)}, and more "
            f"seeds do not help{rest}."
        )
    wanted = seeds_needed(deviations, question, most.finetunings)
    repeats = "" if most.finetunings == 1 else f", {most.finetunings} fine-tunings of each,"
    rest = f"; about {wanted} seeds{repeats} would" if wanted else ""
    return (
        f"None of these designs shows {asked} four times in five: with {most.seeds} seeds the "
        f"power is {100 * most.power:.0f} %{rest}."
    )


def _basis(
    deviations: Deviations, question: Question, measure: Measure, nested: bool, costs: SeedCosts
) -> str:
    """Return what the figures rest on."""
    seeds, repeats = deviations.freedom or (None, None)
    looks = f", over {question.looks} looks" * (question.looks > 1)
    parts = [f"{_amount(deviations.pretraining, measure)} over seeds{_freedom(seeds)}"]
    if deviations.finetuning is not None:
        parts.append(
            f"{_amount(deviations.finetuning, measure)} over fine-tunings{_freedom(repeats)}"
        )
    if deviations.row is not None:
        parts.append(f"{_amount(deviations.row, measure)} over {deviations.counted_rows}")
    holm = f", after Holm over {question.comparisons} comparisons" * (question.comparisons > 1)
    lines = [f"Deviations: {', '.join(parts)}. Test: 5 %{holm}{looks}, not paired."]
    if question.earlier:
        lines.append(
            f"Earlier studies, {question.earlier:g} degrees of freedom, count as one more variant "
            "does, as noisy as this study."
        )
    if deviations.row is None:
        lines.append("Rows are left out: their part is not known.")
    if not nested and costs.each[0] and deviations.finetuning is None:
        lines.append("A pilot with nested seeds tells what more fine-tunings bring.")
    if not costs.are_known:
        lines.append("≥: the cost of a fine-tuning is known when one was run.")
    return " ".join(lines)


def _price(design: Design, costs: SeedCosts) -> tuple[float, int]:
    runs, cost = costs.of(design.seeds, design.finetunings)
    return cost.flops, runs


def _freedom(known: int | None) -> str:
    return "" if known is None else f" ({known} degrees of freedom)"


def _scale(measure: Measure) -> int:
    return 100 if measure.is_share else 1


def _unit(measure: Measure) -> str:
    return " points" if measure.is_share else ""


def _amount(value: float, measure: Measure) -> str:
    """Return ``0.8 points``, or a number alone where the measure is no share."""
    number = f"{_scale(measure) * value:.3g}"
    return number + ("" if not measure.is_share else " point" if number == "1" else " points")
