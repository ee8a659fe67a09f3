"""Users and what they may do: passwords, rules, the check of a command, and the log of refusals."""
