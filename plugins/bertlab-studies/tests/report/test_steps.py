"""What each step of a ladder adds: pairs of variants, corrected together."""

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from bertlab_studies.report.render import html, latex, markdown
from bertlab_studies.report.report import report_of
from bertlab_studies.report.statistics import compare_pair
from bertlab_studies.report.steps import steps_of
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores

LOSS = Measure("mlm", "loss", is_share=False, higher_is_better=False)
MEANS = {"bert": 4.6, "muon": 4.4, "rotary": 4.0, "rms": 4.01, "alone": 4.3}
BUILDS_ON = {"muon": "bert", "rotary": "muon", "rms": "rotary"}


@pytest.fixture
def ladder() -> StudyScores:
    noise = np.random.default_rng(1).normal(0, 0.05, (len(MEANS), 5))
    variants = {
        name: VariantScores(
            cells={LOSS.name: Cell(dict(enumerate((mean + row).tolist())))},
            builds_on=BUILDS_ON.get(name),
        )
        for (name, mean), row in zip(MEANS.items(), noise, strict=True)
    }
    return StudyScores("s", "bert", list(range(5)), [LOSS], variants)


@pytest.mark.slow
def test_a_step_is_the_pair_of_its_variants_corrected_over_all_steps(ladder):
    steps = steps_of(ladder)
    assert [(each.variant, each.builds_on) for each in steps] == list(BUILDS_ON.items())
    pairs = [compare_pair(ladder, each.builds_on, each.variant)[LOSS.name] for each in steps]
    adjusted = multipletests([pair.p for pair in pairs], method="holm")[1]
    for step, pair, p in zip(steps, pairs, adjusted, strict=True):
        found = step.comparisons[LOSS.name]
        means = [
            np.mean(list(ladder.variants[name].cells[LOSS.name].values.values()))
            for name in (step.builds_on, step.variant)
        ]
        assert found.difference == pytest.approx(means[1] - means[0])
        assert (found.low, found.high) == pytest.approx((pair.low, pair.high))
        assert found.p_adjusted == pytest.approx(p)
    shown = [each.comparisons[LOSS.name].significant for each in steps]
    assert shown == [True, True, False]


def test_the_report_has_a_table_of_steps_in_each_form(ladder):
    report = report_of(ladder)
    for text in (markdown(report), html(report), latex(report)):
        assert "What each step adds" in text
    (table,) = [each for each in report.tables_of(ladder) if each.title == "What each step adds"]
    assert [row[:2] for row in table.grid.rows] == list(BUILDS_ON.items())
    for variant in ladder.variants.values():
        variant.builds_on = None
    assert "What each step adds" not in markdown(report_of(ladder))


def test_planned_looks_count_in_the_table_of_steps(ladder):
    alone = {each.variant: each.comparisons[LOSS.name] for each in steps_of(ladder)}
    ladder.looks = 4
    for step in steps_of(ladder):
        one, found = alone[step.variant], step.comparisons[LOSS.name]
        assert found.p == one.p
        assert found.p_adjusted == pytest.approx(min(1.0, 4 * one.p_adjusted))
        assert found.family == 4 * one.family
        assert found.detectable > one.detectable
