"""What the document says in prose."""

DESCRIPTION = """\
An agent, or the code that runs it, asks the gateway before it acts (`/sdk/check`) and records what came of it
afterwards (`/sdk/log`). People manage agents, permissions and approvals under `/api`.

- **Credentials.** `/sdk/*` takes an API key in `X-API-Key`; `/auth/*` and `/api/*` take a bearer token.
- **Errors** are JSON `{"detail": …}`: words, a map from field to messages (400), or an object (plan limits).
- **Bodies** are strict JSON whatever their `Content-Type`, at most 256 KiB; unknown fields are refused under `/api`
  and `/auth`, and ignored under `/sdk`. No string may contain the character U+0000.
- **Numbers** are read and compared exactly, never through a binary float.
- **Environments.** A `test_…` key acts on test data; `/api/*` selects them with `environment=test`.
- **Methods.** Another method on a path is 405 with the right ones in `Allow`; an unknown path is 404.
"""

TAGS = (
    {"name": "sdk", "description": "What agents call: ask before, record after."},
    {"name": "accounts", "description": "Registration, login, the current user."},
    {"name": "team", "description": "The organization's users, and who is invited."},
    {"name": "organization", "description": "The organization and its keys."},
    {"name": "agents", "description": "Who acts."},
    {"name": "permissions", "description": "What an agent may do."},
    {"name": "approvals", "description": "Held checks, and what people decide about them."},
    {"name": "logs", "description": "What agents did."},
    {"name": "webhooks", "description": "Who is told of events, and what became of each delivery."},
    {"name": "slack", "description": "Which Slack user decides as which member."},
    {"name": "billing", "description": "Plan, usage, subscription and invoices."},
    {"name": "audit", "description": "Who changed what, when and from where."},
    {"name": "documentation", "description": "This document, for programs and for people."},
    {"name": "health", "description": "Whether the gateway is alive."},
)
