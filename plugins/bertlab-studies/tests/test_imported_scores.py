"""Scores of runs that bertlab did not make."""

import json
import os
from pathlib import Path
from threading import Thread

import fsspec
import numpy as np
import pytest
from scipy import stats

from bertlab.errors import DataError
from bertlab_studies.errors import StudyError
from bertlab_studies.imported_scores import import_scores
from bertlab_studies.report.repeats import RunResult, add_results
from bertlab_studies.report.report import report_of
from bertlab_studies.report.statistics import compare_study
from bertlab_studies.report.values import report_json, run_values, values_csv
from made_up_scores import add_repeats, made_up_study
from tests.conftest import Command


def written(folder: Path, text: str, name: str = "scores.csv") -> str:
    path = folder / name
    path.write_text(text, "utf-8")
    return str(path)


LONG = """variant,seed,measure,score
base,1,mnli accuracy,0.81
base,2,mnli accuracy,0.83
base,3,mnli accuracy,0.80
big,1,mnli accuracy,0.86
big,2,mnli accuracy,0.84
big,3,mnli accuracy,0.85
"""
WIDE = """Model;Run;mnli accuracy
base;1;0.81
base;2;0.83
base;3;0.80
big;1;0.86
big;2;0.84
big;3;0.85
"""


def rounded(content: object) -> object:
    """Return values without their last digits, which the order of a sum may change."""
    if isinstance(content, float):
        return float(f"{content:.9g}")
    if isinstance(content, dict):
        return {key: rounded(each) for key, each in content.items()}
    return [rounded(each) for each in content] if isinstance(content, list) else content


def test_a_score_whose_square_is_no_number_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, LONG.replace("0.83", "1e200"))
    with pytest.raises(DataError, match=r"scores.csv:3: score: found 1e200, expected a number be"):
        import_scores(file)


@pytest.mark.parametrize("nested", [False, True])
def test_values_of_a_study_give_its_own_report_again(nested: bool, tmp_path: Path) -> None:
    study = made_up_study()
    if nested:
        add_repeats(study)
    file = written(tmp_path, values_csv([study]), "nsp.csv")
    again = import_scores(file)
    keys = ("values", "comparisons", "measures", "seeds", "finetune_seeds", "baseline", "name")
    one, other = (json.loads(report_json(report_of(each)))["studies"][0] for each in (study, again))
    for key in keys:
        assert rounded(one[key]) == rounded(other[key]), key


def test_values_with_a_fine_tuning_that_learned_nothing_give_the_same_comparison(
    tmp_path: Path,
) -> None:
    study = add_repeats(made_up_study(seeds=4), finetunings=3)
    cell, what = study.variants["mlm"].cells["qnli accuracy"], "one class for every row"
    results = {
        finetune: RunResult(value, what if finetune == 2 else None)
        for finetune, value in (cell.repeats[3] | {2: 0.5}).items()
    }
    add_results(cell, 3, results, "mlm, qnli accuracy")
    said = {each.finetune_seed for each in run_values(study) if each.degenerate}
    assert said == {2}  # and not the others of the same pre-training
    again = import_scores(written(tmp_path, values_csv([study]), "nsp.csv"))
    found = again.variants["mlm"].cells["qnli accuracy"]
    assert found.degenerate_repeats[3] == {2: what}
    assert found.learned == pytest.approx(cell.learned)
    one, other = (json.loads(report_json(report_of(each)))["studies"][0] for each in (study, again))
    for key in ("values", "comparisons"):
        assert rounded(one[key]) == rounded(other[key]), key


def test_one_row_may_say_that_its_run_learned_nothing(tmp_path: Path) -> None:
    text = "variant,seed,row,score,degenerate\n" + "".join(
        f"{name},{seed},{row},1,{'one class' if (name, seed, row) == ('b', 2, 0) else ''}\n"
        for name in "ab"
        for seed in (1, 2)
        for row in range(3)
    )
    study = import_scores(written(tmp_path, text))
    assert [each.cells["score score"].degenerate for each in study.variants.values()] == [
        {},
        {2: "one class"},
    ]


def test_long_and_wide_tables_say_the_same_and_welch_agrees(tmp_path: Path) -> None:
    long = import_scores(written(tmp_path, LONG))
    columns = {"variant": "Model", "seed": "Run"}
    wide = import_scores(written(tmp_path, WIDE, "wide.csv"), columns=columns)
    both = [compare_study(each)["big", "mnli accuracy"] for each in (long, wide)]
    assert both[0] == both[1]
    welch = stats.ttest_ind([0.86, 0.84, 0.85], [0.81, 0.83, 0.80], equal_var=False)
    assert not both[0].paired
    assert both[0].p == pytest.approx(welch.pvalue)
    assert any("no scores of rows" in line for line in long.remarks)
    assert any("what runs cost" in line for line in long.remarks)


