"""The cloud and its process while they are explored: what is replaced, and leads to the simulation.

``world`` plays trials. ``patches`` lists all that is replaced, in its order: ``clocks``, ``sockets``,
``asyncio_library`` with its ``asyncio_loops``, ``locks``, ``threads``, ``processes``, ``randomness``,
and what the code has stored before (``stored_objects``). ``waits`` decides who waits how, and
``interceptors`` pass on what comes to the fakes.
"""
