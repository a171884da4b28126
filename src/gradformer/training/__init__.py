"""Recipes, the training step, trials, checkpoints and runs."""
