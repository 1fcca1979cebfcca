"""What a format implements: a record of a weight's stored tensors; all that is read follows from it.

To add a format, write a module in `layouts` with a function ``find(release)`` that yields one `layout.Layout`
per weight, made through `release.attempt`, so that a damaged weight is listed with the reason. ``find`` reads
headers and config only; data are read when a weight is. Then add a line to `layouts.FINDERS` (by the config's
quant_method) or `layouts.SIGNATURES` (for formats known by dtypes, names or metadata alone).

    fields = {
        "codes": Packed(piece, order, shape, axis, transposed, offset, signed),  # integers in words
        "scale": Numbers(piece, transposed),                                     # one number per element
    }

gives codes, parameters in block form, values by rows, the place of each bit, the lines of an element with its
script, and the encoding back to bytes. A scale that is computed from several numbers is an expression of
their roles (``derived={"scale": Let("s", Name("scale_code") * Name("global_scale"))}``), and so is a value
that is neither (code - zero point) * scale nor one of its kin. ``rivals`` yields how others misread the
bytes, as changed records; ``checks``, what the format's own parameters say. A record that takes more than
headers is `release.Deferred`. Codes of a weight that was reshaped first are a `kinds.Reshaped` field;
`kinds.viewed` reads a stored tensor's bytes as another dtype. Formats that can't be read on a CPU are named
in `layouts.plain`.
"""
