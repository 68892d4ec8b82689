"""Proof that a changed policy treats no tool call more leniently than the policy before.

The package answers the question for all calls at once: it translates both policies into formulas, and Z3 searches for a
call for which the new policy is more lenient. Only `toolgate_service.policies.proof` uses Z3, which the extra `prove`
installs. The entry point is `toolgate_service.policies.proof.prove`.
"""
