"""Tensors that pasted code makes, compared with those of torch itself."""

import torch

from quantcore.pasted import made


def test_a_tensor_of_a_tensor_has_the_type_that_is_asked_for():
    given = torch.tensor([1.5, -2.5])
    for value in (given, given.tolist()):
        for dtype in (None, torch.float16, torch.int8):
            wanted = torch.as_tensor(value, dtype=dtype)
            found = made.tensor(value, dtype)
            assert found.dtype == wanted.dtype
            assert torch.equal(found, wanted)
            assert found.data_ptr() != given.data_ptr()
