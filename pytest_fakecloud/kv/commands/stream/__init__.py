"""Stream commands."""

from . import entries as entries
from . import groups as groups
