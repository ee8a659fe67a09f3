"""How many examples a generated test tries: one number for the whole suite."""

import os

EXAMPLES = int(os.environ.get("PYTEST_FAKECLOUD_EXAMPLES", "30"))
"""Few while one works; the gate tries 150. Which ones are tried is the same in every run."""
