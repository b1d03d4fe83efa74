"""The heads of bertlab-tasks keep their contract."""

from bertlab.testing import conformance

NARROW = {"hidden_size": 16}  # the LSTM

test_feature_tagging = conformance("feature_tagging", arguments=NARROW)
test_multi_label = conformance("multi_label")
test_multiple_choice = conformance("multiple_choice")
