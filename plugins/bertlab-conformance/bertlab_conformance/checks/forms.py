"""Checks of Hugging Face forms: small models of ``transformers`` are read and written back."""

import contextlib
import copy
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

import bertlab
from bertlab import CheckpointError, TokenPrediction
from bertlab.api import Encoder, PluginError, pack
from bertlab.extend import (
    GROUPS,
    HuggingFaceForm,
    build_encoder,
    installed,
    load_class,
    load_matching,
    read_pretrained,
)
from bertlab_conformance.cases import SEED, Case
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check
from bertlab_conformance.comparisons import state_difference
from bertlab_conformance.sample_run import imaginary_package
from bertlab_conformance.stack import disturb, seeded

_SAME = 1e-5  # of the largest value
_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 66,
}
# settings that change what layers compute, under the names that config.json files have for them
_ODD = {
    ("hidden_act", "hidden_activation", "activation"): "relu",
    ("layer_norm_eps", "norm_eps"): 0.1,
}


class FormCase(Case):
    """A form under test, with small models of its classes; ``arguments`` are of their config."""

    plugin: type[HuggingFaceForm]

    @cached_property
    def theirs(self) -> Any:  # noqa: ANN401  a module
        """``transformers``."""
        try:
            found = importlib.import_module("transformers")
        except ImportError as error:
            raise NotApplicable(f"not installed: {error}") from None
        found.logging.set_verbosity_error()
        return found

    @cached_property
    def classes(self) -> list[tuple[str, bool]]:
        """Names of all classes, and whether each is a left-to-right language model."""
        named = [(each, "clm" in tasks) for tasks, each in self.plugin.architectures.items()]
        return [*named, *((each, False) for each in self.plugin.heads)]

    @contextlib.contextmanager
    def saved(
        self, name: str, is_decoder: bool, changes: Mapping[str, Any] | None = None
    ) -> Iterator[tuple[Any, Path]]:
        """Give a small model of a class, and a folder with it that bertlab can read meanwhile."""
        kind, tokenizer = getattr(self.theirs, name), self.language.tokenizer
        settings = {**_SIZES, **self.options.arguments, **(changes or {})}
        if is_decoder:
            settings["is_decoder"] = True
        # whatever the arguments say, the tokenizer is the kit's
        settings |= {"vocab_size": tokenizer.vocab_size, "pad_token_id": tokenizer.pad_id}
        with seeded(SEED), self._installed(), TemporaryDirectory() as place:
            model = kind(kind.config_class(**settings)).eval()
            disturb(model.parameters())
            folder = Path(place, "given")
            model.save_pretrained(folder)
            tokenizer.save(folder)
            yield model, folder

    @contextlib.contextmanager
    def _installed(self) -> Iterator[None]:
        """Have the form installed meanwhile, where it is not."""
        name, form = self.plugin.model_type, self.plugin
        if name in installed("huggingface_form") or form.extends is None:
            yield
            return
        entry = f"{name} = {form.__module__}:{form.__qualname__}"
        entries = {GROUPS["huggingface_form"]: [entry]}
        with TemporaryDirectory() as home, imaginary_package(Path(home), entries):
            yield


@check("huggingface_form", after=("is_complete", "is_made_without_arguments"))
def classes_are_of_transformers(case: FormCase) -> None:
    """``architectures`` and ``heads`` name classes of ``transformers`` with its ``model_type``."""
    form = case.plugin
    if frozenset() not in form.architectures:
        raise ConformanceFailure(
            "architectures has no class of the encoder alone", 'add frozenset(): "…Model"'
        )
    for name, _ in case.classes:
        kind = getattr(case.theirs, name, None)
        if kind is None:
            raise ConformanceFailure(
                f"transformers {case.theirs.__version__} has no class {name}",
                "name classes as config.json's architectures does",
            )
        if kind.config_class.model_type != form.model_type:
            raise ConformanceFailure(
                f"{name} is of model_type {kind.config_class.model_type!r}, the form of "
                f"{form.model_type!r}",
                "let model_type be that of the classes' config.json",
            )


@check("huggingface_form", after=("classes_are_of_transformers",))
def encoder_is_known(case: FormCase) -> None:
    """An installed encoder names the form as its own, or the one that it ``extends``."""
    known: dict[str, type] = {}
    for name in installed("encoder"):
        with contextlib.suppress(PluginError):
            forms = load_class("encoder", name, Encoder).huggingface
            known |= {each.model_type: type(each) for each in forms}
    form = case.plugin
    if form.extends is None:
        if known.get(form.model_type) is not form:
            raise NotApplicable("no installed encoder names it; conformance(MyEncoder) tries it")
    elif form.extends not in known:
        raise ConformanceFailure(
            f"extends is {form.extends!r}, and forms of encoders are {', '.join(sorted(known))}",
            "let extends be the model_type of the form that the encoder itself names",
        )


