"""The data of fakes, as the console, the control API and explorations read it."""
