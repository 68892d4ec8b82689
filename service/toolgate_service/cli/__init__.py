"""Implementation of the commands for operators of a gateway: `toolgate admin`, `toolgate config` and `toolgate db`."""
