"""The team: an organization's users, and who is invited to become one."""
