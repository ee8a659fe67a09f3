"""Does the fake behave like yours? The same scenarios on a real service and on the fake, compared.

``pytest-fakecloud verify --kv URL --token TOKEN`` is the command (``command``), ``run.verify`` what it
calls, ``catalogue`` what is asked. It writes only under a random prefix, cleans up after itself and
asks no more than a free plan allows.
"""
