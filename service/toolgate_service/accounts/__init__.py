"""Accounts: registration, login, sessions, and who is asking."""
