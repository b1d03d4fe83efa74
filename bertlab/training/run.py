"""``bertlab.fit`` trains as the command does; ``Run`` gives a run's metrics, curves and model."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertlab.api.measures import is_share
from bertlab.checkpoints.pretrained_model import Input, PretrainedModel, load
from bertlab.checkpoints.run_directory import MANIFEST_FILE, RESULTS_FILE, STAGES_FILE
from bertlab.config.merge import read_request
from bertlab.config.request import Request, to_arguments
from bertlab.config.yaml_files import read_config
from bertlab.errors import CheckpointError, as_mistakes
from bertlab.files import read_object
from bertlab.plugins.hooks import opened_by_package
from bertlab.plugins.index import WithAddedMethods
from bertlab.training.cli import open_command
from bertlab.training.results import (
    Results,
    history_rows,
    read_curves,
    read_results,
    read_shares,
    shown_figure,
)

if TYPE_CHECKING:
    import pandas

ConfigSource = str | Path | Mapping[str, Any]


def fit(
    config: ConfigSource | Sequence[str | Path] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> "Run":
    """Train as ``bertlab fit`` does, and return the run.

    Ctrl-C ends training, not Python: the run that is returned can go on from its last checkpoint
    with :meth:`Run.resume`.

    Args:
        config: a config file, several (a later one wins), or a config as a mapping. None for a
            run that goes on: ``fit(overrides={"ckpt_path": "runs/quickstart"})``.
        overrides: values by config key, as on the command line: ``{"trainer.max_steps": 500}``.

    Raises:
        BertlabError: what the command prints before it exits with 2.
    """
    with as_mistakes():
        request = _request(config, overrides or {})
        opened = opened_by_package("fit", request) or open_command("fit", request)
        directory = opened.directory
        opened.run()
    return Run(directory)


def _request(
    config: ConfigSource | Sequence[str | Path] | None, overrides: Mapping[str, Any]
) -> Request:
    arguments = to_arguments(overrides)
    if isinstance(config, Mapping):
        return read_request(arguments, base=dict(config), base_name="run")
    files = [config] if isinstance(config, str | Path) else list(config or ())
    named = [part for file in files for part in ("--config", str(file))]
    return read_request([*named, *arguments])


class Run(WithAddedMethods):
    """A run directory as an object: metrics, curves, and the trained model.

    Args:
        directory: of the run, as ``bertlab fit`` made it.

    Raises:
        CheckpointError: if there is no run.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        if not any((self.directory / name).is_file() for name in (MANIFEST_FILE, STAGES_FILE)):
            raise CheckpointError(f"{directory}: no such run (it has no {MANIFEST_FILE})")

    @property
    def is_finished(self) -> bool:
        """Whether it came to its end; else :meth:`resume` goes on with it."""
        return (self.directory / RESULTS_FILE).is_file()

    @property
    def stages(self) -> "dict[str, Run]":
        """The run of each stage that was begun, by name; the last one's is this. Empty without."""
        if not (self.directory / STAGES_FILE).is_file():
            return {}
        names = [each["name"] for each in read_config(self.directory / STAGES_FILE)["stages"]]
        # the last stage's files are those of the run itself
        places = [*(self.directory / "stages" / name for name in names[:-1]), self.directory]
        begun = {
            n: at for n, at in zip(names, places, strict=True) if (at / MANIFEST_FILE).is_file()
        }
        return {name: Run(place) for name, place in begun.items()}

    @property
    def metrics(self) -> Results:
        """Held-out metrics by ``task/metric``: of the last step, or of the last evaluation yet."""
        if self.is_finished:
            return read_results(self.directory)
        found: Results = {}
        for row in history_rows(read_curves(self.directory)):
            if "val/loss" in row:
                found = {name: value for name, value in row.items() if name.startswith("val/")}
        return {name.removeprefix("val/"): value for name, value in found.items()}

    @property
    def history(self) -> "pandas.DataFrame":
        """What was logged, a row a step."""
        import pandas  # noqa: PLC0415  slow to import

        return pandas.DataFrame(history_rows(read_curves(self.directory)))

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved config: every key, with the values that the run has.

        Of a run in stages that of the last stage, or of the whole before it has begun.
        """
        path = self.directory / "config.yaml"
        return read_config(path if path.is_file() else self.directory / STAGES_FILE)

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """Versions, hashes, machine and command of the run."""
        with as_mistakes():
            return read_object(self.directory / MANIFEST_FILE)

    @cached_property
    def model(self) -> PretrainedModel:
        """The run's model: the best checkpoint of a fine-tuned run, else the last."""
        with as_mistakes():
            return load(self.directory)

    def predict(
        self, texts: Input | Sequence[Input], head: str | None = None
    ) -> list[dict[str, Any]]:
        """Return a prediction for each text; see :meth:`bertlab.PretrainedModel.predict`.

        Args:
            texts: one or several.
            head: the one of several heads that predicts.
        """
        with as_mistakes():
            model = self.model if head is None else load(self.directory, head)
        return model.predict(texts)

    def resume(self, overrides: Mapping[str, Any] | None = None) -> "Run":
        """Go on from the last checkpoint, exactly as if the run had not been interrupted."""
        return fit(None, {"ckpt_path": str(self.directory), **(overrides or {})})

    def __repr__(self) -> str:
        return f"<Run {self.directory}: {'finished' if self.is_finished else 'not finished'}>"

    def _repr_html_(self) -> str:
        shares = read_shares(self.directory)
        shown = {n: shown_figure(n, x, is_share(n, shares)) for n, x in self.metrics.items()}
        cells = (f"<td>{escape(name)}</td><td>{escape(x)}</td>" for name, x in shown.items())
        rows = "".join(f"<tr>{each}</tr>" for each in cells)
        return f"<b>{escape(repr(self))}</b><table>{rows}</table>"
