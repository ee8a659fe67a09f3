"""Parts of ``explore()`` that can be deleted, one by one: everything else works without them."""
