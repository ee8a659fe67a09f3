"""Side-by-side measurements: every figure is a ratio between things timed in turns in one run.

Absolute times say more about the machine than about the code, so what is printed, and what the
limits are set on, is always a ratio: ours against the floor of the platform, or against a peer.
"""
