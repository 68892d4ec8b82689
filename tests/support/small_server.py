"""An MCP server of the handshake era, written by nobody we know: what it lists and does stands in a folder.

`tools.json` there is read again for each list, so that a test changes what a tool says while the server runs; `ran.jsonl`
tells which tools ran. It has no library of ours or of the protocol's, and starts in no time.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
PAGE = 2
SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}, "amount": {"type": "integer"}}}
NAMES = ("look", "pay", "drop", "burn", "env", "ask", "sample", "roots", "work", "die", "change", "hang")
ASKS = {
    "ask": (
        "elicitation/create",
        {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}},
    ),
    "sample": (
        "sampling/createMessage",
        {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5},
    ),
    "roots": ("roots/list", {}),
}
OFFERS = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {"subscribe": True},
    "logging": {},
    "completions": {},
}


def listed() -> list[dict[str, Any]]:
    file = FOLDER / "tools.json"
    if file.exists():
        found: list[dict[str, Any]] = json.loads(file.read_text())
        return found
    return [{"name": name, "description": f"Does {name}.", "inputSchema": SCHEMA} for name in NAMES]


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(said: str, *, wrong: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], "isError": wrong}


def ran(name: str, arguments: Any) -> None:
    with (FOLDER / "ran.jsonl").open("a") as file:
        file.write(json.dumps([name, arguments]) + "\n")


def called(params: dict[str, Any]) -> dict[str, Any]:
    name, arguments = params["name"], params.get("arguments") or {}
    ran(name, arguments)
    if name in ASKS:
        method, question = ASKS[name]
        send(id="question", method=method, params=question)
        answer = json.loads(sys.stdin.readline())
        return text(json.dumps(answer.get("result") or answer.get("error")), wrong="error" in answer)
    if name == "burn":
        return text("it does not burn", wrong=True)
    if name == "env":
        return text(json.dumps(dict(os.environ)))
    if name == "work":
        send(method="notifications/message", params={"level": "info", "data": "at work"})
        token = params["_meta"]["progressToken"]
        send(method="notifications/progress", params={"progressToken": token, "progress": 1, "total": 2})
    if name == "change":
        (FOLDER / "tools.json").write_text(json.dumps([{**each, **arguments} for each in listed()]))
        send(method="notifications/tools/list_changed")
    if name == "die":
        os._exit(3)
    if name == "hang":
        while True:
            sys.stdin.readline()
    return text(f"{name} {json.dumps(arguments, sort_keys=True)}")


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": OFFERS,
                "serverInfo": {"name": "small", "version": "1"},
                "instructions": "Be careful.",
            }
        case "tools/list":
            tools, start = listed(), int(params.get("cursor") or 0)
            more = {"nextCursor": str(start + PAGE)} if start + PAGE < len(tools) else {}
            return {"tools": tools[start : start + PAGE], **more}
        case "tools/call":
            return called(params)
        case "prompts/list":
            return {"prompts": [{"name": "greet"}]}
        case "prompts/get":
            return {"messages": [{"role": "user", "content": {"type": "text", "text": "hello"}}]}
        case "resources/list":
            return {"resources": [{"uri": "small://one", "name": "one"}]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": "the one"}]}
        case "completion/complete":
            return {"completion": {"values": ["ada"]}}
        case "logging/setLevel" | "resources/subscribe":
            return {}
    return None


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked or "method" not in asked:
            continue
        result = answer(asked["method"], asked.get("params") or {})
        if result is None:
            send(id=asked["id"], error={"code": -32601, "message": f"no {asked['method']} here"})
        else:
            send(id=asked["id"], result=result)


main()
