"""What a stranger's method returns is looked at where it is returned, by the contract's types."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NewType

import numpy as np
import pytest
import torch
from torch import nn
from torchmetrics import MeanMetric, Metric, MetricCollection
from torchmetrics.classification import MulticlassCohenKappa

from bertlab import NextSentencePrediction
from bertlab.api import (
    Column,
    DataSource,
    Encoder,
    EncoderOutput,
    Features,
    Head,
    NamedFormat,
    Objective,
    OptimizerRecipe,
    PluginError,
    RawDocument,
    Schedule,
    Submission,
    TaskData,
    TaskLoss,
    TokenizerKind,
    pack,
)
from bertlab.extend import LabelledData, Plugin, PluginCodeError
from bertlab_conformance.cases import bases
from bertlab_conformance.contract_watch import check_class, returned_type, unlike
from bertlab_conformance.signatures import contract_methods

SCORE = {"a": torch.tensor(0.5)}


@pytest.mark.parametrize(
    ("found", "expected", "words"),
    [
        (3, int, None),
        (np.int64(3), int, None),
        (np.float64(8.0), int, None),  # a sum of a mask
        (torch.tensor(3), int, None),
        (2.5, int, "2.5"),
        (float("inf"), int, "inf"),
        ("3", int, "'3'"),
        (None, int, "None"),
        (None, float, "None"),
        (torch.zeros(2), float, "a Tensor of shape (2,)"),
        (np.float32(0.5), float, None),
        (None, str | None, None),
        (3, str | None, "3"),
        ("pos", Iterable[str], "'pos'"),
        (["pos"], Iterable[str], None),
        (["pos", 3], Iterable[str], "a list with 3"),
        (iter([3]), Iterable[str], None),  # is read once
        ({"label": "a"}, list[dict[str, Any]], "a dict"),
        ([{"label": "a"}, "b"], list[dict[str, Any]], "a list with 'b'"),
        (({"label": "a"},), list[dict[str, Any]], None),
        (None, list[Features], "None"),
        (Features([1], [0]), list[Features], "a Features"),
        ((each for each in ()), list[Features], "a generator"),
        ([[1], "x"], tuple[list[int], str], None),  # its elements differ
        (np.zeros(3), Sequence[float] | None, None),
        (SCORE, Mapping[str, float], None),
        ({"a": "high"}, Mapping[str, float], "'a': 'high'"),
        ([MeanMetric()], dict[str, Metric], "a list"),
        (MetricCollection({"a": MeanMetric()}), dict[str, Metric], None),
        (object(), Any, None),
    ],
)
def test_what_is_unlike_a_type(found: object, expected: object, words: str | None) -> None:
    assert unlike(found, expected) == words


def test_the_types_of_all_contracts_can_be_read() -> None:
    found = {
        (kind, name): returned_type(method)
        for kind, base in bases()
        for name, method in contract_methods(base)
    }
    assert found["objective", "prepare"] is int
    assert found["head", "metrics"] == dict[str, Metric]  # imported for type checkers only
    assert found["transform", "change"] == Mapping[str, Any] | str  # of a package's contract
    assert found["encoder", "forward"] is EncoderOutput
    assert len({kind for kind, _ in found}) > 15


def checked(loaded: type, base: type, kind: str = "objective") -> Any:
    """Return a class after it was loaded as a stranger's."""
    check_class(Plugin(kind, "odd", "odd:Odd", "odd-ones", "1.0", 3), loaded, base)
    return loaded


class Quiet(Objective):
    """Every method as the contract says."""

    def build(self, context: object) -> None: ...

    def prepare(self, sequences: Any, rng: object, training: bool) -> Any:
        return len(sequences.fields)

    def loss(self, output: object, batch: object) -> Any:
        return TaskLoss(torch.tensor(1.0), 2, torch.zeros(2), torch.zeros(2))

    def decode(self, output: Any, batch: object) -> Any:
        return [{}] * len(output.batch)


