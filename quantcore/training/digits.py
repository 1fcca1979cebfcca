"""Handwritten digits of 8×8 pixels, which the small network classifies. Source and license: data/digits.txt."""

from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

CLASSES, PIXELS = 10, 64
_BRIGHTEST = 16
# Every third image is held out. The file repeats the digits 0..9 in order, so that with a step of 2, 4 or 5 some
# digits would be missing from one of the sets.
_EVERY = 3


@dataclass(frozen=True, eq=False)
class Digits:
    """1,198 images for training, 599 held out for testing; always the same ones.

    Images are float32 of shape (n, 64), pixels from 0 to 1 in steps of 1/16, row by row; labels int64, (n,).
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def load_digits() -> Digits:
    """Load the images and labels; every call returns new tensors."""
    path = files("quantcore.training") / "data" / "digits.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        images = torch.from_numpy(stored["images"].reshape(-1, PIXELS)).float() / _BRIGHTEST
        labels = torch.from_numpy(stored["labels"]).long()
    held_out = torch.arange(len(labels)) % _EVERY == _EVERY - 1
    return Digits(images[~held_out], labels[~held_out], images[held_out], labels[held_out])
