"""The commands of ``python -m quantcore`` and ``quantscope``: a module for each kind, one parser for all."""

from quantcore.commands.parser import main, parser_of
