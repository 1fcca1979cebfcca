"""Checks for mistakes, grouped by the part of a quantizer they look at; each yields `Found`."""
