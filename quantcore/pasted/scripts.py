"""What scripts around a quantizer use: options of the command line, einops' patterns, and what stays refused.

The text continues that of `quantcore.pasted.library_code`: `argument` and `fill` set attributes, and
`arranged` follows a pattern, see `quantcore.pasted.patterns`.
"""

TEXT = """
class Namespace:
    def __init__(self, **kw):
        fill(self, kw)

class ArgumentParser:
    def __init__(self, *args, **kw):
        self.found = Namespace()
    def add_argument(self, *names, **kw):
        argument(self.found, names, kw)
    def set_defaults(self, **kw):
        fill(self.found, kw)
    def add_argument_group(self, *args, **kw):
        return self
    def add_mutually_exclusive_group(self, **kw):
        return self
    def parse_args(self, *args, **kw):
        return self.found
    def parse_known_args(self, *args, **kw):
        return self.found, []
    def print_help(self):
        pass

def _rearrange(tensor, pattern, **sizes):
    return arranged(tensor, pattern, "rearrange", sizes)

def _reduce(tensor, pattern, reduction, **sizes):
    return arranged(tensor, pattern, reduction, sizes)

def _repeat(tensor, pattern, **sizes):
    return arranged(tensor, pattern, "repeat", sizes)
"""
_EINOPS = {name: f"_{name}" for name in ("rearrange", "reduce", "repeat")}
# what each module has: the name of a definition above
CALLS: dict[str, dict[str, str]] = {
    "argparse": {name: name for name in ("ArgumentParser", "Namespace")},
    "einops": _EINOPS,
}
_HELP = ("ArgumentDefaultsHelpFormatter", "RawTextHelpFormatter", "RawDescriptionHelpFormatter")
CONSTANTS: dict[str, dict[str, str | int]] = {
    "argparse": dict.fromkeys((*_HELP, "SUPPRESS", "BooleanOptionalAction"), "")
}
_MEANS = "is not followed (paste its steps: {steps})"
_CLUSTERS = _MEANS.format(steps="a loop over torch.cdist, argmin and mean")
_SCALES = _MEANS.format(steps="(x - x.min()) / (x.max() - x.min()) times the range")
_BINS = _MEANS.format(steps="np.linspace or np.quantile for the edges, then np.digitize")
_PER_COLUMN = _MEANS.format(steps="x - x.mean(0) and the division by x.std(0)")
# calls that are not followed, and what to do instead
LEFT: dict[str, dict[str, str]] = {
    "sklearn.cluster": dict.fromkeys(("KMeans", "MiniBatchKMeans", "BisectingKMeans", "k_means"), _CLUSTERS),
    "sklearn.preprocessing": {
        **dict.fromkeys(("MinMaxScaler", "MaxAbsScaler", "minmax_scale", "maxabs_scale"), _SCALES),
        **dict.fromkeys(("StandardScaler", "RobustScaler", "scale"), _PER_COLUMN),
        "KBinsDiscretizer": _BINS,
    },
    "scipy.cluster.vq": dict.fromkeys(("kmeans", "kmeans2", "vq"), _CLUSTERS),
}
