"""SimCSE: the conformance kit, and what is its own."""

from bertlab.testing import conformance
from bertlab_simcse.contrastive import SimCSE

test_conformance = conformance(SimCSE)
