"""Verifier of the transparency log: exports, receipts and checkpoints.

The folder works alone, for auditors who do not trust the rest of Toolgate: it needs Python 3.11 and the package
``cryptography``, and imports nothing else.

    python verification FILE --state seen.json

An export contains the leaves of a Merkle tree (RFC 6962) and the rows of the gateway's database. The verifier computes
the tree from the leaves, checks the signed checkpoint, compares the tree with each checkpoint that it has seen before,
and compares each row with its leaf.
"""
