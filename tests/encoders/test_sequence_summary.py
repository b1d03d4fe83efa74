"""What stands for a sequence, for each kind of encoder: does it carry the text?"""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertlab.api.batch import PackedBatch, first_token, last_token, pack
from bertlab.api.examples import Labels
from bertlab.api.task import TaskContext
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import ConfigError
from bertlab.heads.sentences import SingleSentence
from bertlab.model.build import check_tasks
from bertlab.objectives.language_model import CausalLM
from bertlab.tokenizer.files import WordPieceTokenizer
from tests.encoders.test_bert import SMALL, random_batch

KINDS = [(causal, layers) for causal in (False, True) for layers in (0, 1, 2)]
CLS, SEP, WORDS = 2, 3, 20
TOKENIZER = WordPieceTokenizer.from_vocabulary(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(WORDS))]
)


def encoder_of(causal: bool, bilstm_layers: int, **changes: object) -> BertEncoder:
    torch.manual_seed(0)
    arguments = SMALL | {"causal": causal, "bilstm_layers": bilstm_layers} | changes
    return BertEncoder(**arguments)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 64), min_size=1, max_size=5), st.sampled_from(KINDS))
def test_packed_equals_one_by_one(lengths: list[int], kind: tuple[bool, int]) -> None:
    encoder = encoder_of(*kind).eval()
    batch = random_batch(lengths)
    with torch.no_grad():
        together = encoder(batch)
        parts = zip(
            batch.input_ids.split(lengths), batch.token_type_ids.split(lengths), strict=True
        )
        alone = [encoder(pack([ids.tolist()], [types.tolist()])) for ids, types in parts]
    for name in ("tokens", "cls", "pooled"):
        expected = torch.cat([getattr(each, name) for each in alone])
        assert torch.allclose(getattr(together, name), expected, atol=1e-5), name


@pytest.mark.parametrize(("causal", "bilstm_layers"), KINDS)
def test_the_summary_sees_every_token_of_its_own_sequence_only(
    causal: bool, bilstm_layers: int
) -> None:
    encoder = encoder_of(causal, bilstm_layers, initializer_range=0.2).eval()
    batch = random_batch([6, 4, 5])
    embedded = encoder.token_embedding(batch.input_ids).detach().requires_grad_()
    encoder.token_embedding.forward = lambda _: embedded  # type: ignore[method-assign]
    encoder(batch).pooled[1].sum().backward()
    assert embedded.grad is not None
    assert (embedded.grad.norm(dim=1) > 0).tolist() == [False] * 6 + [True] * 4 + [False] * 5


def test_it_is_the_first_token_or_the_last() -> None:
    batch = random_batch([6, 4, 5])
    both, left = encoder_of(False, 0)(batch), encoder_of(True, 0)(batch)
    assert torch.equal(both.cls, both.tokens[[0, 6, 10]])
    assert torch.equal(left.cls, left.tokens[[5, 9, 14]])


@pytest.mark.parametrize(("causal", "bilstm_layers"), KINDS)
def test_the_gradient_reaches_every_parameter(causal: bool, bilstm_layers: int) -> None:
    encoder = encoder_of(causal, bilstm_layers)
    encoder(random_batch([9, 12, 5])).pooled.square().sum().backward()
    unreached = [n for n, p in encoder.named_parameters() if p.grad is None or not p.grad.any()]
    assert unreached == []


def test_a_bilstm_changes_nothing_below_it() -> None:
    plain, topped = encoder_of(True, 0).eval(), encoder_of(True, 2).eval()
    names = set(topped.state_dict()) - set(plain.state_dict())
    assert len(names) == 16
    assert all(name.startswith("bilstm.") for name in names)
    batch = random_batch([9, 4])
    below, above = plain(batch, all_layers=True), topped(batch, all_layers=True)
    for mine, theirs in zip(above.all_layers, below.all_layers, strict=True):
        assert torch.equal(mine, theirs)
    assert above.tokens.shape == below.tokens.shape
    assert not torch.allclose(above.tokens, below.tokens)


def test_with_a_bilstm_a_position_sees_both_sides() -> None:
    """So that a language model cannot be trained on it by mistake."""
    encoder = encoder_of(True, 1).eval()
    assert not encoder.causal
    batch, changed = random_batch([9]), random_batch([9])
    changed.input_ids[-1] = (changed.input_ids[-1] + 1) % 97
    assert not torch.allclose(encoder(batch).tokens[0], encoder(changed).tokens[0])
    with pytest.raises(ConfigError, match="clm needs a left-to-right encoder"):
        check_tasks({"clm": CausalLM()}, encoder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"bilstm_layers": -1}, "bilstm_layers: found -1"),
        (
            {"bilstm_layers": 1, "hidden_size": 33, "num_attention_heads": 3},
            "hidden_size: found 33",
        ),
    ],
)
def test_an_impossible_bilstm_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        BertEncoder(**(SMALL | changes))


def labelled_batch(place: int, seed: int) -> PackedBatch:
    """Random words of random number; a label that says which of two words stands at ``place``."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (32,), generator=generator)
    texts = []
    for label in labels.tolist():
        length = int(torch.randint(4, 9, (), generator=generator))
        words = torch.randint(7, 5 + WORDS, (length,), generator=generator)
        words[place] = 5 + label
        texts.append([CLS, *words.tolist(), SEP])
    batch = pack(texts)
    batch.fields["label"] = labels
    return batch


def accuracy_after_training(encoder: BertEncoder, place: int) -> float:
    head = SingleSentence()
    head.build(TaskContext(encoder, TOKENIZER, labels=Labels(("no", "yes"), (1, 1))))
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-3)
    for step in range(60):
        batch = labelled_batch(place, step)
        loss = head.loss(encoder(batch), batch)
        optimizer.zero_grad()
        (loss.sum / loss.count).backward()
        optimizer.step()
    encoder.eval(), head.eval()
    batch = labelled_batch(place, seed=999)
    with torch.no_grad():
        loss = head.loss(encoder(batch), batch)
    return float((loss.preds == loss.target).float().mean())


@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("bilstm_layers", "place"), list(itertools.product((0, 1), (0, -1))), ids=str
)
def test_a_left_to_right_classifier_learns_from_either_end_of_the_text(
    bilstm_layers: int, place: int
) -> None:
    encoder = encoder_of(True, bilstm_layers, hidden_dropout_prob=0.0)
    assert accuracy_after_training(encoder, place) > 0.9


def test_the_first_token_of_a_left_to_right_encoder_says_nothing() -> None:
    batch = labelled_batch(0, seed=1)
    output = encoder_of(True, 0).eval()(batch)
    states = first_token(output.tokens, batch)
    assert torch.allclose(states, states[:1].expand_as(states), atol=1e-6)
    ends = last_token(output.tokens, batch)
    assert not torch.allclose(ends, ends[:1].expand_as(ends), atol=1e-2)
