"""Everything that bertlab brings keeps its own contract; one line each, as in a plugin's tests."""

import pytest

from bertlab.encoders.bert import BertEncoder
from bertlab.objectives.classification import Accuracy, MajorityAccuracy
from bertlab.testing import conformance
from bertlab.tokenizer.files import WordPieceTokenizer
from bertlab_evaluations.attention import Attention
from bertlab_modern.lora import LoRA
from bertlab_modern.modern import ModernEncoder
from bertlab_modern.sam import Sam
from bertlab_modern.span_masking import Span as MaskedSpan
from bertlab_tasks.row_transforms import TextLength
from bertlab_tasks.span import Span
from good_exchange import tokenizer_model_arguments

SMALL = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
BERT_LIKE = {
    "position_embedding": "learned",
    "norm": "rms",
    "norm_position": "post",
    "feed_forward": "plain",
    "bias": True,
    "type_vocab_size": 2,
    "initialization": "normal",
    "hidden_dropout_prob": 0.1,
}


def in_no_run(example: str) -> dict[str, str]:
    """Skip the runs of what is one more value of something: those of the example are the same."""
    return dict.fromkeys(
        ("works_in_a_run", "run_goes_on_without_its_config"), f"as {example} in a run"
    )


test_mlm = conformance("mlm")
test_nsp = conformance("nsp")
test_clm = conformance("clm")
test_single_sentence = conformance("single_sentence")
test_sentence_pair = conformance("sentence_pair")
test_regression = conformance("sentence_pair", arguments={"regression": True})
test_tagging = conformance("tagging")
test_span = conformance(Span, arguments={"unanswerable": True})
test_held_out_loss = conformance("held_out_loss")
test_several_heads = conformance("several_heads")
test_wordpiece_files = conformance(WordPieceTokenizer, arguments=tokenizer_model_arguments)
test_attentions = conformance("PretrainedModel.attentions")
test_minimal_pairs = conformance("minimal_pairs")
test_attention = conformance(Attention)
test_bert = conformance(BertEncoder, arguments=SMALL)
test_left_to_right = conformance(BertEncoder, arguments=SMALL | {"causal": True})
test_modern = conformance(ModernEncoder, arguments=SMALL | {"global_every": 2, "local_window": 6})
test_modern_left_to_right = conformance(
    ModernEncoder,
    arguments=SMALL | {"causal": True, "global_every": 2, "local_window": 6},
    skip=in_no_run("bert left to right"),
)
test_modern_as_bert = conformance(ModernEncoder, arguments=SMALL | BERT_LIKE)
test_adamw = conformance("adamw", skip=in_no_run("mlm"))  # which adamw trains
test_muon = conformance("muon")
test_lamb = conformance("lamb")
test_lion = conformance("lion")
test_schedule_free = conformance("schedule_free")
test_sam = conformance(Sam)
test_lora = conformance(LoRA)
test_constant = conformance("constant", skip=in_no_run("linear"))
test_linear = conformance("linear")
test_cosine = conformance("cosine", skip=in_no_run("linear"))
test_inverse_sqrt = conformance("inverse_sqrt", skip=in_no_run("linear"))
test_wsd = conformance("wsd", skip=in_no_run("linear"))
test_plateau = conformance("plateau")
test_token = conformance("token", skip=in_no_run("mlm"))
test_whole_word = conformance("whole_word", skip=in_no_run("span of words"))
test_masked_spans = conformance(MaskedSpan)
test_segment_pairs = conformance("segment_pairs", skip=in_no_run("mlm"))
test_sentence_pairs = conformance("sentence_pairs", skip=in_no_run("mlm"))
test_doc_sentences = conformance("doc_sentences", skip=in_no_run("full_sentences"))
test_full_sentences = conformance("full_sentences")
test_lower_case = conformance("lower_case")
test_text_length = conformance(
    TextLength, arguments={"least": 4, "most": 9}, skip=in_no_run("lower_case")
)
test_accuracy = conformance(Accuracy)
test_majority_accuracy = conformance(MajorityAccuracy)
test_wordpiece = conformance("wordpiece")
test_bpe = conformance("bpe")
test_unigram = conformance("unigram")
test_transformers = conformance("transformers")
test_sentence_transformers = conformance("sentence-transformers")
test_onnx = pytest.mark.nightly(conformance("onnx"))
test_tensorflow = conformance("tensorflow")
test_study = conformance("study")
test_ablate = conformance("ablate")
test_evaluate = conformance("evaluate")
test_embed = conformance("embed")
test_demo = conformance("demo")
test_conll = conformance("conll")
test_squad = conformance("squad")
test_mnli = conformance("mnli")
test_local = conformance("local")
test_slurm = conformance("slurm")
test_guard = conformance("guard")
test_evaluations = conformance("evaluations")
