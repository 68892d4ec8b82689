"""``toolgate hook``: hooks that coding agents run before and after tool calls, and their installation."""