def test_what_keeps_the_contract_is_left_as_it_is() -> None:
    own = {"prepare": Quiet.prepare, "decode": Quiet.decode}
    loaded = checked(type("Fine", (Quiet,), own), Objective)
    task, output = loaded(), SimpleNamespace(batch=[1, 2])
    assert task.prepare(SimpleNamespace(fields={"x": np.zeros(3)}), None, True) == 1
    assert task.decode(output, None) == task.decode(batch=None, output=output) == [{}, {}]
    assert task.loss(output, None).count == 2
    assert loaded.prepare.__name__ == "prepare"
    again = loaded.prepare
    assert checked(loaded, Objective).prepare is again  # not twice


def raised(make: Callable[[], object]) -> str:
    with pytest.raises(PluginCodeError) as error:
        make()
    return str(error.value)


LOSS = (torch.zeros(2), torch.zeros(2))


@pytest.mark.parametrize(
    ("method", "returned", "words"),
    [
        ("prepare", None, "prepare() returned None, expected int"),
        ("loss", 1.0, "loss() returned 1.0, expected TaskLoss"),
        ("loss", TaskLoss(torch.ones(8), 2, *LOSS), "a sum that is a Tensor of shape (8,)"),
        ("loss", TaskLoss(torch.tensor(1.0), None, *LOSS), "a count that is None"),
        ("decode", [{}], "decode() returned 1 predictions for 2 sequences, expected one for each"),
        ("metrics", [MeanMetric()], "metrics() returned a list, expected dict[str, Metric]"),
        ("metrics", {"loss": MeanMetric()}, "a metric called loss, which each task has already"),
    ],
)
def test_what_an_objective_returns(method: str, returned: object, words: str) -> None:
    loaded = checked(type("Odd", (Quiet,), {method: lambda *_: returned}), Objective)
    output, sequences = SimpleNamespace(batch=[1, 2]), SimpleNamespace(fields={})
    given = {"prepare": (sequences, None, True), "metrics": ()}.get(method, (output, None))
    told = raised(lambda: getattr(loaded(), method)(*given))
    assert told.startswith("objective 'odd' of odd-ones 1.0 (odd:Odd): ")
    assert words in told
    assert f" ({Path(__file__)}:" in told


def test_a_field_is_an_array_of_numbers() -> None:
    for field, words in ((["a"], "a list"), (np.array(["a"]), "of <U1"), (torch.ones(1), "a Tens")):
        sequences = SimpleNamespace(fields={})

        def prepare(_: object, given: Any, *__: object, field: object = field) -> int:
            given.fields["mine"] = field
            return 1

        loaded = checked(type("Odd", (Quiet,), {"prepare": prepare}), Objective)
        told = raised(lambda: loaded().prepare(sequences, None, True))  # noqa: B023  called here
        assert f"prepare() wrote the field 'mine', {words}" in told


class Late(Quiet):
    """Makes its layers when it is first asked for a loss."""

    def loss(self, output: object, batch: object) -> Any:
        if not hasattr(self, "extra"):
            self.extra = nn.Linear(2, 2)
        return super().loss(output, batch)


def test_a_layer_that_the_loss_makes_is_refused() -> None:
    told = raised(lambda: checked(Late, Objective)().loss(None, None))
    assert "loss() makes a layer, which no optimiser trains; make it in build()" in told


class Parent(Quiet):
    """Returns what its child makes a number of."""

    def prepare(self, sequences: object, rng: object, training: bool) -> Any:
        return {"count": 3}


class Child(Parent):
    """As the contract says."""

    def prepare(self, sequences: object, rng: object, training: bool) -> Any:
        return super().prepare(sequences, rng, training)["count"]


def test_what_a_parent_returns_is_its_child_s_affair() -> None:
    assert checked(Child, Objective)().prepare(SimpleNamespace(fields={}), None, True) == 3


