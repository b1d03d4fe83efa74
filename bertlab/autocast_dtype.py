"""The dtype that autocast gives to matrix products."""

import torch
from torch import Tensor


def dtype_of_products(values: Tensor) -> torch.dtype:
    """Return the dtype of matrix products of ``values`` here: autocast's, or their own."""
    device = values.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else values.dtype
