"""Policies as code: one document describes the agents, permissions, rules and budgets of an environment."""
