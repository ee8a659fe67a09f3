"""The results of ``explore()``: what held, or what broke, with its cause, story and page."""
