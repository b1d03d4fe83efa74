"""A study as `collect` could find it, without training anything."""

import numpy as np

from bertlab_studies.study_scores import (
    Cell,
    Curve,
    GroupCurves,
    GroupScores,
    Measure,
    StudyScores,
    VariantScores,
)

MEASURES = [
    Measure("qnli", "accuracy"),
    Measure("mrpc", "f1"),
    Measure("mlm", "loss", higher_is_better=False, is_share=False),
]
EFFECTS = {"mlm+nsp": (0.0, 0.0, 0.0), "mlm": (-0.031, 0.004, -0.012), "ltr": (-0.08, -0.05, 0.4)}
CENTERS = (0.842, 0.876, 2.31)
SPREADS = (0.006, 0.011, 0.02)


def made_up_study(
    seeds: int = 5, names: tuple[str, ...] = tuple(EFFECTS), name: str = "nsp"
) -> StudyScores:
    """Return a study whose first variant is the baseline; effects are those of `EFFECTS`."""
    rng = np.random.default_rng(7)
    shared = rng.normal(size=(seeds, 3))  # what a seed does to all variants
    study = StudyScores(
        name=name,
        baseline=names[0],
        seeds=list(range(1, seeds + 1)),
        measures=list(MEASURES),
        variants={},
        manifest={
            "command": "bertlab study run configs/studies/nsp.yaml",
            "versions": {"bertlab": "0.1.0", "torch": "2.13.0"},
            "machine": "2 cores",
        },
    )
    for number, (variant, effects) in enumerate(zip(names, EFFECTS.values(), strict=False)):
        noise = 0.6 * shared + 0.8 * rng.normal(size=(seeds, 3))
        values = np.array(CENTERS) + np.array(effects) + noise * np.array(SPREADS)
        study.variants[variant] = VariantScores(
            cells={
                measure.name: Cell(
                    dict(zip(study.seeds, map(float, values[:, column]), strict=True))
                )
                for column, measure in enumerate(MEASURES)
            },
            settings={
                "model.objectives": ["mlm"] if number == 1 else ["mlm", "nsp"],
                "model.encoder.causal": number == 2,
            },
            tokens=4.1e8,
            flops=3.1e16 * (1 + 0.4 * number),
            seconds={seed: 812.0 + seed for seed in study.seeds},
            curves=_curves(rng, study.seeds, 0.03 * number),
        )
    return study


def _curves(
    rng: np.random.Generator, seeds: list[int], worse: float
) -> dict[str, dict[int, Curve]]:
    steps = list(range(500, 10_001, 500))
    rise = 1 - np.exp(-np.array(steps) / 2500)
    curves: dict[str, dict[int, Curve]] = {"mlm accuracy": {}, "mlm loss": {}}
    for seed in seeds:
        accuracy = (0.48 - worse) * rise + rng.normal(0, 0.004, len(steps))
        loss = 9.5 - (7 - 8 * worse) * rise + rng.normal(0, 0.05, len(steps))
        curves["mlm accuracy"][seed] = Curve(steps, accuracy.tolist())
        curves["mlm loss"][seed] = Curve(steps, loss.tolist())
    return curves


PHENOMENA = ("anaphor_agreement", "binding", "island_effects", "npi_licensing")
_PAIRS = [200, 700, 800, 700]


def add_groups(study: StudyScores, groups: tuple[str, ...] = PHENOMENA) -> StudyScores:
    """Give a study a zero-shot evaluation by phenomenon, at its end and against words seen."""
    rng = np.random.default_rng(3)
    measure = Measure("blimp", "accuracy")
    words = [1_000_000 * each for each in (1, 2, 5, 10, 20, 50, 100)]
    rows = (_PAIRS * len(groups))[: len(groups)]
    found = GroupScores(measure, "phenomenon", list(groups), rows, {})
    curves = GroupCurves(measure, 0.5, {"all": {"": {}}, "phenomenon": {}})
    for number, variant in enumerate(study.variants):
        ends = 0.55 + 0.3 * rng.random(len(groups)) - 0.02 * number
        for seed in study.seeds:
            end = ends + rng.normal(0, 0.01, len(groups))
            found.means.setdefault(variant, {})[seed] = end
            for group, top in zip((None, *groups), (end.mean(), *end), strict=True):
                kind = "all" if group is None else "phenomenon"
                values = [0.5 + (top - 0.5) * np.log10(each / 1e6) / 2 for each in words]
                by_variant = curves.curves[kind].setdefault(group or "", {})
                by_variant.setdefault(variant, {})[seed] = Curve(words, values)
    study.groups.append(found)
    study.group_curves.append(curves)
    return study


def add_repeats(study: StudyScores, finetunings: int = 4, noise: float = 1.5) -> StudyScores:
    """Make the seeds of the primary measures nested; noise in units of that of pre-trainings."""
    rng = np.random.default_rng(11)
    study.finetune_seeds = list(range(1, finetunings + 1))
    for found in study.variants.values():
        for measure, spread in zip(study.measures, SPREADS, strict=True):
            cell = found.cells[measure.name]
            for seed, value in cell.values.items():
                drawn = value + noise * spread * rng.normal(size=finetunings)
                by_seed = dict(zip(study.finetune_seeds, map(float, drawn), strict=True))
                cell.repeats[seed] = by_seed
                cell.values[seed] = float(drawn.mean())
    return study
