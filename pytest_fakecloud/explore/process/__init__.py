"""What ``explore()`` replaces in the process of the explored code."""
