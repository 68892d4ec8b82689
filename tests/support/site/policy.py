"""The JSON Schema of policy documents, from the class that reads them."""

import json

from toolgate_service.cli.policy import policy_schema


def render_policy_schema() -> str:
    """Return the file."""
    return json.dumps(policy_schema(), indent=2) + "\n"
