"""Slack: a webhook that speaks to people, and the people who decide there (decisions §5, §9, §10)."""
