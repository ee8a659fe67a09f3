"""Records calls and events, within limits of number and size."""
