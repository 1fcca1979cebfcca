"""How large a tensor and its sources may be: all limits of this package."""

MAX_BYTES = 256 * 2**20  # an upload, and the float32 tensor read from it
MAX_ELEMENTS = 4096 * 14336  # the largest weight matrix of an 8-billion-parameter Llama, 235 MB of float32
MAX_LISTED = 10_000  # tensors of one file, among which a user chooses; checkpoints are read elsewhere
MAX_RANK = 16  # axes; NumPy stops at 64
MAX_TEXT_CHARS = 2 * 10**6  # pasted text; some 200,000 numbers
MAX_TEXT_FILE_BYTES = 32 * 2**20  # .csv, .tsv, .txt, .json: text is slow to read and larger than the tensor
MAX_LINK_CHARS = (
    6000  # one parameter of a link; browsers open links of 60 kB, but mail and chat truncate them
)
MAX_LINK_ELEMENTS = 2**16  # beyond this not even a constant tensor is tried
MAX_IMAGE_SIDE = 256  # elements; larger images are averaged, so that the maps show each element
