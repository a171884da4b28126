"""The fourteen baselines, one file each."""

from gradformer.zoo import deepgraph as deepgraph
from gradformer.zoo import egt as egt
from gradformer.zoo import gat as gat
from gradformer.zoo import gatedgcn as gatedgcn
from gradformer.zoo import gcn as gcn
from gradformer.zoo import gin as gin
from gradformer.zoo import graphgps as graphgps
from gradformer.zoo import graphormer as graphormer
from gradformer.zoo import graphtrans as graphtrans
from gradformer.zoo import gt as gt
from gradformer.zoo import kdlgt as kdlgt
from gradformer.zoo import lgi_gt as lgi_gt
from gradformer.zoo import san as san
from gradformer.zoo import sat as sat
