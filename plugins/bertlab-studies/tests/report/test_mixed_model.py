"""Differences, standard errors and variance shares against statsmodels' mixed models (REML).

Of balanced data with estimates above 0 they are those of an analysis of variance, which ours are.
"""

import numpy as np
import pandas as pd
import pytest
from statsmodels.regression.mixed_linear_model import MixedLM

from bertlab_studies.report.comparison import Comparison
from bertlab_studies.report.statistics import compare_study
from bertlab_studies.report.variance_shares import variance_shares
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores

MEASURE = Measure("task", "accuracy")


def of_variants(cells: list[Cell]) -> Comparison:
    """Return the comparison of the second with the first, in a study of two."""
    variants = {str(v): VariantScores({MEASURE.name: cell}) for v, cell in enumerate(cells)}
    study = StudyScores("s", "0", sorted(cells[0].values), [MEASURE], variants)
    return compare_study(study, draws=0)["1", MEASURE.name]


def of_rows(scores: np.ndarray) -> Comparison:
    """Return the comparison of ``(2, seeds, rows)`` scores."""
    return of_variants(
        [
            Cell(dict(enumerate(each.mean(1).tolist())), examples=dict(enumerate(each)))
            for each in scores
        ]
    )


def frame(values: np.ndarray, *names: str) -> pd.DataFrame:
    """Return a line for each value, with its place on each axis."""
    places = {name: at.ravel() for name, at in zip(names, np.indices(values.shape), strict=True)}
    return pd.DataFrame({"y": values.ravel(), "all": 0} | places)


def normal(rng: np.random.Generator, deviation: float, *shape: int) -> np.ndarray:
    return rng.normal(0, deviation, shape)


@pytest.mark.parametrize("seed", range(3))
def test_crossed_seeds_and_rows(seed: int):
    rng = np.random.default_rng(seed)
    scores = normal(rng, 2, 2, 5, 1) + normal(rng, 3, 20) + normal(rng, 3, 2, 1, 20)
    scores += normal(rng, 2, 2, 5, 20)
    crossed = {"seed": "0 + C(v):C(s)", "row": "0 + C(r)", "taste": "0 + C(v):C(r)"}
    data = frame(scores, "v", "s", "r")
    model = MixedLM.from_formula("y ~ C(v)", data, groups="all", vc_formula=crossed)
    fitted, found = model.fit(reml=True), of_rows(scores)
    assert fitted.vcomp.min() > 0.01
    assert not found.paired
    assert found.difference == pytest.approx(fitted.params["C(v)[T.1]"])
    assert found.error == pytest.approx(fitted.bse["C(v)[T.1]"], rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_crossed_seeds_and_rows_of_paired_variants(seed: int):
    rng = np.random.default_rng(seed)
    scores = normal(rng, 20, 6, 1) + normal(rng, 2, 2, 6, 1) + normal(rng, 3, 2, 1, 20)
    scores += normal(rng, 2, 2, 6, 20)
    crossed = {"seed": "0 + C(s)", "row": "0 + C(r)"}
    differences = frame(scores[1] - scores[0], "s", "r")
    model = MixedLM.from_formula("y ~ 1", differences, groups="all", vc_formula=crossed)
    fitted, found = model.fit(reml=True), of_rows(scores)
    assert fitted.vcomp.min() > 0.01
    assert found.paired
    assert found.difference == pytest.approx(fitted.params["Intercept"])
    assert found.error == pytest.approx(fitted.bse["Intercept"], rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_nested_seeds(seed: int):
    rng = np.random.default_rng(seed)
    values = normal(rng, 2, 2, 5, 1) + normal(rng, 1, 2, 5, 4)  # of each fine-tuning
    data = frame(values, "v", "p", "f")
    data["p"] += 5 * data["v"]  # pre-trainings are a variant's own
    fitted = MixedLM.from_formula("y ~ C(v)", data, groups="p").fit(reml=True)
    cells = [
        Cell(
            dict(enumerate(each.mean(1).tolist())),
            repeats={p: dict(enumerate(row.tolist())) for p, row in enumerate(each)},
        )
        for each in values
    ]
    found, shares = of_variants(cells), variance_shares(cells)
    assert not found.paired
    assert found.difference == pytest.approx(fitted.params["C(v)[T.1]"])
    assert found.error == pytest.approx(fitted.bse["C(v)[T.1]"], rel=1e-3)
    assert shares is not None
    assert shares.pretraining == pytest.approx(fitted.cov_re.to_numpy().item(), rel=1e-3)
    assert shares.finetuning == pytest.approx(fitted.scale, rel=1e-3)
