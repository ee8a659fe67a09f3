"""What the fakes must bear: hostile bytes, crowds of clients, thousands of clouds, dying processes.

Each module has a short run for every day and a long one, marked ``long``:
``python -m pytest tests/robustness -m long``.
"""
