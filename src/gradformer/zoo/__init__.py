"""The fourteen baselines, one file each."""
