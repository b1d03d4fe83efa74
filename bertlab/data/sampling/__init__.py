"""From the token store to packed sequences: stateless, a function of seed, epoch and index."""
