"""Readers of published dataset files, one file for each format.

A reader takes opened files and gives :class:`~gradformer.graphs.arrays.GraphArrays`; the order of
graphs and nodes is that of the files.
"""
