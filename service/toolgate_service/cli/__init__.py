"""Implementation of the operator's commands `toolgate admin`, `toolgate config` and `toolgate db`."""
