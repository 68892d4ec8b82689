"""Public base of all plugins: the bridge that checks, runs and logs the tool calls of an agent framework.

`docs/frameworks/custom/recipe.md` shows how to use it for a framework that has no plugin.
"""

from toolgate_integrations._arguments import (
    AnnotatedSchema,
    ArgumentSchema,
    CustomSchema,
    InvalidArgumentsError,
    JsonSchema,
    ModelSchema,
    RawSchema,
    SignatureSchema,
)
from toolgate_integrations._bridge import Bridge
from toolgate_integrations._calls import Begun
from toolgate_integrations._naming import ToolActions, ToolCall
from toolgate_integrations._options import OnHold
from toolgate_integrations._registry import MissingFrameworkError, require
from toolgate_integrations.refusals import SETUP_ERRORS, describe_pending, find_error, refusal_text

__all__ = [
    "SETUP_ERRORS",
    "AnnotatedSchema",
    "ArgumentSchema",
    "Begun",
    "Bridge",
    "CustomSchema",
    "InvalidArgumentsError",
    "JsonSchema",
    "MissingFrameworkError",
    "ModelSchema",
    "OnHold",
    "RawSchema",
    "SignatureSchema",
    "ToolActions",
    "ToolCall",
    "describe_pending",
    "find_error",
    "refusal_text",
    "require",
]
