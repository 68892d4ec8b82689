"""AuthZEN mappings of MCP requests: the COAZ binding for MCP (COAZ-MCP, draft 1 of 17 July 2026).

A mapping describes the access evaluations that decide an MCP request. Its strings that begin with `$` are CEL expressions
over the request's `params` and the claims of the client's `token`.
"""
