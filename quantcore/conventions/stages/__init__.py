"""The choices of a convention: one record per stage of the arithmetic."""

from quantcore.conventions.stages.coding import CodingStage
from quantcore.conventions.stages.decoding import DecodingStage
from quantcore.conventions.stages.nonfinite import NonfiniteStage
from quantcore.conventions.stages.range import RangeStage
from quantcore.conventions.stages.scale import ScaleStage
from quantcore.conventions.stages.storage import StorageStage
from quantcore.conventions.stages.zero_point import ZeroPointStage

__all__ = [
    "CodingStage",
    "DecodingStage",
    "NonfiniteStage",
    "RangeStage",
    "ScaleStage",
    "StorageStage",
    "ZeroPointStage",
]
