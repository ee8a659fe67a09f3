"""ACL users: passwords, rules, permission checks, and the log of denials."""
