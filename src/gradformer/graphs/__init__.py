"""Graphs as data: arrays, sources, splits, the packed store and the batch a model takes."""
