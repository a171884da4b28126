"""What a graph tells before training: pair distances, one byte each, and node encodings."""

from gradformer.structure.adjacency import degrees
from gradformer.structure.codebook import FAR, HOPS, SATURATED, UNREACHABLE, Codebook
from gradformer.structure.curvature import curvature_distances, edge_curvature
from gradformer.structure.distance import hop_distances, pair_pointer
from gradformer.structure.encodings import laplacian, random_walk
from gradformer.structure.similarity import similarity_distances
from gradformer.structure.transforms import AddDistance, AddLaplacian, AddRandomWalk
