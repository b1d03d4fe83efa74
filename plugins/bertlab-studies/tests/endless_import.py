"""A module whose import takes for ever."""

import time

while True:
    time.sleep(1)