@check("huggingface_form", after=("encoder_is_known",))
def models_of_transformers_are_read(case: FormCase) -> None:
    """A small model of each class is read with all its tensors: the same states and logits."""
    _need_encoder(case)
    for name, is_decoder in case.classes:
        with case.saved(name, is_decoder) as (model, folder):
            found = read_pretrained(str(folder))
            if found.unused:
                raise ConformanceFailure(
                    f"of a {name} it reads all but {', '.join(found.unused[:3])}",
                    "name them in encoder_names(), head_names() or heads",
                )
            _compare(case, name, model, folder)


@check("huggingface_form", after=("models_of_transformers_are_read",))
def models_are_written_back(case: FormCase) -> None:
    """What was read is written with the same tensors, and ``transformers`` computes the same."""
    from bertlab.api import Exporter  # noqa: PLC0415  of bertlab-interop

    _need_encoder(case)
    exporter: Exporter = load_class("exporter", "transformers", Exporter)()
    for name, is_decoder in case.classes:
        with case.saved(name, is_decoder) as (model, folder):
            start = read_pretrained(str(folder))
            # as BERT and as RoBERTa join two texts: forms may go by it in suits()
            layouts = ((1, 1), (2, 0))
            for number, (separators, second_type) in enumerate(layouts):
                start.tokenizer = tokenizer = copy.copy(case.language.tokenizer)
                tokenizer.layout = replace(
                    tokenizer.layout, separators=separators, second_type=second_type
                )
                place = folder.with_name(f"written-{number}")
                place.mkdir()
                report = exporter.write(start, place)
                written = case.theirs.AutoConfig.from_pretrained(place)
                if written.model_type == case.plugin.model_type:
                    break
            else:
                raise NotApplicable(
                    "suits() is False of the kit's model: give arguments={…} of a config.json "
                    "that it is True of, or it is a form to read alone"
                )
            kind = getattr(case.theirs, report.architecture)
            if report.architecture != name:
                raise ConformanceFailure(
                    f"a {name} is written as a {report.architecture}",
                    "let architectures and heads name each class once",
                )
            again = kind.from_pretrained(place).eval()
            for ids in _texts(case):
                for one, other in zip(_outputs(model, ids), _outputs(again, ids), strict=True):
                    if (off := state_difference(one, other)) > _SAME:
                        raise ConformanceFailure(
                            f"a {name} that was read and written is off by {off:.2g}",
                            "let config() write all settings that arguments() reads, state() all "
                            "tensors, and before_writing() undo what after_reading() does",
                        )


@check("huggingface_form", after=("models_of_transformers_are_read",))
def other_layers_are_refused(case: FormCase) -> None:
    """A ``config.json`` of other activations or eps is refused, or computed as it says."""
    _need_encoder(case)
    name = case.plugin.architectures[frozenset()]
    usual = getattr(case.theirs, name).config_class()
    for keys, value in _ODD.items():
        for key in keys:
            if not hasattr(usual, key):
                continue
            given = case.saved(name, False, {key: value})
            with given as (model, folder), contextlib.suppress(CheckpointError):
                _compare(case, f"{name} with {key}: {value}", model, folder)


def _need_encoder(case: FormCase) -> None:
    encoder_is_known.run(case)


def _texts(case: FormCase) -> Iterator[list[int]]:
    for number, words in enumerate((1, 5, 20)):
        yield case.language.tokenizer.build_inputs(case.ids(words, number))[0]


def _outputs(model: Any, ids: list[int]) -> list[Tensor]:  # noqa: ANN401  of transformers
    """Return the tensors that a model gives for a text, or for choices that are one."""
    given = torch.tensor([ids])
    if type(model).__name__.endswith("MultipleChoice"):
        given = given[None]
    with torch.no_grad():
        found = model(given)
    return [each for each in found.to_tuple() if isinstance(each, Tensor)]


def _compare(case: FormCase, name: str, model: Any, folder: Path) -> None:  # noqa: ANN401
    """Compare what bertlab reads with a model: states of the last layer, and logits of tokens."""
    is_language_model = name.partition(" ")[0] in case.plugin.architectures.values()
    if is_language_model:
        loaded = bertlab.load(folder)
        encoder, tasks = loaded.encoder, loaded.tasks
    else:  # whose head any plugin may read
        found = read_pretrained(str(folder))
        encoder, tasks = build_encoder(found.encoder_config, found.vocab_size).eval(), {}
        load_matching(encoder, found.encoder_state, name, ("pooler.",))
    base = getattr(model, case.plugin.prefix.rstrip("."), model)
    for ids in _texts(case):
        with torch.no_grad():
            states, expected = encoder(pack([ids])).tokens, _outputs(base, ids)[0][0]
            pairs = {"states": (expected, states)}
            for task in tasks.values():
                if isinstance(task, TokenPrediction):
                    pairs["logits"] = (_outputs(model, ids)[0][0], task.logits(states))
        for what, (one, other) in pairs.items():
            if (off := state_difference(one, other)) > _SAME:
                raise ConformanceFailure(
                    f"{what} of {len(ids)} tokens of a {name} are off by {off:.2g}",
                    "look at eps, activation, positions and the order of stacked tensors: "
                    "arguments(), encoder_names(), after_reading()",
                )
