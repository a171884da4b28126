"""Graphs as data, from files to the batch that a model takes.

A benchmark has a card (``cards``), its files lie in a ``mirror`` and have a reader (``sources``),
or it is drawn (``sbm``); ``datasets`` opens it, with ``splits``, and ``summary`` describes it. A
user's graphs come by a path (``own``) or as ``objects``: ``tables`` (from ``table_files``),
``jsonl``, ``tu_folder``, ``pyg_data``, ``molecules`` (many of them in ``processes``) make each a
graph (``raw_graphs``) with targets (``labels``, ``object_targets``), which ``assemble`` makes one
``user_data``, for ``user_splits``.

Both are ``arrays``. From there: what is computed (``structures``), edges in order (``ordering``), a
``store`` on disk (``atomic``), its graphs gathered (``collate``; ``fused_gather`` with
``gather_kernels``) as a ``batch``. ``targets`` scales what is learned, ``portable`` draws at
random.
"""
