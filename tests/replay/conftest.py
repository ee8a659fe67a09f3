"""The cloud of tests that need no settings of their own."""

from ..reporting.conftest import cloud as cloud
