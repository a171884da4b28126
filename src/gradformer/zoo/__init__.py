"""The fourteen baselines, one file each."""

from gradformer.zoo import gt as gt
from gradformer.zoo import san as san
