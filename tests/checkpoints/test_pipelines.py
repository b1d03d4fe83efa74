"""What transformers makes of an export is what bertlab predicts, also of texts of many windows."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, pipeline

from bertlab.checkpoints.pretrained_model import load
from bertlab.checkpoints.run_checkpoint import RUN_KEY
from bertlab_interop.export import export_model
from tests.checkpoints.test_fine_tuned import POLARITY, TAGS, write_run

LENGTH = 16  # data.max_seq_length of write_run; the encoder's is 48


def forget_context(run: Path) -> None:
    """Let each token's state depend on that token alone: windows may be anywhere then."""
    content = torch.load(run, weights_only=True)
    for name, tensor in content["state_dict"].items():
        if "attention.output" in name or "position_embedding" in name:
            tensor.zero_()
    torch.save(content, run)
    assert RUN_KEY in content


def test_entities_of_a_long_text(tmp_path: Path) -> None:
    run = tmp_path / "run.ckpt"
    write_run(run, {"name": "tagging"}, TAGS)
    forget_context(run)
    export_model(str(run), tmp_path / "out")
    model = load(run)
    words = [f"w{n}" for n in range(92)]
    tags = [each["tags"][0] for each in model.predict([{"words": [word]} for word in words])]
    by_tag = {tag: [w for w, t in zip(words, tags, strict=True) if t == tag] for tag in TAGS.names}
    outside, begins, inside = (by_tag[tag] for tag in TAGS.names)
    # windows of 46 tokens there and 14 here: entities of one, two and three words at their borders
    text = " ".join(
        f"{outside[n % len(outside)]} {outside[0]}, {begins[n % len(begins)]}"
        + f" {inside[n % len(inside)]}" * (n % 3)
        for n in range(40)
    )
    find = pipeline(
        "token-classification", model=str(tmp_path / "out"), aggregation_strategy="first", stride=10
    )
    found = [(each["entity_group"], text[each["start"] : each["end"]]) for each in find(text)]
    expected = [(each["type"], each["text"]) for each in model.predict(text)[0]["entities"]]
    assert found == expected
    assert len(found) == 40


def most_shown(windows: list[list[int]]) -> dict[int, int]:
    """The window that shows most around each character where a token starts, as BERT's code."""
    best: dict[int, tuple[float, int]] = {}
    for number, starts in enumerate(windows):
        for place, start in enumerate(starts):
            shown = min(place, len(starts) - 1 - place) + 0.01 * len(starts)
            if shown > best.get(start, (-1.0, 0))[0]:
                best[start] = (shown, number)
    return {start: number for start, (_, number) in best.items()}


@pytest.mark.first_fast
@pytest.mark.parametrize("doc_stride", [4, 8])
def test_the_answer_in_a_long_context(tmp_path: Path, doc_stride: int) -> None:
    run = tmp_path / "run.ckpt"
    write_run(run, {"name": "span", "doc_stride": doc_stride, "max_answer_length": 5}, None)
    export_model(str(run), tmp_path / "out")
    model = AutoModelForQuestionAnswering.from_pretrained(tmp_path / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    for number in range(6):
        question = f"w{number} w7"
        context = " ".join(f"w{(number * 31 + 17 * n * n) % 92}" for n in range(60))
        room = LENGTH - 2 - 3  # the question, [CLS] and two [SEP]
        encoded = tokenizer(
            question,
            context,
            max_length=LENGTH,
            truncation="only_second",
            stride=room - doc_stride,  # transformers counts what windows share
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            padding=True,
            return_tensors="pt",
        )
        encoded.pop("overflow_to_sample_mapping")
        offsets = encoded.pop("offset_mapping").tolist()
        inside = [
            [n for n, part in enumerate(encoded.sequence_ids(row)) if part == 1]
            for row in range(len(offsets))
        ]
        with torch.no_grad():
            output = model(**encoded)
        windows = [[offsets[row][n][0] for n in inside[row]] for row in range(len(offsets))]
        shown = most_shown(windows)
        candidates = [
            (float(output.start_logits[row, i] + output.end_logits[row, j]), row, i, j)
            for row in range(len(offsets))
            for i in inside[row]
            for j in inside[row]
            if 0 <= j - i < 5 and shown[offsets[row][i][0]] == row
        ]
        _, row, i, j = max(candidates)
        start, end = offsets[row][i][0], offsets[row][j][1]
        found = load(run).predict({"question": question, "context": context})[0]
        assert len(offsets) > 5
        assert (found["answer"], found["start"], found["end"]) == (context[start:end], start, end)


@pytest.mark.parametrize("encoder_name", ["bert", "modern"])
def test_the_class_of_a_long_text(tmp_path: Path, encoder_name: str) -> None:
    run = tmp_path / "run.ckpt"
    write_run(run, {"name": "single_sentence"}, POLARITY, encoder_name)
    export_model(str(run), tmp_path / "out")
    classify = pipeline("text-classification", model=str(tmp_path / "out"), truncation=True)
    texts = ["w1 w2", " ".join(f"w{n % 92}" for n in range(200))]
    for found, expected in zip(classify(texts), load(tmp_path / "out").predict(texts), strict=True):
        assert found["label"] == expected["label"]
        assert found["score"] == pytest.approx(expected["scores"][expected["label"]], abs=1e-5)
