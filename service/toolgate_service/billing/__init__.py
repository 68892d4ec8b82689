"""Billing of organizations: plans, usage, subscriptions, invoices, and events of the payment provider (Stripe)."""
