"""A folder that ``sentence_transformers`` loads: the encoder, and the mean over its tokens."""

from pathlib import Path

from bertlab import Pretrained
from bertlab.extend import read_object, write_json
from bertlab_interop.contract import ExportReport, ModelAddress
from bertlab_interop.transformers_folder import TransformersExporter

_KINDS = ("Transformer", "Pooling")
_PLACES = ("", "1_Pooling")


class SentenceTransformersExporter(TransformersExporter):
    """A folder for ``sentence_transformers``, beside what ``transformers`` loads.

    A text's vector is the mean of the last layer's states over all its tokens, ``[CLS]`` and
    ``[SEP]`` too, as of ``bertlab embed --layers [-1] --pool mean``.
    """

    has_heads = False

    def write(self, model: Pretrained, folder: Path) -> ExportReport:
        """Write the encoder, and files by the names that all versions read."""
        report = super().write(model, folder)
        modules = [
            {
                "idx": n,
                "name": str(n),
                "path": place,
                "type": f"sentence_transformers.models.{kind}",
            }
            for n, (kind, place) in enumerate(zip(_KINDS, _PLACES, strict=True))
        ]
        pooling = {
            "word_embedding_dimension": read_object(folder / "config.json")["hidden_size"],
            "pooling_mode_cls_token": False,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        }
        length = read_object(folder / "tokenizer_config.json")["model_max_length"]
        write_json(folder / "modules.json", modules)
        write_json(
            folder / "sentence_bert_config.json",
            {"max_seq_length": length, "do_lower_case": False},
        )
        (folder / _PLACES[1]).mkdir()
        write_json(folder / _PLACES[1] / "config.json", pooling)
        report.description += ", whose vector of a text is the mean over its tokens"
        report.pipeline = "sentence-similarity"
        return report

    def loading_code(self, report: ExportReport, address: ModelAddress) -> list[tuple[str, str]]:
        """Return the lines of ``sentence_transformers``, then those of a plain export."""
        code = (
            "from sentence_transformers import SentenceTransformer\n\n"
            f"model = SentenceTransformer({address.arguments})\n"
            'vectors = model.encode(["A text.", "Another one."])'
        )
        return [("sentence-transformers", code), *super().loading_code(report, address)]
