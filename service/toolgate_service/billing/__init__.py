"""Billing: what an organization pays for, and what follows from paying."""
