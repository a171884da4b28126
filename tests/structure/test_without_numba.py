"""All of structure in an interpreter that cannot import numba, or where it is switched off."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from gradformer.structure import curvature_distances, hop_distances, laplacian, random_walk
from gradformer.structure.curvature import FORMAN, OLLIVIER, edge_curvature

from .random_graphs import directed, pack, path, undirected

SCRIPT = """
import os, sys
if "NUMBA_DISABLE_JIT" not in os.environ:
    sys.modules["numba"] = None
import numpy as np
from gradformer.structure import curvature_distances, hop_distances, laplacian, random_walk
from gradformer.structure.curvature import FORMAN, OLLIVIER, edge_curvature
from gradformer.structure.parallel import HAVE_NUMBA
assert not HAVE_NUMBA
file = np.load(sys.argv[1])
graphs = [file[name] for name in ("node_ptr", "edge_ptr", "edge_index")]
np.savez(
    sys.argv[2],
    hops=hop_distances(*graphs),
    both=hop_distances(*graphs, symmetric=True),
    ollivier=edge_curvature(*graphs, OLLIVIER)[1],
    forman=edge_curvature(*graphs, FORMAN)[1],
    curvature=curvature_distances(*graphs)[0],
    walk=random_walk(*graphs, 5),
    lap=laplacian(*graphs, 3)[0],
)
"""


@pytest.mark.parametrize("off", [{}, {"NUMBA_DISABLE_JIT": "1"}], ids=["absent", "off"])
def test_the_same_results(tmp_path, off):
    rng = np.random.default_rng(0)
    graphs = pack([undirected(rng, 15, 0.2), directed(rng, 9, 20), path(70), path(1)])
    np.savez(tmp_path / "in.npz", node_ptr=graphs[0], edge_ptr=graphs[1], edge_index=graphs[2])
    files = [str(tmp_path / "in.npz"), str(tmp_path / "out.npz")]
    subprocess.run([sys.executable, "-c", SCRIPT, *files], check=True, env=os.environ | off)
    theirs = np.load(tmp_path / "out.npz")
    ours = {
        "hops": hop_distances(*graphs),
        "both": hop_distances(*graphs, symmetric=True),
        "ollivier": edge_curvature(*graphs, OLLIVIER)[1],
        "forman": edge_curvature(*graphs, FORMAN)[1],
        "curvature": curvature_distances(*graphs)[0],
    }
    for name, expected in ours.items():
        np.testing.assert_array_equal(theirs[name], expected, err_msg=name)
    np.testing.assert_allclose(theirs["walk"], random_walk(*graphs, 5), atol=1e-6)
    np.testing.assert_allclose(theirs["lap"], laplacian(*graphs, 3)[0], atol=1e-6)
