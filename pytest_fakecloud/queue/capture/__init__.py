"""The ``callback_capture`` fake, which receives callbacks."""
