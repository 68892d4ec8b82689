"""``toolgate hook``: what coding agents run before and after each tool call, and putting it into their settings."""
