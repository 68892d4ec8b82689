"""Every page and form of the settings."""

from collections.abc import Sequence

from starlette.routing import Route

from toolgate_service.console.settings import (
    account,
    keys,
    organization,
    plan,
    slack,
    team,
    webhook,
    webhooks,
)

ROUTES: Sequence[Route] = (
    *organization.ROUTES,
    *keys.ROUTES,
    *team.ROUTES,
    *webhooks.ROUTES,
    *webhook.ROUTES,
    *slack.ROUTES,
    *plan.ROUTES,
    *account.ROUTES,
)
