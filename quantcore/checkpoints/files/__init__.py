"""The files of a checkpoint: where they are, and their bytes."""
