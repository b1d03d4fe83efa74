"""ModernBERT's layers, BPE and Unigram tokenizers, Muon, LAMB and Lion for bertlab."""
