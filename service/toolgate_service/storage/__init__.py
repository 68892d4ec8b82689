"""Where the gateway keeps things: column types, the base of all tables, connections, migrations."""
