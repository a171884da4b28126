"""Gradformer: encoders, local modules, the layer, heads, the model."""