def head(**methods: object) -> Head:
    """Return a head of one column with some methods, loaded as a stranger's."""
    names = {"add_layers", "encode", "loss", "decode"} - methods.keys()
    own = {name: lambda self, *_: None for name in names} | {"columns": (Column("text"),)}
    base = type("Base", (Head,), own)
    return checked(type("Odd", (base,), methods), Head, "head")()


def test_what_a_head_returns() -> None:
    told = raised(lambda: head(labels_of=lambda self, example: "pos").labels_of(None))
    assert "labels_of() returned 'pos', expected Iterable[str]" in told
    told = raised(lambda: head(merge=lambda self, example, parts: parts).merge(None, [{}]))
    assert "merge() returned a list, expected dict[str, Any]" in told
    names = {"score_names": lambda self: ["exact"], "score": lambda self, *_: {"exakt": 1.0}}
    assert "score() returned exakt, expected ['exact'] as" in raised(
        lambda: head(**names).score([], [])
    )
    for field, words in ((None, "None"), ("x", "'x'"), (torch.ones(2), "a Tensor of shape (2,)")):
        features = [Features([1, 2], [0, 0], {"extra": field})]
        odd = head(encode=lambda self, *_, made=features: made)
        told = raised(lambda: odd.encode(None, None, 8))  # noqa: B023  called here
        assert f"encode() returned Features whose field 'extra' is {words}" in told


def test_features_that_cannot_be_one_split() -> None:
    rows = iter(
        [
            [Features([1], [0], {"a": 1, "b": np.ones(1)})],
            [Features([1], [0], {"a": 2.5}), Features([1, 2], [0, 1], {"b": np.ones(2)})],
            [Features([1], [0], {"a": np.ones(1)})],
            [Features([1], [-1])],
            [Features([1, 2], [0, 256])],
        ]
    )
    odd = head(encode=lambda self, *_: next(rows))
    odd.encode(None, None, 8)
    odd.encode(None, None, 8)
    told = "field 'a' is an array, and a number of rows before; expected the same of all"
    assert told in raised(lambda: odd.encode(None, None, 8))
    for first, last in ((-1, -1), (0, 256)):
        found = raised(lambda: odd.encode(None, None, 8))
        assert f"token_type_ids from {first} to {last}, expected 0 of text A" in found


class Short(Encoder):
    """Forgets a token."""

    def __init__(self, vocab_size: int, forgets: bool = True) -> None:
        super().__init__()
        self.vocab_size, self.hidden_size, self.num_hidden_layers = vocab_size, 4, 1
        self.max_position_embeddings, self.causal, self.hidden_dropout_prob = 8, False, 0.0
        self.layer_norm_eps, self.initializer_range = 1e-12, 0.02
        self.token_embedding, self.pooler = nn.Embedding(vocab_size, 4), nn.Identity()
        self.forgets = forgets

    def forward(self, batch: Any, all_layers: bool = False) -> Any:
        tokens = self.token_embedding(batch.input_ids)
        layers = [tokens] if all_layers else None
        return EncoderOutput(tokens[int(self.forgets) :], batch, self.pooler, layers)


class Forgetful(Short):
    """Sets no sizes."""

    def __init__(self, vocab_size: int) -> None:
        nn.Module.__init__(self)
        self.vocab_size = vocab_size


def test_what_an_encoder_returns_and_has() -> None:
    loaded, batch = checked(Short, Encoder, "encoder"), pack([[1, 2, 3], [1, 2]])
    told = raised(lambda: loaded(9)(batch))
    assert "forward() returned tokens of shape (4, 4), expected (5, 4): those of the batch" in told
    told = raised(lambda: loaded(9, forgets=False)(batch, all_layers=True))
    assert "forward() returned 1 all_layers, expected 2" in told
    assert loaded(9, forgets=False)(batch).tokens.shape == (5, 4)
    told = raised(lambda: checked(Forgetful, Encoder, "encoder")(9))
    assert "__init__() sets no hidden_size, num_hidden_layers, max_position_embeddings, " in told


