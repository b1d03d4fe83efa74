"""``python -m bertlab`` is the ``bertlab`` command."""

import sys

from bertlab.cli.main import main

sys.exit(main())
