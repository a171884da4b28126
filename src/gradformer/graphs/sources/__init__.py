"""Readers of published dataset files, one file for each format.

A reader takes opened files and gives :class:`~gradformer.graphs.arrays.GraphArrays`; the order of
graphs and nodes is that of the files: ``tu``, ``zinc``, ``sbm_file``, ``molhiv``, ``peptides``,
``planetoid``, ``actor``. ``readers`` chooses one; ``text`` and ``pickles`` parse for them.
"""
