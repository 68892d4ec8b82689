"""``toolgate hook``: hooks that coding agents run around tool calls, and their installation."""
