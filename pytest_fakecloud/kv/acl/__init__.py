"""ACL users: passwords, rules, the check of a command line, and the log of denied ones."""
