"""Everything that bertlab brings keeps its own contract; one line each, as in a plugin's tests."""

from bertlab.encoders.bert import BertEncoder
from bertlab.evaluations.attention import Attention
from bertlab.objectives.classification import Accuracy, MajorityAccuracy
from bertlab.testing import conformance

SMALL = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
NARROW = {"hidden_size": 16}  # the LSTM of feature_tagging

test_mlm = conformance("mlm")
test_nsp = conformance("nsp")
test_clm = conformance("clm")
test_single_sentence = conformance("single_sentence")
test_sentence_pair = conformance("sentence_pair")
test_regression = conformance("sentence_pair", arguments={"regression": True})
test_tagging = conformance("tagging")
test_feature_tagging = conformance("feature_tagging", arguments=NARROW)
test_span = conformance("span", arguments={"unanswerable": True})
test_multiple_choice = conformance("multiple_choice")
test_minimal_pairs = conformance("minimal_pairs")
test_attention = conformance(Attention)
test_bert = conformance(BertEncoder, arguments=SMALL)
test_left_to_right = conformance(BertEncoder, arguments=SMALL | {"causal": True})
test_accuracy = conformance(Accuracy)
test_majority_accuracy = conformance(MajorityAccuracy)
test_wordpiece = conformance("wordpiece")
test_bpe = conformance("bpe")
test_unigram = conformance("unigram")
