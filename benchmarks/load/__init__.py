"""Load for the gateway, its floor and its peers; see `benchmarks/README.md`."""
