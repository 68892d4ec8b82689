"""The gateway in the agent's own process: `Guard.embedded`."""
