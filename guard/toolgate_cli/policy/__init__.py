"""``toolgate policy``: the agents, permissions, rules and budgets of an environment as a file."""
