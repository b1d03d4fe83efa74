"""Downstream heads: supervised tasks on labelled rows, one file each (paper sec. 4)."""
