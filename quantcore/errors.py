"""The exception for all user errors."""


class QuantError(ValueError):
    """A request that cannot be fulfilled; the message says what is wrong, where, and what to do.

    Pages show it as one sentence. Any other exception is a bug in quantcore.
    """


class UnknownNameError(QuantError, KeyError):
    """A name that a table of named records does not have; also a KeyError, as of every mapping."""

    __str__ = Exception.__str__
