"""One YAML file for each dataset, and for each baseline where it differs."""
