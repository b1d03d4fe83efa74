"""Checks of a plugin in runs of the real ``fit``, which one run and its second half answer."""

import copy
import importlib
import inspect
import math
from itertools import islice
from pathlib import Path

import torch

import bertlab
from bertlab import TokenPrediction
from bertlab.api import DataSource, pack
from bertlab.extend import installed, make_folder, write_text
from bertlab_conformance.cases import SEED, Case, MetricCase, SourceCase, kind_of
from bertlab_conformance.check import (
    TASK_KINDS,
    ConformanceFailure,
    NotApplicable,
    check,
)
from bertlab_conformance.checks.building import USABLE
from bertlab_conformance.comparisons import changed_tensor, difference, state_difference
from bertlab_conformance.sample_run import EVERY, METRIC_HEAD, STEPS, WITHOUT_PAIRS, SampleRun
from bertlab_conformance.stack import disturb, seeded
from bertlab_conformance.task_cases import EncoderCase

_MOST_DOCUMENTS = 500
_SAME = 1e-5  # of the largest value
_ENDS = ("bertlab_run_ended", "bertlab_study_ended")
_KINDS = (
    "encoder",
    *TASK_KINDS,
    *("adapter", "masking_unit", "input_format", "transform", "metric"),
    "optimizer",
    "schedule",
    "tokenizer",
    "source",
    "hooks",
)


@check(
    *_KINDS,
    after=(
        *(*USABLE, "can_be_imported_by_name", "has_a_summary", "learns", "resumes_exactly"),
        *("a_sequence_goes_by_its_number", "units_are_those_of_a_sequence"),
    ),
)
def works_in_a_run(case: Case) -> None:
    """Twelve steps of ``fit`` with the audit of weights on; then load, predict and validate."""
    run = _run_of(case)
    with run.installed():
        results = run.first.metrics
        again = run.validate()
        number, predictions = run.predict()
        bertlab.load(run.last)
    found = difference({name: again.get(name) for name in results}, dict(results))
    if found:
        raise ConformanceFailure(
            f"bertlab validate finds {found.strip()} as the run found at its end",
            "let nothing but parameters, buffers and the config decide what is computed",
        )
    if len(predictions) != number:
        raise ConformanceFailure(
            f"bertlab predict writes {len(predictions)} predictions of {number} inputs",
            "return one dict for each sequence from decode()",
        )


@check(*_KINDS, after=("works_in_a_run",))
def run_goes_on_without_its_config(case: Case) -> None:
    """A run that goes on from the checkpoint of its middle, without ``--config``, ends the same."""
    run = _run_of(case)
    with run.installed():
        whole, half = (
            torch.load(each.directory / "checkpoints" / "last.ckpt", weights_only=True)
            for each in (run.first, run.resumed)
        )
    changed = changed_tensor(whole["state_dict"], half["state_dict"])
    if changed:
        raise ConformanceFailure(
            f"{changed} is another after steps {EVERY + 1} to {STEPS} from a checkpoint than in a "
            "run without a stop",
            "keep what changes from step to step in parameters, in buffers, or in the state of the "
            "optimiser or callback",
        )


