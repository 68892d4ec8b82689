"""AuthZEN Access Request and Approval Profile: requestable denials, access requests and re-evaluations."""
