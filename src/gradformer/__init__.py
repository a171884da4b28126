"""Gradformer."""
