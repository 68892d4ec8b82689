"""The generated pages of the reference."""

from collections.abc import Callable, Mapping

from support.site.commands import render_commands
from support.site.endpoints import render_endpoints
from support.site.events import render_events
from support.site.navigation import DOCS
from support.site.policy import render_policy_schema
from support.site.settings import render_settings

PAGES: Mapping[str, Callable[[], str]] = {
    "reference/cli.md": render_commands,
    "reference/events.md": render_events,
    "reference/http-endpoints.md": render_endpoints,
    "reference/policy.schema.json": render_policy_schema,
    "reference/settings.md": render_settings,
    # The command line contains the same file, because it does not import the gateway.
    "../guard/toolgate_cli/policy/policy.schema.json": render_policy_schema,
}


def write_pages() -> None:
    """Write the generated pages into the folder `docs`."""
    for page, render in PAGES.items():
        (DOCS / page).write_text(render())
