"""``SampleRun``: a plugin in runs of the real ``fit``, on a little text or the sample rows."""

import contextlib
import io
import json
import re
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import bertlab
from bertlab import BertlabError, Run
from bertlab.api import Column
from bertlab.extend import (
    GROUPS,
    HOOKS,
    BertlabCLI,
    Kind,
    entry_points_of,
    forget_installed,
    hook_modules,
    listed,
    make_folder,
    open_command,
    package_keys,
    read_request,
    why_unusable,
    write_text,
)
from bertlab_conformance.cases import (
    SEED,
    Case,
    MetricCase,
    SourceCase,
    TokenizerCase,
    TransformCase,
)
from bertlab_conformance.check import ConformanceFailure, NotApplicable
from bertlab_conformance.samples import sample_rows, without_truth
from bertlab_conformance.task_cases import (
    AdapterCase,
    EncoderCase,
    HeadCase,
    ObjectiveCase,
    TaskCase,
)

STEPS, EVERY = 12, 6
SMALL = {
    "num_hidden_layers": 3,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
WITHOUT_PAIRS = "full_sentences"  # input format, of bertlab-modern
METRIC_HEAD = "single_sentence"  # of three classes, whose ids metrics are given
_LONGEST = 32  # tokens of a sequence
_PACKAGE = "conformance-run"


@contextlib.contextmanager
def imaginary_package(home: Path, entries: Mapping[str, list[str]]) -> Iterator[None]:
    """Have a package installed meanwhile, with lines of entry points by group.

    Args:
        home: folder to write it into.
        entries: ``{"bertlab.heads": ["sample = module:Class"]}``.
    """
    place = home / f"{_PACKAGE.replace('-', '_')}-1.dist-info"
    make_folder(place)
    write_text(place / "METADATA", f"Metadata-Version: 2.1\nName: {_PACKAGE}\nVersion: 1\n")
    groups = {**entries, "bertlab.contract": ["contract = v3"]}
    sections = ["\n".join([f"[{group}]", *lines, ""]) for group, lines in groups.items()]
    write_text(place / "entry_points.txt", "\n".join(sections))

    def read_anew() -> None:
        forget_installed()
        if HOOKS in entries:
            hook_modules.cache_clear()

    sys.path.append(str(home))
    read_anew()
    try:
        yield
    finally:
        sys.path.remove(str(home))
        read_anew()


class SampleRun:
    """Twelve steps of a plugin in the real ``fit``, evaluated after six, run when first asked for.

    The plugin goes by the name of its entry point, or, where it has none, by one that an imaginary
    package gives it while :meth:`installed` lasts.

    Args:
        case: the plugin.
        kind: of the plugin.
    """

    def __init__(self, case: Case, kind: Kind) -> None:
        self.case, self.kind = case, kind
        self.folder = Path(tempfile.mkdtemp(prefix="bertlab-conformance-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self._lines: dict[str, list[str]] = {}  # entry points by group
        if kind != "hooks":
            self.name = self._name(kind, case.plugin)
        elif all(each.value != case.plugin.__name__ for each in entry_points_of(HOOKS)):
            self._lines[HOOKS] = [f"sample = {case.plugin.__name__}"]
        self.keys = dict(case.options.arguments) if kind == "hooks" else {}
        with self.installed(), self.quietly():
            self.config = self._config()

    @cached_property
    def first(self) -> Run:
        """The run from its beginning."""
        return self.fit(self.config, "run")

    @cached_property
    def resumed(self) -> Run:
        """A run that went on from the middle of the first one, without its config."""
        middle = self.first.directory / "checkpoints" / f"step-{EVERY}.ckpt"
        return self.fit(None, "resumed", ckpt_path=str(middle))

    @property
    def is_imaginary(self) -> bool:
        """Whether the plugin is installed for its runs alone."""
        return bool(self._lines)

    def bare(self, with_it: bool) -> Run:
        """Return a run of hooks without keys of theirs, with or without the hooks themselves."""
        config = {key: value for key, value in self.config.items() if key not in self.keys}
        with self.installed() if with_it else contextlib.nullcontext():
            return self.fit(config, f"bare-{with_it}")

    def fit(self, config: Mapping[str, Any] | None, name: str, **keys: str) -> Run:
        """Train in a run directory of this name."""
        with self.quietly():
            return bertlab.fit(config, {"run_dir": str(self.folder / name), **keys})

    def validate(self) -> dict[str, float]:
        """Return what ``bertlab validate`` finds of the last step's checkpoint, by metric."""
        cli = self._command("validate")
        found = cli.trainer.callback_metrics
        return {name.removeprefix("val/"): float(value) for name, value in found.items()}

    def predict(self) -> tuple[int, list[dict[str, Any]]]:
        """Return a number of new texts, or the case's rows, and what ``bertlab predict`` writes."""
        rows: list[Mapping[str, Any]] = [{"text": self.case.language.text(6, n)} for n in range(12)]
        if isinstance(self.case, HeadCase):
            rows = [row.values for row in without_truth(self.case.plugin.columns, self.case.rows)]
        file = self.folder / "predictions.jsonl"
        given = self._written("new", rows)
        self._command("predict", "--data.input", str(given), "--output", str(file))
        return len(rows), [json.loads(line) for line in file.read_text("utf-8").splitlines()]

    def _command(self, name: str, *arguments: str) -> BertlabCLI:
        with self.quietly():
            request = read_request(["--ckpt_path", str(self.last), *arguments])
            cli = open_command(name, request)
            if cli.run() != 0:
                raise ConformanceFailure(f"bertlab {name} has exit code 1", "look at its warnings")
        assert isinstance(cli, BertlabCLI)
        return cli

    @property
    def last(self) -> Path:
        """The checkpoint of the last step."""
        return self.first.directory / "checkpoints" / "last.ckpt"

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """Let the block print into the message of a failure alone."""
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                yield
        except BertlabError as error:
            if type(error).__name__ == "CorruptionError":  # bertlab-guard's: no bit has flipped
                raise ConformanceFailure(
                    f"{str(error).rpartition(': ')[2]} is moved by more than the optimiser",
                    "move parameters in after_step(), not in loss() or prepare()",
                ) from error
            raise ConformanceFailure(
                f"{type(error).__name__}: {error}",
                "make it a part of a whole run; bertlab explain says what a code means",
            ) from error
        if left_out := re.findall(r"^.*is left out: .*$", printed.getvalue(), re.M):
            raise ConformanceFailure(left_out[0], "let the hook raise nothing, or a BertlabError")

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Have the plugin installed meanwhile, where it is not."""
        if not self._lines:
            yield
            return
        with imaginary_package(self.folder / "packages", self._lines):
            yield

    def _name(self, kind: Kind, plugin: type) -> str:
        """Return a class's name in configs; its own, or that of the imaginary package."""
        target = f"{plugin.__module__}:{plugin.__qualname__}"
        for each in listed(kind):
            if each.target == target and why_unusable(each) is None:
                return each.name
        # GoodObjective -> sample_good_objective
        name = "sample" + re.sub(r"_?([A-Z])", r"_\1", plugin.__name__).lower()
        self._lines.setdefault(GROUPS[kind], []).append(f"{name} = {target}")
        return name

    def _config(self) -> dict[str, Any]:
        """Return the config of the run, but for its directory."""
        case, arguments = self.case, dict(self.case.options.arguments)
        tokenizer, corpus = self.folder / "tokenizer", self.folder / "corpus.txt"
        case.language.tokenizer.save(tokenizer)
        texts = [[case.language.text(8, n, part) for part in range(10)] for n in range(12)]
        write_text(corpus, "\n\n".join("\n".join(each) for each in texts) + "\n")
        model: dict[str, Any] = {"encoder": {"name": "bert", **SMALL}, "objectives": ["mlm"]}
        model["optimizer"] = {"learning_rate": 1e-3, "warmup_steps": 2}
        data: dict[str, Any] = {"batch_size": 4, "num_workers": 0, "max_seq_length": _LONGEST}
        data["tokenizer"] = str(tokenizer)
        text: dict[str, Any] = {
            "corpus": str(corpus),
            "corpus_format": "sentences",
            "validation_fraction": 0.2,
        }
        text |= {"validation_sequences": 8, "cache_dir": str(self.folder / "cache")}
        if isinstance(case, EncoderCase):
            encoder = case.encoder()
            model["encoder"] = {"name": self.name, **arguments}
            model["objectives"] = ["clm" if encoder.causal else "mlm"]
            data["max_seq_length"] = min(_LONGEST, encoder.max_position_embeddings)
        elif isinstance(case, TaskCase | AdapterCase):
            model["encoder"] = self._encoder_of(case)
        if isinstance(case, ObjectiveCase):
            given = case.options.companions or {}
            others = case.stack().companions
            model["objectives"] = {name: dict(given.get(name, {})) for name in others}
            model["objectives"][self.name] = arguments
            text |= {"random_pair_share": 0.0} if case.plugin.rearranges_input else {}
        elif isinstance(case, HeadCase):
            del model["objectives"]
            model["head"] = {"name": self.name, **arguments}
            text = self._table(row.values for row in case.rows)
        elif isinstance(case, TokenizerCase):
            data["tokenizer_kind"] = {"name": self.name, **arguments}
            data |= {"vocab_size": case.vocab_size, "max_seq_length": 64}  # bytes are many
            del data["tokenizer"]
        elif isinstance(case, SourceCase):
            location = case.new().name.replace("conformance", self.name, 1)
            text["corpus"] = {"source": location, **case.settings} if case.settings else location
            # few documents have no pairs, and the kit's tokenizer may not know their words
            text |= {"validation_fraction": 0.5, "input_format": WITHOUT_PAIRS}
            data["vocab_size"] = 2000
            del text["corpus_format"], data["tokenizer"]
        elif isinstance(case, TransformCase) or (
            isinstance(case, MetricCase) and "mlm" not in case.plugin_tasks
        ):
            columns = (Column("text"), Column("label", "label"))
            text = self._table(row.values for row in sample_rows(columns, case.language, 12))
            del model["objectives"]
            model["head"] = METRIC_HEAD
            self._name_part(model, text, arguments)
        else:
            self._name_part(model, text, arguments)
        trainer = {"max_steps": STEPS, "val_check_interval": EVERY, "accelerator": "cpu"}
        quiet = {"logger": False, "enable_progress_bar": False, "log_every_n_steps": EVERY}
        audit = {"check_every": 1} if "check_every" in package_keys() else {}
        return {
            "seed_everything": SEED,
            "model": model,
            "data": data | text,
            "trainer": trainer | quiet,
            "checkpoint": {"save_top_k": -1},
            **audit,
            **self.keys,
        }

    def _name_part(
        self, model: dict[str, Any], text: dict[str, Any], arguments: dict[str, Any]
    ) -> None:
        """Let the config name a plugin that is one part of a masked LM's run."""
        match self.kind:
            case "optimizer":
                # as schedule_free needs it; others take any
                model["optimizer"] |= {"name": self.name, "schedule": "constant", **arguments}
            case "schedule":
                model["optimizer"]["schedule"] = {"name": self.name, **arguments}
            case "adapter":
                model["adapter"] = {"name": self.name, **arguments}
            case "metric":
                model["metrics"] = {self.name: arguments}
            case "masking_unit":
                model["objectives"] = {"mlm": {"unit": self.name}}
            case "transform":
                text["transforms"] = {self.name: arguments}
            case "input_format":
                text["input_format"] = self.name

    def _encoder_of(self, case: TaskCase | AdapterCase) -> dict[str, Any]:
        """Return the config of the encoder that the author wants below the plugin."""
        given = case.options.encoder
        if given is None:
            return {"name": "bert", **SMALL, "causal": case.encoder().causal}
        maker = given if isinstance(given, partial) else partial(given)
        if maker.args or not isinstance(maker.func, type):
            raise NotApplicable("encoder= is a function; a class, or partial(class, …), can be run")
        return {"name": self._name("encoder", maker.func), **maker.keywords}

    def _table(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Write the rows of both splits and return the keys that name their files."""
        rows = list(rows)
        return {split: str(self._written(split, rows)) for split in ("train", "validation")}

    def _written(self, name: str, rows: Iterable[Mapping[str, Any]]) -> Path:
        """Write rows as JSON lines."""
        file = self.folder / f"{name}.jsonl"
        write_text(file, "".join(f"{json.dumps(row)}\n" for row in rows))
        return file
