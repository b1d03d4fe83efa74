"""Whether a control explains an effect away."""

from dataclasses import replace

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from bertlab_studies.report.controls import compare_controls, control_findings
from bertlab_studies.report.report import report_of
from bertlab_studies.report.statistics import compare_pair, compare_study
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores

GLUE, LOSS = Measure("glue", "accuracy"), Measure("mlm", "loss", False, False)


def study(wide: float, control: float, noise: float = 0.004, seed: int = 2) -> StudyScores:
    rng = np.random.default_rng(seed)
    means = {"bert": 0.8, "wide": wide, "more steps": control}
    return StudyScores(
        "s",
        "bert",
        list(range(6)),
        [GLUE, LOSS],
        {
            name: VariantScores(
                {
                    each.name: Cell(dict(enumerate(rng.normal(mean, noise, 6).tolist())))
                    for each in (GLUE, LOSS)
                },
                control_of="wide" if name == "more steps" else None,
            )
            for name, mean in means.items()
        },
    )


@pytest.mark.slow
def test_a_control_is_the_pair_corrected_over_all_controls_and_measures() -> None:
    scores = study(0.85, 0.83)
    pair = compare_pair(scores, "more steps", "wide")
    found = compare_controls(scores)
    adjusted = multipletests([each.p for each in pair.values()], method="holm")[1]
    for name, p in zip(pair, adjusted, strict=True):
        own = found["more steps", name]
        assert own.difference == pytest.approx(pair[name].difference)
        assert own.p_adjusted == pytest.approx(p)


@pytest.mark.parametrize(
    ("wide", "control", "said"),
    [
        (0.85, 0.80, "it is not explained away"),
        (0.85, 0.85, "the control explains the effect away, as it shows one too"),
        (0.85, 0.90, "the control explains the effect away, as more steps has a larger one"),
        (0.80, 0.85, "wide shows no effect that could be explained"),
    ],
)
def test_the_report_says_whether_it_explains_the_effect(
    wide: float, control: float, said: str
) -> None:
    scores = study(wide, control)
    lines = list(control_findings(scores, compare_study(scores, draws=0)))
    assert len(lines) == 2
    assert all(said in line for line in lines)
    assert all(line in report_of(scores).findings for line in lines)


def test_noise_leaves_it_open() -> None:
    scores = study(0.84, 0.82, noise=0.02, seed=2)
    scores.measures = [GLUE]
    (line,) = control_findings(scores, compare_study(scores, draws=0))
    assert "it is open whether" in line


def test_planned_looks_count_in_what_is_said_of_controls() -> None:
    scores = study(0.85, 0.83)
    alone = compare_controls(scores)
    scores.looks = 2
    for key, found in compare_controls(scores).items():
        assert alone[key].p_adjusted is not None
        assert found.p_adjusted == pytest.approx(min(1.0, 2 * (alone[key].p_adjusted or 0)))


def alike(controls: int, margin: float = 0.02) -> StudyScores:
    """Return a study of a variant and controls that reach about what it does."""
    scores = study(0.85, 0.8505, noise=0.006)
    scores.measures = [replace(GLUE, margin=margin)]
    first = scores.variants["more steps"]
    values = np.array(list(first.cells[GLUE.name].values.values()))
    for number in range(1, controls):
        moved = Cell(dict(enumerate((values + 0.002 * number).tolist())))
        scores.variants[f"control {number}"] = replace(first, cells={GLUE.name: moved})
    return scores


def test_what_is_as_good_as_a_control_names_it() -> None:
    scores = alike(controls=1)
    (line,) = control_findings(scores, compare_study(scores, draws=0))
    assert "wide − more steps: as good as more steps, within 2.0 points" in line
    assert "as good as the baseline" not in line


def test_equivalences_of_several_controls_are_corrected_over_all_of_them() -> None:
    scores = alike(controls=3)
    found = compare_controls(scores)
    names = ["more steps", "control 1", "control 2"]
    assert [control for control, _ in found] == names
    one_by_one = []
    for name in names:
        one = alike(controls=3)
        for other in set(names) - {name}:
            one.variants[other].control_of = None
        one_by_one.append(compare_controls(one)[name, GLUE.name].p_equivalent)
    adjusted = multipletests(one_by_one, method="holm")[1]
    for each, p, alone in zip(found.values(), adjusted, one_by_one, strict=True):
        assert each.p_equivalent == pytest.approx(p)
        assert alone is not None
    assert found[names[0], GLUE.name].p_equivalent > one_by_one[0]
    scores.looks = 2
    for each, p in zip(compare_controls(scores).values(), adjusted, strict=True):
        assert each.p_equivalent == pytest.approx(min(1.0, 2 * p))
