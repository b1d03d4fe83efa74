"""What a fine-tuned or pre-trained Hugging Face folder predicts: its head, labels and objectives.

A folder, or a model on the hub, has no config of bertlab's, so ``bertlab predict --ckpt_path
FOLDER`` takes the head from its class and starts from its weights.
"""

import os
from pathlib import Path
from typing import Any

from bertlab.api.examples import Labels
from bertlab.checkpoints.huggingface import CONFIG_FILES, HUB_NAME, read_foreign
from bertlab.checkpoints.huggingface_head import HuggingFaceHead
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.run_directory import MANIFEST_FILE
from bertlab.config.request import Request
from bertlab.config.yaml_files import split_arguments, yaml_inline
from bertlab.errors import CheckpointError

# head of bertlab by BERT's class of ``transformers``; sentence_pair has single_sentence's layers
_HEADS = {
    "BertForSequenceClassification": "single_sentence",
    "BertForTokenClassification": "tagging",
    "BertForQuestionAnswering": "span",
    "BertForMultipleChoice": "multiple_choice",
}
_LONGEST = 512  # tokens that are read unless the arguments say otherwise: as the models of BERT


def is_model(path: str) -> bool:
    """Return whether a path is a folder of Hugging Face's or BERT's, and not a run of bertlab's.

    OWNER/NAME is a model of the hub, unless there is a folder OWNER: then it is a run's directory.
    """
    folder = Path(path).expanduser()
    if not os.path.lexists(folder):
        return "/" in path and bool(HUB_NAME.fullmatch(path)) and not folder.parent.exists()
    named = any((folder / name).is_file() for name in CONFIG_FILES)
    return named and not (folder / MANIFEST_FILE).exists()


def head_settings(head: HuggingFaceHead, name: str | None = None) -> dict[str, Any]:
    """Return the config section ``model.head`` of a fine-tuned model."""
    if head.problem_type is not None:
        return {"name": "multi_label"}
    settings: dict[str, Any] = {"name": name or _HEADS[head.layout.kind]}
    if head.layout.kind == "BertForSequenceClassification" and not head.has_classes:
        settings["regression"] = True
    return settings


def class_labels(start: Pretrained) -> Labels | None:
    """Return the labels of an earlier model; classes without names get their numbers."""
    head = start.head
    if start.labels is not None or head is None or not head.has_classes:
        return start.labels
    names = tuple(str(number) for number in range(head.num_rows))  # LABEL_0, LABEL_1, …
    return Labels(names, (0,) * head.num_rows)


def use_folder(request: Request) -> list[str]:
    """Return the arguments of a request, with ``--ckpt_path FOLDER`` as weights to start from.

    The head or the objectives are those of the folder, where the request names none.
    """
    assert request.ckpt_path is not None
    found = read_foreign(request.ckpt_path)
    keys = [key for key, _, _ in split_arguments(request.argv)]
    rest = [
        token
        for key, _, tokens in split_arguments(request.argv)
        if key != "--ckpt_path"
        for token in tokens
    ]
    rest += ["--model.init_from", request.ckpt_path]
    if not request.fine_tunes and not request.objectives_named:
        if found.head is not None:
            settings = head_settings(found.head, _pair_head(keys, found.head))
            rest += ["--model.head", yaml_inline(settings)]
        elif found.task_states:
            rest += ["--model.objectives", yaml_inline(list(found.task_states))]
        else:
            raise CheckpointError(
                f"{found.source}: has an encoder only, nothing to predict with; fine-tune it with "
                f"--model.init_from {request.ckpt_path}, or see bertlab embed"
            )
    if "--data.max_seq_length" not in keys and not request.files:
        longest = found.encoder_config.get("max_position_embeddings", _LONGEST)
        rest += ["--data.max_seq_length", str(min(longest, _LONGEST))]
    return rest


def _pair_head(keys: list[str], head: HuggingFaceHead) -> str | None:
    """Return the head that reads two texts, where two are given; its layers are the same."""
    reads_pairs = "--data.text_pair" in keys and "Sequence" in head.layout.kind
    return "sentence_pair" if reads_pairs else None
