"""The link parameters that the pages under Models share, without what opens a checkpoint."""

# A page may open two: the one that it shows, and the original to compare it with or the imatrix of its
# inputs. Keys are link parameters: the address, and names and digests of uploaded files.
SLOTS = {"": "ck", "original": "ck_original", "imatrix": "ck_imatrix"}
FILES = {slot: f"{key}_files" for slot, key in SLOTS.items()}
KEYS = {keys[slot] for keys in (SLOTS, FILES) for slot in ("", "original")}
IMATRIX_KEYS = {keys[slot] for keys in (SLOTS, FILES) for slot in ("", "imatrix")}
# Keys of the page Checkpoint: the tensor that is shown, which part of it, and the chosen cell
TENSOR, ROWS, COLUMNS, CELL, AT = PLACE = ("ck_tensor", "ck_rows", "ck_cols", "ck_cell", "ck_at")
