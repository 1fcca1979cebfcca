"""What a format implements: a record of a weight's stored tensors, from which all that is read of it follows.

How a format is added: a module in `layouts` with a frozen record, a subclass of `Layout` that says its ``fields``,
``element`` and ``granularity``, and a function ``find(release)`` that yields one record per weight, through `attempt`,
so that a damaged weight is listed with the reason. It reads headers and config only; data are read when a weight is.
Then a line in `layouts.FINDERS` (by the config's quant_method) or `layouts.SIGNATURES` (known by dtypes, names or
metadata alone).

    fields = {
        "codes": Packed(piece, order, shape, axis, transposed, offset, signed),  # integers in words
        "scale": Numbers(piece, transposed),                                     # one element a number
    }

gives codes, parameters in block form, values by rows, the place of each bit, and the bytes again. Where the effective
scale is computed, the raw pieces are fields ("scale_code", "global_scale") and `Layout.scale` is overridden; where the
library computes in half precision, `Layout.rounds_each` says so. Where it shows parameters in other axes than blocks
have, `Layout.parameters` gives them in block form. Codes of a weight that was reshaped first are a `views.Reshaped` field;
`views.viewed` reads a stored tensor's bytes as another dtype. What can't be read on a CPU is named in
`layouts.unreadable`.
"""
