"""The self-hosted permission gateway of Toolgate."""
