"""SimCSE: the conformance kit, and what is its own."""

from bertlab_simcse.contrastive import SimCSE

from bertlab.testing import conformance

test_conformance = conformance(SimCSE)
