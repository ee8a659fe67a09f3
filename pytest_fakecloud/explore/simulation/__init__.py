"""Runs explored code once, under one schedule. Read the modules in this order:

* One trial: ``simulation`` makes all parts, ``part`` says what they have in common, and ``script`` what
  is played. ``log`` and ``access_log`` are what a trial leaves.
* A strand: ``strand`` has its states, ``rest`` what it waits for, and ``turns`` how the turn passes from
  one to another, in threads of the ``pool``. ``current_thread`` says whose thread asks.
* What comes next: ``scheduler`` and ``decisions``, with the restarts of ``workers`` and the starts of
  ``delivery_strands``; ``operations`` checks promises in between.
* A call: ``callers`` says whose it is, ``calls`` serves it, ``call_disturbances`` and ``pauses`` disturb
  it, and ``stacks`` finds the line of the application that makes it.
* Time: ``clock`` moves it to ``known_times``, for which ``strand_waits`` and ``sleepers`` wait, and
  ``loops``, the event loops.
* What the turn does not control: ``real_waits``, ``watchdog``, ``outsiders`` and ``thread_states``.
"""
