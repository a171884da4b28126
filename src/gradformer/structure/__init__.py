"""What a graph tells before training: pair distances, one byte each, and node encodings."""

from gradformer.structure.adjacency import degrees
from gradformer.structure.codebook import FAR, HOPS, SATURATED, UNREACHABLE, Codebook
from gradformer.structure.distance import hop_distances, pair_pointer
from gradformer.structure.encodings import laplacian, random_walk
