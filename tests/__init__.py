"""Keep bytecode even if the environment forbids it, before pytest imports ``conftest``.

Otherwise each run, worker and child process would compile everything, which takes as long as 2,000
tests.
"""

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
