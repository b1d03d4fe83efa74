"""Rows of files, folders and hub: one reader for corpora and for labelled examples."""
