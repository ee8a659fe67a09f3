"""The RDB format of Redis and Valkey: DUMP payloads, FUNCTION DUMP payloads and ``.rdb`` files.

Pure code over byte strings and the classes of ``kv/values``: no file is opened here. ``payload`` and
``file`` are the two ways in; ``reader`` and ``writer`` know the values, ``listpack``, ``ziplist`` and
``intset`` the packed structures inside of them, ``source`` and ``lzf`` lengths and strings.
"""
