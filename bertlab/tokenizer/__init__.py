"""WordPiece: text to ids and back, vocabularies from files, training."""
