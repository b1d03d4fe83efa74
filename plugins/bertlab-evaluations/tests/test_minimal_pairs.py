"""Scores of minimal pairs: equal to independent implementations, whatever the batch; ties."""

import json
import shutil
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertlab import Example, MaskedLM, load, pack
from bertlab.api import EvaluatedModel, TaskContext
from bertlab.cli.main import main
from bertlab.errors import DataError, EvaluationError
from bertlab_evaluations.evaluation_scores import score_groups
from bertlab_evaluations.held_out_loss import HeldOutLoss
from bertlab_evaluations.minimal_pairs import MinimalPairs, sentence_scores

SENTENCES = [
    "A statement is executed when the module is imported.",
    "The interpreter evaluates unparenthesized expressions.",
    "Names refer to objects.",
    "Names refers to objects.",
    "yield",
]


@pytest.fixture(scope="module")
def model(tiny_run: Path) -> EvaluatedModel:
    return load(tiny_run).evaluated()


@pytest.fixture(scope="module")
def folder(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model as transformers reads it."""
    target = tmp_path_factory.mktemp("hf") / "model"
    assert main(["export", str(tiny_run), str(target)]) == 0
    return target


def pairs(*values: tuple[str, str]) -> list[Example]:
    return [
        Example({"good": good, "bad": bad}, f"pairs.tsv:{number}")
        for number, (good, bad) in enumerate(values, 1)
    ]


def ids_of(model: EvaluatedModel, sentences: list[str]) -> list[list[int]]:
    return [model.tokenizer.encode(sentence) for sentence in sentences]


@pytest.mark.first_fast
@pytest.mark.parametrize("method", ["original", "within_word_l2r"])
def test_scores_equal_transformers_one_mask_at_a_time(model, folder, method):
    from transformers import BertForMaskedLM, BertTokenizerFast

    peer = BertForMaskedLM.from_pretrained(folder).eval()
    tokenizer = BertTokenizerFast.from_pretrained(folder)

    def score(sentence: str) -> float:
        encoded = tokenizer(sentence, return_tensors="pt")
        ids, words = encoded.input_ids[0], encoded.word_ids()
        total = 0.0
        for place in range(1, len(ids) - 1):
            masked = ids.clone()
            for other in range(place, len(ids) - 1):
                if other == place or (method != "original" and words[other] == words[place]):
                    masked[other] = tokenizer.mask_token_id
            with torch.no_grad():
                logits = peer(masked[None]).logits[0, place].double()
            total += (logits[ids[place]] - logits.logsumexp(0)).item()
        return total

    found = sentence_scores(model, ids_of(model, SENTENCES), method)
    np.testing.assert_allclose(found, [score(each) for each in SENTENCES], atol=1e-4)
    several = [len(tokenizer.tokenize(word)) > 1 for word in " ".join(SENTENCES).split()]
    assert any(several), "no word of several pieces: the two methods would be the same"


@pytest.mark.parametrize("method", ["original", "within_word_l2r"])
def test_scores_equal_minicons(model, folder, method, monkeypatch):
    from minicons import scorer
    from transformers import PreTrainedTokenizerBase as Tokenizer

    # minicons 0.3.39 calls it by the name that it had before transformers 5
    monkeypatch.setattr(Tokenizer, "batch_encode_plus", Tokenizer.__call__, raising=False)
    peer = scorer.MaskedLMScorer(str(folder), "cpu")
    total = peer.sequence_score(SENTENCES, lambda each: each.sum(0).item(), PLL_metric=method)
    theirs = np.array(total)
    ours = sentence_scores(model, ids_of(model, SENTENCES), method)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.slow
def test_a_left_to_right_model_is_scored_by_the_chain_rule(left_to_right):
    (objective,) = left_to_right.tasks.values()
    found = sentence_scores(left_to_right, ids_of(left_to_right, SENTENCES))
    for score, ids in zip(found, ids_of(left_to_right, SENTENCES), strict=True):
        inputs = left_to_right.tokenizer.build_inputs(ids)[0]
        total = 0.0
        for place in range(1, len(inputs) - 1):  # each prefix alone
            with torch.no_grad():
                states = left_to_right.encoder(pack([inputs[:place]])).tokens[-1:]
                total += objective.logits(states).double().log_softmax(-1)[0, inputs[place]].item()
        assert score == pytest.approx(total, abs=1e-4)


@pytest.fixture(scope="module")
def left_to_right(tiny_config: Path, tmp_path_factory: pytest.TempPathFactory) -> EvaluatedModel:
    run = tmp_path_factory.mktemp("clm") / "run"
    arguments = ["--model.objectives", "[clm]", "--model.encoder.causal", "true"]
    assert main(["fit", "--config", str(tiny_config), *arguments, "--run_dir", str(run)]) == 0
    return load(run).evaluated()


@pytest.mark.slow
@given(st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=6), st.integers(1, 400))
def test_a_score_does_not_depend_on_its_batch(shared, chosen, batch_tokens):
    model, alone = shared
    found = sentence_scores(model, ids_of(model, chosen), batch_tokens=batch_tokens)
    np.testing.assert_allclose(found, [alone[each] for each in chosen], rtol=1e-5)


@pytest.fixture(scope="module")
def shared(model) -> tuple[EvaluatedModel, dict[str, float]]:
    scores = [sentence_scores(model, ids_of(model, [each]))[0] for each in SENTENCES]
    return model, dict(zip(SENTENCES, scores, strict=True))


@pytest.fixture
def uniform(model) -> Iterator[EvaluatedModel]:
    """A model that gives all tokens the same probability."""
    kept = {name: value.clone() for name, value in model.tasks["mlm"].state_dict().items()}
    with torch.no_grad():
        for parameter in model.tasks["mlm"].parameters():
            parameter.zero_()
    yield model
    model.tasks["mlm"].load_state_dict(kept)


def test_equal_logits_get_exactly_half(uniform):
    rows = pairs(
        *(("a b c", "c b a"), ("a b", "b c")), ("Names refer to objects.", "Names refer to object.")
    )
    result = MinimalPairs(per_token=True).evaluate(uniform, rows)
    assert result.metrics["accuracy"] == 0.5
    assert result.metrics["ties"] == 1.0


def test_a_sum_over_equal_logits_prefers_few_tokens_and_says_so(uniform):
    rows = pairs(("a", "a b"), ("a b", "b"), ("a b", "b a"))
    result = MinimalPairs().evaluate(uniform, rows)
    assert result.scores.tolist() == [1, 0, 0.5]
    assert result.metrics["uniform_accuracy"] == result.metrics["accuracy"] == 0.5


def test_the_better_sentence_gets_the_point(model):
    rows = pairs(*pairwise(SENTENCES))
    rows += [Example({"good": each.values["bad"], "bad": each.values["good"]}, "") for each in rows]
    scores = MinimalPairs().evaluate(model, rows).scores
    forth, back = np.split(scores, 2)
    np.testing.assert_array_equal(forth + back, 1)
    assert set(scores) <= {0, 0.5, 1}
    assert 0 < forth.mean() < 1


def test_sentences_of_the_same_tokens_are_ties_and_named(model):
    twice = ("Names Refer", "names refer"), ("a b", "a b"), ("a", "b")  # BLiMP has 4 of the second
    result = MinimalPairs().evaluate(model, pairs(*twice))
    assert result.scores[:2].tolist() == [0.5, 0.5]
    assert any(
        "of 2 pairs are the same tokens" in note and "pairs.tsv:1" in note for note in result.notes
    )


def test_long_pairs_are_counted_and_not_cut(model):
    long = "word " * model.max_seq_length
    result = MinimalPairs().evaluate(model, pairs((long, "a"), ("a b", "b b")))
    assert np.isnan(result.scores).tolist() == [True, False]
    assert any("1 pairs have a sentence of more than 64 tokens" in note for note in result.notes)
    assert result.metrics["accuracy"] == result.scores[1]


def test_a_long_sentence_is_read_in_parts(model, monkeypatch):
    ids = model.tokenizer.encode("to the point " * 20)[:40]
    whole = sentence_scores(model, [ids], batch_tokens=10_000)
    read, forward = [], model.encoder.forward

    def counted(batch, *args, **more):
        read.append(len(batch.input_ids))
        return forward(batch, *args, **more)

    monkeypatch.setattr(model.encoder, "forward", counted)
    parts = sentence_scores(model, [ids], batch_tokens=150)
    assert max(read) == 3 * 42  # copies of 40 tokens, [CLS] and [SEP]
    assert sum(read) == 40 * 42
    np.testing.assert_allclose(parts, whole, rtol=1e-5)


def test_means_of_groups(model):
    rows = [
        Example({"good": good, "bad": bad, "paradigm": paradigm, "phenomenon": phenomenon}, "")
        for good, bad, paradigm, phenomenon in (
            ("a b", "b a", "x", "one"),
            ("to the", "the to", "x", "one"),
            ("is a", "a is", "y", "one"),
            ("in the", "the in", "z", "two"),
        )
    ]
    result = MinimalPairs().evaluate(model, rows)
    a, b, c, d = result.scores
    assert result.metrics["paradigm_accuracy"] == pytest.approx(((a + b) / 2 + c + d) / 3)
    assert result.metrics["phenomenon_accuracy"] == pytest.approx(((a + b + c) / 3 + d) / 2)
    assert "field_accuracy" not in result.metrics


def test_a_file_is_a_paradigm_by_its_name_without_a_known_ending(model):
    files = ("en.agreement.csv", "en.binding.csv", "wh_island.jsonl.gz", "a:b/odd.JSON", "x.dat")
    rows = [Example({"good": "a b", "bad": "b a"}, f"pairs/{each}:2") for each in files]
    rows.append(Example({"good": "a b", "bad": "b a"}, "all.json: row 3"))
    names = MinimalPairs().evaluate(model, rows).groups["paradigm"]
    assert names == ["en.agreement", "en.binding", "wh_island", "odd", "x.dat", "all"]


def test_a_group_that_some_rows_alone_have_is_refused(model):
    rows = [
        Example({"good": "a b", "bad": "b a"} | more, f"p.csv:{number}")
        for number, more in enumerate([{"paradigm": "x"}, {}, {"paradigm": "y"}], 2)
    ]
    with pytest.raises(DataError, match=r"p\.csv:3: paradigm: found no value, and 2 other rows"):
        MinimalPairs().evaluate(model, rows)


def test_one_long_name_of_a_group_costs_its_own_memory_alone(model):
    names = ["x" * 1_000_000, *map(str, range(99))]
    rows = [
        Example({"good": "a b", "bad": "b a", "paradigm": name}, f"p.csv:{number}")
        for number, name in enumerate(names, 2)
    ]
    tracemalloc.start()
    result = MinimalPairs().evaluate(model, rows)
    groups = score_groups(result)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [each.group for each in groups if each.kind == "paradigm"] == names
    assert peak < 40_000_000  # padded, a hundred names of a million characters are 400 MB


def test_a_sentence_without_a_word_is_named(model):
    with pytest.raises(DataError, match=r"pairs.tsv:2: bad: found .* expected a text with"):
        MinimalPairs().evaluate(model, pairs(("a", "b"), ("a", "\u200b")))


def test_damaged_weights_are_no_long_sentences(model):
    weight = next(model.encoder.parameters())
    kept = weight.detach().clone()
    with torch.no_grad():
        weight.fill_(float("nan"))
    try:
        with pytest.raises(EvaluationError, match="weights are damaged"):
            MinimalPairs().evaluate(model, pairs(("a", "b")))
    finally:
        with torch.no_grad():
            weight.copy_(kept)


def test_a_model_without_a_language_model_is_refused(model):
    bare = EvaluatedModel(model.source, model.encoder, model.tokenizer, {})
    with pytest.raises(EvaluationError, match="an encoder alone, expected a language model"):
        MinimalPairs().evaluate(bare, pairs(("a", "b")))


class BeforeTheMask(MaskedLM):
    """Masked next-token prediction: a masked token is predicted by the state before it."""

    def write_labels(self, sequences, positions, labels):
        return super().write_labels(sequences, positions - 1, labels)


class HiddenShift(MaskedLM):
    """The same, but its loss alone says so."""

    def loss(self, output, batch):
        written = batch.token_labels(self.name)
        shifted = replace(
            batch,
            fields={
                "mlm_positions": written.positions - 1,
                "mlm_labels": written.labels,
            },
        )
        return super().loss(output, shifted)


def with_task(model: EvaluatedModel, kind: type[MaskedLM]) -> EvaluatedModel:
    """The model, whose masked LM is of another class with the same weights."""
    task = kind()
    task.build(TaskContext(model.encoder, model.tokenizer))
    task.load_state_dict(model.tasks["mlm"].state_dict())
    return replace(model, tasks={"other": task.eval()})


def test_the_state_that_was_trained_is_read(model, left_to_right):
    assert model.language_model[1] == 0
    assert left_to_right.language_model[1] == -1
    before = with_task(model, BeforeTheMask)
    assert before.language_model[1] == -1
    sentence = ids_of(model, ["the value of the name"])[0]
    scores = sentence_scores(before, [sentence], "original")
    inputs = model.tokenizer.build_inputs(sentence)[0]
    expected = 0.0
    for place in range(1, len(inputs) - 1):
        masked = [*inputs[:place], model.tokenizer.mask_id, *inputs[place + 1 :]]
        with torch.no_grad():
            states = model.encoder(pack([masked])).tokens
            logits = model.tasks["mlm"].logits(states[place - 1 : place])
        expected += logits.double().log_softmax(-1)[0, inputs[place]].item()
    assert scores[0] == pytest.approx(expected, rel=1e-5)
    assert scores[0] != pytest.approx(sentence_scores(model, [sentence], "original")[0], rel=1e-3)


def test_a_loss_of_other_states_than_its_positions_is_refused(model):
    hidden = with_task(model, HiddenShift)
    for evaluation in (MinimalPairs(), HeldOutLoss(max_seq_length=16)):
        row = {"good": "a value", "bad": "the value", "text": SENTENCES[0]}
        with pytest.raises(
            EvaluationError, match=r"objective other: its loss is not that of .* prepare\(\)"
        ):
            evaluation.evaluate(hidden, [Example(row, "rows:1")])


def write_pairs(path: Path) -> Path:
    rows = [("a statement", "statement a", "x"), ("the name", "name the", "y")]
    text = "".join(
        json.dumps({"sentence_good": g, "sentence_bad": b, "UID": u, "linguistics_term": "order"})
        + "\n"
        for g, b, u in rows
    )
    path.write_text(text, "utf-8")
    return path


@pytest.mark.slow
def test_the_command_writes_figures_rows_and_groups(tiny_run, tmp_path, capsys):
    data = tmp_path / "blimp"
    data.mkdir()
    for name in ("one", "two"):
        write_pairs(data / f"{name}.jsonl")
    out = tmp_path / "out"
    command = ["evaluate", "--ckpt_path", str(tiny_run), "--evaluation", "minimal_pairs"]
    command += ["--name", "blimp", "--data", str(data), "--output", str(out)]
    assert main([*command, "--settings.method", "original"]) == 0
    printed = capsys.readouterr().out
    results = json.loads((out / "results.json").read_text("utf-8"))
    rows = [json.loads(line) for line in (out / "blimp.rows.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) == 4
    assert results["blimp/accuracy"] == np.mean([row["score"] for row in rows])
    assert [row["paradigm"] for row in rows] == ["x", "y"] * 2
    assert "blimp: 4 rows" in printed
    groups = (out / "blimp.groups.csv").read_text("utf-8").splitlines()
    assert groups[0] == "kind,group,rows,mean,low,high,clusters"
    assert [row["cluster"] for row in rows] == ["paradigm:x", "paradigm:y"] * 2
    assert any(line.startswith("paradigm,x,2,") for line in groups)
    # the same again beside other figures
    assert main([*command[:-1], str(out), "--name", "again"]) == 0
    assert {"blimp/accuracy", "again/accuracy"} <= set(
        json.loads((out / "results.json").read_text("utf-8"))
    )


def test_a_run_from_elsewhere_is_not_written_through_its_links(tiny_run, tmp_path, capsys):
    theirs, home = tmp_path / "theirs", tmp_path / "home"
    shutil.copytree(tiny_run, theirs)
    home.mkdir()
    (theirs / "evaluations").symlink_to(home)
    command = ["evaluate", "--ckpt_path", str(theirs), "--evaluation", "minimal_pairs"]
    assert main([*command, "--data", str(write_pairs(tmp_path / "pairs.jsonl"))]) == 2
    assert f"evaluations: is a link that leads out of {theirs}" in capsys.readouterr().err
    assert not list(home.iterdir())


def test_a_file_of_two_columns(tiny_run, tmp_path):
    data = tmp_path / "order.tsv"
    data.write_text("a statement\tstatement a\nthe name\tname the\n", "utf-8")
    out = tmp_path / "out"
    command = ["evaluate", "--ckpt_path", str(tiny_run), "--evaluation", "minimal_pairs"]
    command += ["--data", str(data), "--columns", "{good: 0, bad: 1}", "--output", str(out)]
    assert main(command) == 0
    row = json.loads((out / "minimal_pairs.rows.jsonl").read_text("utf-8").splitlines()[0])
    assert row["paradigm"] == "order"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--evaluation", "minimal_pair", "--data", "x"], "did you mean 'minimal_pairs'"),
        (["--evaluation", "minimal_pairs", "--dta", "x"], "data"),
        (["--evaluation", "minimal_pairs"], "missing: --data"),
        (
            ["--evaluation", "minimal_pairs", "--data", "x", "--settings.method", "orginal"],
            "settings.method: found 'orginal'",
        ),
        (["--evaluation", "minimal_pairs", "--data", "/nowhere"], "/nowhere"),
        ([], "expected NAME or --config FILE"),
        (["--config", "a.yaml", "--evaluation", "minimal_pairs"], "one of them"),
    ],
)
def test_mistakes_are_one_line(tiny_run, arguments, message, capsys):
    assert main(["evaluate", "--ckpt_path", str(tiny_run), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_mistakes_in_a_file_name_it(tiny_run, tmp_path, capsys):
    file = tmp_path / "all.yaml"
    file.write_text("evaluations: {blimp: {evaluation: minimal_pairs, dat: x}}", "utf-8")
    assert main(["evaluate", "--ckpt_path", str(tiny_run), "--config", str(file)]) == 2
    error = capsys.readouterr().err
    assert f"{file}: evaluations.blimp: " in error
    assert "'data'" in error or "data" in error
