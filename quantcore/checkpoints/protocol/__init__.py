"""What a format implements: a record of a weight's stored tensors, from which everything that is read follows.

To add a format, write a module in `layouts` with a frozen record (a subclass of `Layout` that defines its ``fields``,
``element`` and ``granularity``) and a function ``find(release)`` that yields one record per weight, through `attempt`,
so that a damaged weight is listed with the reason. ``find`` reads headers and config only; data are read when a weight
is. Then add a line to `layouts.FINDERS` (by the config's quant_method) or `layouts.SIGNATURES` (for formats known by
dtypes, names or metadata alone).

    fields = {
        "codes": Packed(piece, order, shape, axis, transposed, offset, signed),  # integers in words
        "scale": Numbers(piece, transposed),                                     # one number per element
    }

gives codes, parameters in block form, values by rows, the place of each bit, and the encoding back to bytes. If the
effective scale is computed, the raw pieces are fields ("scale_code", "global_scale") and `Layout.scale` is overridden; if
the library computes in half precision, `Layout.rounds_each` says so. If its parameters have other axes than the blocks,
`Layout.parameters` returns them in block form. Codes of a weight that was reshaped first are a `views.Reshaped` field;
`views.viewed` reads a stored tensor's bytes as another dtype. Formats that can't be read on a CPU are named in
`layouts.unreadable`.
"""
