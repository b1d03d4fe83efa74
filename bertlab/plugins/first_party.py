"""The packages that are released with the core, and which of them brings what.

The core imports none of them. It knows their names, so that a config or a command that needs one of
them says what to install.
"""

OWN_PACKAGE = "bertlab-core"
METAPACKAGE = "bertlab-lightning"  # all of them; on PyPI, bertlab is somebody else's
# package: what it brings, as "kind name" of the index
_BRINGS = {
    "bertlab-cluster": "executor ray, executor slurm, name data.RemoteStore",
    "bertlab-conformance": (
        "name testing.ConformanceFailure, name testing.batch_of, name testing.conformance, "
        "name testing.list_checks"
    ),
    "bertlab-evaluations": (
        "command evaluate, command embed, command take-words, "
        "evaluation attention, evaluation held_out_loss, evaluation minimal_pairs, "
        "evaluation probing, evaluation sentence_similarity, "
        "key evaluations, key evaluate_every, key checkpoint_words"
    ),
    "bertlab-guard": "key check_every",
    "bertlab-interop": "exporter onnx, exporter sentence-transformers, reader tensorflow",
    "bertlab-modern": (
        "encoder modern, tokenizer bpe, tokenizer unigram, optimizer lamb, optimizer lion, "
        "optimizer muon, name ModernEncoder, tokenizer_model BPE, tokenizer_model Unigram, "
        "tokenizer_model WordLevel, huggingface_form roberta, model_type roberta, "
        "model_type modernbert"
    ),
    "bertlab-pages": "command demo, key push",
    "bertlab-studies": (
        "command study, command ablate, executor local, key seeds, key against_scratch, "
        "name Study, name StudyScores, name study"
    ),
    "bertlab-tasks": (
        "head feature_tagging, head multi_label, head multiple_choice, data_module several_heads, "
        "format ax, format codah, format cola, format conll, format mnli, format mnli_mismatched, "
        "format mrpc, format qnli, format qqp, format rte, format sick, format sick_relatedness, "
        "format snli, format squad, "
        "format sst2, format stsb, format swag, format wnli"
    ),
}
# what files of a reader end in, by which its package is missed
FILES_OF_READERS = {"tensorflow": ".index"}
# released with the core, at its version
FIRST_PARTY = frozenset({OWN_PACKAGE, *_BRINGS})


def package_of(kind: str, name: str) -> str | None:
    """Return the first-party package that brings something, installed or not; None if none does."""
    wanted = f"{kind} {name}"
    return next((each for each, all_ in _BRINGS.items() if wanted in all_.split(", ")), None)


def where_to_get(kind: str, name: str) -> str:
    """Return the end of a message about what is not installed; empty if nobody knows it."""
    package = package_of(kind, name)
    return "" if package is None else f"; it comes with {package}: pip install {package}"
