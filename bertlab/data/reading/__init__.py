"""Lines, tables and data sets: read once, for corpora and for labelled examples."""
