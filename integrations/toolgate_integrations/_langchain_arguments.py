"""Arguments as the function of a LangChain tool receives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from langchain_core.tools import BaseTool
from pydantic import BaseModel, create_model

from toolgate_integrations._arguments import (
    ArgumentSchema,
    CustomSchema,
    RawSchema,
    encoded,
    with_signature_defaults,
)
from toolgate_integrations._json_schema import with_defaults

__all__ = ["schema_of"]

# LangChain passes these by itself.
_OWN: Final = frozenset(("run_manager", "callbacks", "config"))


def schema_of(tool: object, function: object) -> ArgumentSchema:
    """Return the schema by which LangChain validates the calls of a tool.

    Args:
        tool: The tool.
        function: The function that it calls.
    """
    if not isinstance(tool, BaseTool):
        return RawSchema()
    schema = tool.args_schema
    if isinstance(schema, dict):
        return _of_json_schema(tool, schema, function)
    injected = _injected(tool)
    model = schema if isinstance(schema, type) and issubclass(schema, BaseModel) else None
    probe = tool
    if model is not None and injected & model.model_fields.keys():
        # Injected arguments are not there yet: LangGraph adds them right before the tool runs.
        absent: Any = dict.fromkeys(injected & model.model_fields.keys(), (Any, None))
        probe = tool.model_copy(
            update={"args_schema": create_model(model.__name__, __base__=model, **absent)}
        )

    def receive(sent: dict[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in sent.items() if name not in injected}
        parsed: Any = probe._parse_input(given, "call") if given or model is not None else given  # noqa: SLF001 - the one place where it validates
        found = {name: value for name, value in dict(parsed).items() if name not in injected}
        return with_signature_defaults(found, function, injected | _OWN)

    def encode(received: Mapping[str, Any]) -> dict[str, Any]:
        return dict(received) if model is None else encoded(model, received)

    return CustomSchema(receive, encode)


def _of_json_schema(tool: BaseTool, schema: dict[str, Any], function: object) -> ArgumentSchema:
    injected = _injected(tool)

    def receive(sent: dict[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in sent.items() if name not in injected}
        return with_signature_defaults(with_defaults(given, schema), function, injected | _OWN | {"runtime"})

    return CustomSchema(receive)


def _injected(tool: BaseTool) -> frozenset[str]:
    """The parameters that the framework passes, and not the model."""
    names = frozenset(tool._injected_args_keys)  # noqa: SLF001 - its only name
    if isinstance(tool.args_schema, dict):
        return names
    everything = set(getattr(tool.get_input_schema(), "model_fields", ()))
    shown: Any = tool.tool_call_schema
    asked = set(getattr(shown, "model_fields", ()))
    return names | frozenset(everything - asked) if asked or not everything else names