def test_scores_of_rows_are_in_the_tests(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = ["variant,seed,row,cluster,score"]
    for variant, more in (("a", 0.0), ("b", 0.1)):
        for seed in (1, 2, 3):
            for row in range(60):
                score = int(rng.random() < 0.6 + more)
                lines.append(f"{variant},{seed},q{row},p{row // 3},{score}")
    study = import_scores(written(tmp_path, "\n".join(lines)))
    found = compare_study(study)["b", "score score"]
    assert (found.rows, found.clusters, found.cluster) == (60, 20, "cluster")
    cell = study.variants["a"].cells["score score"]
    assert all(cell.values[seed] == cell.examples[seed].mean() for seed in (1, 2, 3))
    assert not any("no scores of rows" in line for line in study.remarks)


def test_seeds_that_are_names_and_rows_without_seeds_have_numbers(tmp_path: Path) -> None:
    named = LONG.replace(",1,", ",Run 1,").replace(",2,", ",Run 2,").replace(",3,", ",Run 3,")
    assert import_scores(written(tmp_path, named)).seeds == [1, 2, 3]
    none = LONG.replace("seed,", "").replace(",1,", ",").replace(",2,", ",").replace(",3,", ",")
    study = import_scores(written(tmp_path, none))
    assert study.cell("big", study.measures[0]).values == {1: 0.86, 2: 0.84, 3: 0.85}
    assert any("no column of seeds" in line for line in study.remarks)


def test_options_say_what_decides_and_which_end_is_better(tmp_path: Path) -> None:
    text = "variant\tseed\tmlm loss\tppl\tdev f1\thost\n" + "".join(
        f"{name}\t{seed}\t{seed}.5\t9\t70.5\t1\n" for name in "ab" for seed in (1, 2)
    )
    study = import_scores(
        written(tmp_path, text, "s.tsv"), baseline="b", decide=["ppl", "mlm loss"], lower=["ppl"]
    )
    assert study.baseline == "b"
    found = {each.name: each for each in study.measures}
    assert [each.is_primary for each in study.measures] == [True, True, False, False]
    assert not found["mlm loss"].higher_is_better
    assert not found["ppl score"].higher_is_better
    assert not found["dev f1"].is_share  # in percent already
    assert study.why_described == "ppl and mlm loss decide"


BAD = {
    "variant,seed,measure,score\na,1,x,1\na,1,x,2\n": "scores.csv:3: the score of a, x, seed 1",
    "variant,seed,measure,score\na,1,x,zwei\n": "scores.csv:2: score: found 'zwei'",
    "variant,seed,measure,score\n,1,x,1\n": "scores.csv:2: variant: is empty",
    "variant,seed,measure,score\na,,x,1\n": "scores.csv:2: seed: is empty",
    "variant,seed,measure,score\na,1,,1\n": "scores.csv:2: measure: is empty",
    "variant,seed,measure,score\na,1,x\n": "scores.csv:2: found 3 comma-separated columns",
    "variant,seed,measure,score\na,2,x\n": "as in line 1; mend the row; write the file in another",
    "id,a;x\nb,1;y\n": "into 2 cells each; --delimiter says which of them it is",
    "variant,seed,measure,score\na,1,x,\n": "holds no score",
    "variant,seed,measure\na,1,x\n": "none called score or value",
    "variant,seed,row\na,1,x\n": "none called score or value",
    "variant,seed\na,1\n": "has no column of scores",
    "model,seed,score\na,1,1\n": "has no column 'variant'",
    "variant,seed,score,value\na,1,1,1\n": "has columns score and value",
    "variant,seed,row,score\na,1,p,1\na,1,q,0\na,2,p,1\n": "the run has no score of row q",
    "variant,seed,row,cluster,score\na,1,p,k,1\na,2,p,m,1\n": "expected the same",
    "study,variant,seed,score\ns,a,1,1\nt,a,1,1\n": "scores.csv:3: study: is not that of",
}


@pytest.mark.parametrize("text", BAD)
def test_a_wrong_table_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        import_scores(written(tmp_path, text))
    assert BAD[text] in str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"baseline": "bigg"}, "--baseline: found 'bigg'; did you mean 'big'"),
        ({"decide": ["mnli"]}, "--decide: found 'mnli'"),
        ({"lower": ["x"]}, "--lower: found 'x'"),
        ({"columns": {"variants": "x"}}, "--columns: no column is called 'variants'"),
        ({"columns": {"seed": "x", "row": "x"}}, "--columns: seed and row: found 'x' for both"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError) as error:
        import_scores(written(tmp_path, LONG), **options)  # type: ignore[arg-type]
    assert words in str(error.value)


def test_the_command_writes_a_report(
    tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = bertlab("study", "import", written(tmp_path, LONG))
    assert code == 0
    assert "imported from" in out
    content = json.loads(Path("runs/studies/scores/report.json").read_text("utf-8"))
    assert content["studies"][0]["comparisons"][0]["variant"] == "big"
    assert "<html" in Path("runs/studies/scores/report.html").read_text("utf-8")
    for arguments in ((), ("a.csv", "b.csv"), ("nowhere.csv",)):
        code, _, error = bertlab("study", "import", *arguments)
        assert code == 2
        assert error.count("\n") == 1


def test_a_pipe_is_read_once_and_a_url_without_its_secrets(tmp_path: Path) -> None:
    table = "variant,score\na,0.5\na,0.6\nb,0.7\nb,0.9\n"
    os.mkfifo(tmp_path / "pipe.csv")
    writer = Thread(target=(tmp_path / "pipe.csv").write_text, args=(table,), daemon=True)
    writer.start()
    assert import_scores(str(tmp_path / "pipe.csv")).manifest["scores"].endswith("pipe.csv")
    fsspec.filesystem("memory").pipe("/me:geheim@scores.csv", table.encode())
    study = import_scores("memory://me:geheim@scores.csv")
    assert "geheim" not in json.dumps(study.manifest)
