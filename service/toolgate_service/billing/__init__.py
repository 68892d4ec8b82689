"""Billing: plans, usage, subscriptions and the payment provider's events."""
