"""Database of the gateway: column types, base class of the tables, connections and schema migrations."""
