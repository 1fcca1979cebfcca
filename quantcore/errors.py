"""The one error that a user can cause."""


class QuantError(ValueError):
    """What the user asked for cannot be done; the message says what is wrong, where, and what to do.

    Pages show it as one sentence. Any other exception is a defect of ours.
    """
