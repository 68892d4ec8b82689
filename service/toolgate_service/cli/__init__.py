"""Commands for operators (`toolgate admin`, `config` and `db`), and the offline parts of `toolgate policy`."""