@check("hooks", after=("works_in_a_run", "keys_are_described"))
def defaults_change_nothing(case: Case) -> None:
    """Where it adds keys, a run with their defaults has the weights of one without the package."""
    run = _run_of(case)
    if not hasattr(case.plugin, "bertlab_fit_arguments"):
        raise NotApplicable("it adds no keys to fit")
    if not run.is_imaginary:
        raise NotApplicable("it is installed, and there is no run without it")
    weights = [
        torch.load(each.directory / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for each in (run.bare(with_it=True), run.bare(with_it=False))
    ]
    if changed := changed_tensor(*weights):
        raise ConformanceFailure(
            f"{changed} differs between a run without the package and one with its defaults",
            "choose defaults that switch it off: others do not ask for it",
        )


@check("hooks", after=("works_in_a_run",))
def events_are_taken_note_of(case: Case) -> None:
    """Told of a run's or a study's end, its hooks raise nothing and change nothing of it."""
    run = _run_of(case)
    named = {name: vars(case.plugin)[name] for name in _ENDS if name in vars(case.plugin)}
    if not named:
        raise NotApplicable("it has no hook of the end of a run or a study")
    page = run.folder / "study" / "report.html"
    make_folder(page.parent)
    write_text(page, "<p>two runs</p>\n")
    with run.installed():
        told = {
            "bertlab_run_ended": {
                "run_dir": run.first.directory,
                "results": {"mlm/loss": 3.0625},
                "tables": [("labelled data: train", [("rows", "12")])],
            },
            "bertlab_study_ended": {
                "study_dir": page.parent,
                "done": ["seed-1"],
                "failed": {"seed-2": "out of memory"},
                "files": [page],
            },
        }
        for name, hook in named.items():
            given = copy.deepcopy(told[name])
            with run.quietly():
                hook(**{each: given[each] for each in inspect.signature(hook).parameters})
            if changed := [each for each in given if given[each] != told[name][each]]:
                raise ConformanceFailure(
                    f"{name} changes {', '.join(changed)}, which others are told and files have",
                    "work on a copy",
                )


@check("encoder", after=("works_in_a_run",))
def transformers_gives_the_same(case: EncoderCase) -> None:
    """Of a Hugging Face form: ``transformers`` has the run's states and logits, and they are read.

    Exported, loaded by ``transformers``, and read back by bertlab. The weights are disturbed first:
    near 0, where they begin, one activation is as another.
    """
    run = _run_of(case)
    encoder = case.encoder()
    if not encoder.huggingface:
        raise NotApplicable("transformers has no class for it")
    try:
        export = bertlab.export_model
        theirs = importlib.import_module("transformers")
    except ImportError as error:
        raise NotApplicable(f"not installed: {error}") from None
    if reason := encoder.huggingface[0].refusal(encoder):
        raise NotApplicable(reason)
    folder = run.folder / "exported"
    theirs.logging.set_verbosity_error()  # a language model's class has no pooler, which it tells
    with run.installed(), run.quietly():
        disturbed = _disturbed(run.last)
        ours, report = bertlab.load(disturbed), export(disturbed, folder, overwrite=True)
        back = bertlab.load(folder)
        model = getattr(theirs, report.architecture).from_pretrained(folder).eval()
    (task,) = ours.tasks.values()
    assert isinstance(task, TokenPrediction)
    for number, words in enumerate((1, 5, 20)):
        ids = ours.tokenizer.build_inputs(case.ids(words, number))[0]
        batch = pack([ids])
        with torch.no_grad():
            states, again = (each.encoder(batch).tokens for each in (ours, back))
            found = model(torch.tensor([ids]), output_hidden_states=True)
            logits = task.logits(states)
        for name, one, other in (
            ("states", states, found.hidden_states[-1][0]),
            ("logits", logits, found.logits[0]),
            ("states that bertlab reads back", states, again),
        ):
            if (off := state_difference(one, other)) > _SAME:
                raise ConformanceFailure(
                    f"{name} of {len(ids)} tokens are off by {off:.2g}",
                    "look at eps, activation, biases and the order of stacked tensors in the form: "
                    "config(), encoder_names(), arguments()",
                )


def _disturbed(checkpoint: Path) -> Path:
    """Write the checkpoint of a run with other parameters beside it; return its path."""
    model, content = bertlab.load(checkpoint), torch.load(checkpoint, weights_only=True)
    modules: dict[str, torch.nn.Module] = {"encoder": model.encoder}
    modules |= {f"tasks.{name}": task for name, task in model.tasks.items()}
    names = [f"{at}.{name}" for at, each in modules.items() for name, _ in each.named_parameters()]
    with seeded(SEED), torch.no_grad():
        disturb(content["state_dict"][name] for name in names)
    changed = checkpoint.with_name("disturbed.ckpt")
    torch.save(content, changed)
    return changed


@check("metric", after=("works_in_a_run",))
def is_a_score_of_the_run(case: MetricCase) -> None:
    """A run whose config names it has its value among the held-out scores."""
    run = _run_of(case)
    found = [value for name, value in run.first.metrics.items() if name.endswith(f"/{run.name}")]
    if not found or not math.isfinite(found[0]):
        raise ConformanceFailure(
            f"of a dozen rows the value is {found[0] if found else 'not among the scores'}",
            "return a finite number from compute() of whatever update() was given",
        )


def _need_ids(case: MetricCase) -> None:
    if case.plugin_tasks and not {"mlm", METRIC_HEAD} & {*case.plugin_tasks}:
        raise NotApplicable(f"it is for {', '.join(case.plugin_tasks)}")
    if any(each.is_floating_point() or each.dim() > 1 for row in case.samples for each in row[:2]):
        raise NotApplicable(f"the given rows are no ids of classes, as {METRIC_HEAD} has")


def _need_a_small_corpus(case: SourceCase) -> None:
    if case.plugin.documents is DataSource.documents:
        raise NotApplicable("it has no documents to pre-train on")
    if WITHOUT_PAIRS not in installed("input_format"):
        raise NotApplicable(f"a run needs the input format {WITHOUT_PAIRS} of bertlab-modern")
    found = sum(1 for _ in islice(case.new().documents(), _MOST_DOCUMENTS + 1))
    if not 4 <= found <= _MOST_DOCUMENTS:
        raise NotApplicable(f"a run of a moment needs 4 to {_MOST_DOCUMENTS} documents")


def _run_of(case: Case) -> SampleRun:
    if "run" not in case.shared:
        if isinstance(case, SourceCase):
            _need_a_small_corpus(case)
        if isinstance(case, MetricCase):
            _need_ids(case)
        kind = kind_of(case.plugin)
        assert kind is not None
        case.shared["run"] = SampleRun(case, kind)
    run: SampleRun = case.shared["run"]
    return run
