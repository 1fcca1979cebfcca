"""The checks of a quantizer, by the part that they look at; each yields `Found`."""