def test_an_object_of_a_child_is_not_looked_at_before_it_is_made() -> None:
    class Bare(Short):
        """Leaves the pooler to its child."""

        def __init__(self, vocab_size: int) -> None:
            super().__init__(vocab_size)
            del self.pooler

    class Whole(Bare):
        """Brings the pooler."""

        def __init__(self, vocab_size: int) -> None:
            super().__init__(vocab_size)
            self.pooler = nn.Identity()

    bare = checked(Bare, Encoder, "encoder")
    assert isinstance(checked(Whole, Encoder, "encoder")(9).pooler, nn.Identity)
    assert "sets no pooler" in raised(lambda: bare(9))


class Texts(DataSource):
    """Yields a text behind a document."""

    def documents(self) -> Iterator[Any]:
        yield RawDocument("A document.", None, "here")
        yield "a text"


def test_what_a_generator_yields() -> None:
    found = checked(Texts, DataSource, "source")("odd", "").documents()
    assert next(found).text == "A document."
    assert "documents() yielded 'a text', expected RawDocument" in raised(lambda: next(found))


class Private(TokenizerKind):
    """Hides one of its settings."""

    def __init__(self, merges: int = 3, size: int = 2) -> None:
        self._merges, self.size = merges, size

    def train(self, texts: object, vocab_size: int, lowercase: bool) -> Any: ...


def test_a_setting_of_a_tokenizer_that_the_cache_would_not_see() -> None:
    told = raised(lambda: checked(Private, TokenizerKind, "tokenizer")(merges=500))
    assert "__init__() keeps no attribute merges, the name of its argument: settings()" in told


class Vector(Metric):
    """Returns two numbers."""

    def __init__(self) -> None:
        super().__init__()

    def update(self, preds: object, target: object) -> None: ...

    def compute(self) -> Any:
        return torch.ones(2)


def test_what_a_metric_returns() -> None:
    metric = checked(Vector, Metric, "metric")()
    metric.update(None, None)
    told = raised(metric.compute)
    assert "compute() returned a Tensor of shape (2,), expected float | Mapping[str, float]" in told


class Idiom(Vector):
    """Hands arguments on, as torchmetrics' own metrics do."""

    def __init__(self, scale: float = 1.0, **kwargs: Any) -> None:
        Metric.__init__(self, **kwargs)
        self.scale = scale


def test_classes_of_torchmetrics_are_plugins_as_they_are() -> None:
    before = MulticlassCohenKappa.compute
    assert checked(MulticlassCohenKappa, Metric, "metric").compute is before
    assert checked(Idiom, Metric, "metric")(scale=2.0).scale == 2.0


@dataclass
class Options:
    """Several settings."""

    alpha: float = 0.5


class Colour(Enum):
    """A word."""

    BLUE = "blue"


def with_setting(annotation: object, name: str = "mine", base: type = Quiet) -> type:
    source = f"def __init__(self, {name}{': annotation' if annotation else ''} = None): ..."
    space: dict[str, Any] = {"annotation": annotation}
    exec(source, space)  # an argument of any name and type
    return type("Odd", (base,), {"__init__": space["__init__"]})


class Rate(Schedule):
    """A schedule."""

    def factor(self, progress: object) -> float:
        return 1.0


class Recipe(OptimizerRecipe):
    """An optimiser; the method that makes it is called as that of a task is."""

    def build(self, groups: Any, learning_rate: float, fused: bool) -> Any:
        return torch.optim.SGD(groups, lr=learning_rate) if groups else None


def test_what_an_optimiser_returns() -> None:
    recipe = checked(Recipe, OptimizerRecipe, "optimizer")()
    assert isinstance(recipe.build([nn.Parameter(torch.ones(1))], 0.1, False), torch.optim.SGD)
    assert "build() returned None, expected Optimizer" in raised(
        lambda: recipe.build([], 0.1, False)
    )


class WithoutSelf(Schedule):
    """Gives its factor by a method of no instance."""

    @staticmethod
    def factor(progress: object) -> float:  # type: ignore[override]
        return float(progress is None)


