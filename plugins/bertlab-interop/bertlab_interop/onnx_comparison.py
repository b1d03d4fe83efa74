"""Size, speed and scores of a model in PyTorch and as an ONNX file, on the user's own rows."""

from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from bertlab.api import Encoder, EncoderOutput, Head, PackedBatch
from bertlab.extend import held_out_results, read_request
from bertlab_interop.onnx_file import FILE, layer_of, reads_pooled
from bertlab_interop.onnx_use import Compute, open_export, states_of, use_outputs

_COMPUTES_HERE = ("--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false")


class Comparison:
    """Compares forms of one model, each by ``bertlab validate`` on the same rows.

    What differs is who computes the outputs. Its time alone is measured, on the CPU with as many
    threads; the first batch, in which memory is allocated, does not count if there are others.

    Args:
        folder: of an export, whole but for its card.
        validation: the file of labelled rows.

    Attributes:
        content: ``rows``, ``file``, ``threads``, the name of the ``score``, and ``forms``: of each
            ``form``, ``bytes``, ``rows_per_second`` and ``results``.

    Raises:
        DataError: the rows cannot be read, or have no truth.
    """

    def __init__(self, folder: Path, validation: str) -> None:
        self.file = folder / FILE
        arguments = ("--ckpt_path", str(folder), "--data.validation", validation)
        self.cli = open_export("validate", read_request([*arguments, *_COMPUTES_HERE]))
        self.content: dict[str, Any] = {
            "file": Path(validation).name,  # where it is, is nobody's business
            "rows": sum(len(each.rows) for each in self.cli.datamodule.evaluation_sets()),
            "threads": torch.get_num_threads(),
            "score": "",
            "forms": [],
        }

    def add_model(self, encoder: Encoder, head: Head) -> None:
        """Measure the model in PyTorch, in float32."""
        layer = getattr(head, layer_of(head))

        def compute(batch: PackedBatch) -> EncoderOutput:
            output = encoder(batch)
            if reads_pooled(head):
                return states_of(batch, None, layer(output.pooled))
            return states_of(batch, layer(output.tokens), None)

        weights = {id(each): each for part in (encoder, head) for each in part.parameters()}
        size = sum(each.numel() * each.element_size() for each in weights.values())
        self._add("PyTorch fp32", size, compute)

    def add_file(self, form: str) -> None:
        """Measure the file as it is now."""
        size = sum(each.stat().st_size for each in self.file.parent.glob(f"{FILE}*"))
        self._add(form, size, self.cli.computed_by(self.file))

    def _add(self, form: str, size: int, compute: Compute) -> None:
        took: list[tuple[int, float]] = []  # sequences and seconds of each batch

        def timed(batch: PackedBatch) -> EncoderOutput:
            start = perf_counter()
            found = compute(batch)
            took.append((len(batch), perf_counter() - start))
            return found

        cli = self.cli
        use_outputs(cli.model, timed)
        cli.trainer.validate(cli.model, cli.datamodule, verbose=False)
        results = held_out_results(cli.trainer, "val")
        sequences = sum(number for number, _ in took)
        counted = took[1:] or took
        speed = sum(number for number, _ in counted) / sum(seconds for _, seconds in counted)
        self.content["score"] = self.content["score"] or self._score(results)
        self.content["forms"].append(
            {
                "form": form,
                "bytes": size,
                # a long text is several sequences
                "rows_per_second": speed * self.content["rows"] / sequences,
                "results": results,
            }
        )

    def _score(self, results: dict[str, float]) -> str:
        """Return the name of the metric that the head is judged by, of the first set."""
        ((name, head),) = self.cli.model.heads.items()
        monitor = getattr(head, "monitor", ("loss", "min"))[0]
        named = [key for key in results if key.startswith(f"{name}/") and key.endswith(monitor)]
        return named[0] if named else next(iter(results))
