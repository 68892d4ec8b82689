"""The audit log: leafed through, searched, followed as it is written, and taken away as a file."""
