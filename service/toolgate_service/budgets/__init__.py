"""Budgets, which limit the number or the total amount of tool calls in a time window."""
