"""What the gateway should answer, written from the specification alone: simple, in memory, one request after another.

Nothing here imports the gateway. Where it and the gateway disagree, one of the two has misread the specification.
"""
