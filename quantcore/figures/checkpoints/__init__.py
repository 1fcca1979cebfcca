"""Figures of whole checkpoints."""

from quantcore.figures.checkpoints.harm import HARM_AXES, harm
from quantcore.figures.checkpoints.layers import layers
from quantcore.figures.checkpoints.size_curve import size_curve
from quantcore.figures.checkpoints.treemap import treemap

__all__ = ["HARM_AXES", "harm", "layers", "size_curve", "treemap"]
