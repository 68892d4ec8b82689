"""Proof that a new policy treats no tool call more leniently than the old policy.

A proof covers all calls at once: this package translates both policies into formulas, and Z3 searches for a call for
which the new policy is more lenient. No other package uses Z3, which the extra `prove` installs. The entry point is
`toolgate_service.policies.proof.prove`.
"""
