"""The values that all parts of an exploration share; a ``Trial`` is what the others make and look at."""
