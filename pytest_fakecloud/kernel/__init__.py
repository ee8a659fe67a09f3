"""What the four services share: server, pipeline, clock, journal, faults, auth, ids.

The pure half (``clock``, ``instants``, ``errors``, ``ids``, ``journal``, ``auth``) uses the standard
library only and may be imported by engines. The edge (``hub``, ``server``, ``app``, ``routing``,
``reading``, ``faults``, ``handle``) knows HTTP and is for routes and handles.
"""
