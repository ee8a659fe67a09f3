"""ACL users: passwords, rules, the check of command lines, and the log of denied ones."""