class Callback:
    """Is called as a method is."""

    def __call__(self, progress: object) -> float:
        return float(progress is None)


def test_a_data_module_that_hands_its_settings_on() -> None:
    class Rows(LabelledData):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)

    checked(Rows, TaskData, "data_module")


def test_what_is_inherited_of_bertlab_is_not_replaced() -> None:
    child = type("Child", (NextSentencePrediction,), {})
    assert checked(child, Objective, "objective").loss is NextSentencePrediction.loss


def test_methods_that_take_no_self() -> None:
    by_object = type("ByObject", (Schedule,), {"factor": Callback()})
    by_class = type("ByClass", (Schedule,), {"factor": classmethod(lambda cls, progress: 1.0)})
    for each in (WithoutSelf, by_object, by_class):
        assert checked(each, Schedule, "schedule")().factor(None) == 1
    odd = type("Odd", (Schedule,), {"factor": staticmethod(lambda: 1.0)})
    with pytest.raises(PluginError, match=r"found factor\(\), expected factor\(self, progress\)"):
        checked(odd, Schedule, "schedule")


@pytest.mark.parametrize(
    "annotation",
    [
        *(int, float | None, Literal["a", "b"], list[str], dict[str, float], tuple[float, float]),
        *(Any, NewType("Share", float)),
    ],
)
def test_a_setting_that_a_config_holds(annotation: object) -> None:
    checked(with_setting(annotation), Objective)


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (None, "mine has no type; annotate it: mine: float"),
        (Options, "a config key is a text, a number, a truth value, None"),
        (Options | None, "a config key is"),
        (list[Options], "a config key is"),
        (Colour, "a config key is"),
        (Path, "a config key is"),
        (set[str], "a config key is"),
        (Callable[[int], int] | None, "a config key is"),
    ],
)
def test_a_setting_that_would_arrive_as_something_else(annotation: object, words: str) -> None:
    with pytest.raises(PluginError, match=r"odd-ones 1\.0") as error:
        checked(with_setting(annotation), Objective)
    assert words in str(error.value)


def test_a_setting_whose_key_is_taken() -> None:
    for name, base in (("learning_rate", Recipe), ("name", Rate)):
        contract = OptimizerRecipe if base is Recipe else Schedule
        with pytest.raises(PluginError, match=f"takes {name}: .*is a key beside its settings"):
            checked(with_setting(float, name, base), contract, "schedule")
    with pytest.raises(PluginError, match="does not take vocab_size"):
        checked(with_setting(float, "size", Short), Encoder, "encoder")


def test_a_layer_with_the_name_of_a_method() -> None:
    def add_layers(self: Any, context: object) -> None:
        self.score = nn.Linear(2, 2)

    told = raised(lambda: head(add_layers=add_layers).add_layers(None))
    assert "add_layers() makes a layer called score, which is a name of the contract" in told


@pytest.mark.parametrize(
    ("attributes", "fits"),
    [
        ({}, True),
        ({"columns": {"text": ("question", "0")}}, True),
        ({"columns": {"text": "question"}}, False),  # its letters are none
        ({"table": None, "label_names": ["no", "yes"], "submission": Submission}, True),
        ({"table": "tabs"}, False),
        ({"submission": "csv"}, False),
        ({"files": {"train": ["a.csv"]}, "no_label": "-"}, True),
    ],
)
def test_the_attributes_of_a_format(attributes: dict[str, object], fits: bool) -> None:
    odd = type("Odd", (NamedFormat,), attributes)
    if fits:
        checked(odd, NamedFormat, "format")
        return
    with pytest.raises(PluginError, match=f"{next(iter(attributes))} is .*; set "):
        checked(odd, NamedFormat, "format")


def test_an_attribute_of_another_type() -> None:
    odd = type("Odd", (Quiet,), {"monitor": ("accuracy", "maximum")})
    with pytest.raises(PluginError, match=r"monitor is \('accuracy', 'maximum'\); set monitor"):
        checked(odd, Objective)
