"""The attention as loops for a CPU, which numba compiles.

``attention`` has the two passes, over ``products`` of eight rows of queries, made of vectors
(``lanes``). ``running`` says where compiled loops stand in for plain torch code, here and in the
model, and what derivatives they have.
"""
