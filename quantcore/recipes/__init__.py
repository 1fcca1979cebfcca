"""What a choice of schemes is in the tools that quantize: llama.cpp's file types, a recipe for each tool."""

from quantcore.recipes.curve import USUAL_FTYPES, ftype_points
from quantcore.recipes.ftypes import FTYPES
from quantcore.recipes.preview import FtypeFile, ftype_file, ftype_size, ftype_types
from quantcore.recipes.recipe import TOOLS, ToolRecipe, fitted, recipe, tool_of
from quantcore.recipes.tools.tool import Tool

__all__ = [
    "fitted", "FTYPES", "ftype_file", "FtypeFile", "ftype_points", "ftype_size",
    "ftype_types", "recipe", "Tool", "tool_of", "ToolRecipe", "TOOLS", "USUAL_FTYPES",
]  # fmt: skip
