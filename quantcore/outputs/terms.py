"""One output of a layer as a dot product: what each of its terms contributes, and which carry the error."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class OutputTerms:
    """The terms x_k·w_k of one output before and after quantizing.

    ``x``, ``w``, ``x_hat``, ``w_hat``: the token's inputs and the channel's weights, float64 [in], in which
    their products are exact. ``bias``: what is added to both sums.
    """

    token: int
    channel: int
    x: Tensor
    w: Tensor
    x_hat: Tensor
    w_hat: Tensor
    bias: float

    @property
    def products(self) -> Tensor:
        """x_k·w_k, float64 [in]."""
        return self.x * self.w

    @property
    def quantized(self) -> Tensor:
        """x̂_k·ŵ_k, float64 [in]."""
        return self.x_hat * self.w_hat

    @property
    def errors(self) -> Tensor:
        """x̂_k·ŵ_k − x_k·w_k, float64 [in]; their sum is ŷ − y."""
        return self.quantized - self.products

    @property
    def order(self) -> Tensor:
        """The inputs k, that of the largest |error| first, int64 [in]; ties go to the lower k."""
        return torch.sort(self.errors.abs(), descending=True, stable=True).indices

    @property
    def leading(self) -> int:
        """How many terms, the first of `order`, have at least half of Σ|error|; 0 if none has an error."""
        sizes = self.errors.abs()[self.order].cumsum(0)
        total = float(sizes[-1])
        return int((sizes < total / 2).sum()) + 1 if total else 0

    @property
    def y(self) -> float:
        """Σ x_k·w_k + bias."""
        return float(self.products.sum()) + self.bias

    @property
    def y_hat(self) -> float:
        """Σ x̂_k·ŵ_k + bias."""
        return float(self.quantized.sum()) + self.bias

    @property
    def parts(self) -> tuple[float, float, float]:
        """Σ x_k·Δw_k, Σ Δx_k·w_k and Σ Δx_k·Δw_k; their sum is ŷ − y."""
        dx, dw = self.x_hat - self.x, self.w_hat - self.w
        return float((self.x * dw).sum()), float((dx * self.w).sum()), float((dx * dw).sum())
