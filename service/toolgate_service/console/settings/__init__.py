"""Settings: the organization, its keys, team, webhooks, Slack, plan, and one's own account."""
