"""ELMo for bertlab: a biLSTM language model as encoder, and its objective."""
