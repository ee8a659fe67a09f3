"""Keep bytecode even if the environment forbids it, before pytest imports ``conftest``.

Otherwise each run, worker and child process would compile everything, which takes as long as 2,000
tests.

Also let clients trust the certificates that they come with. While the environment names others, each
asynchronous client reads these again, as its event loop must not wait for the file's version: most of
the time of an exploration that opens such clients. The tests of these variables set them.
"""

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
for variable in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
    os.environ.pop(variable, None)
