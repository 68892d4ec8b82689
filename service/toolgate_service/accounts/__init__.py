"""Accounts: users, login, sessions and password resets."""
