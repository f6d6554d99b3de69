"""Compare the policy (config and lock) with the policy at the baseline."""
