"""Named tasks (GLUE, SQuAD, SWAG, CoNLL), their submissions and further heads for bertlab."""
