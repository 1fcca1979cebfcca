"""Figures of whole checkpoints."""

from quantcore.figures.checkpoints.harm import HARM_AXES, harm
from quantcore.figures.checkpoints.layers import layer_colors
from quantcore.figures.checkpoints.size_curve import size_curve
from quantcore.figures.checkpoints.treemap import treemap

__all__ = ["HARM_AXES", "harm", "layer_colors", "size_curve", "treemap"]
