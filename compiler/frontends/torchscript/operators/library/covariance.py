"""Covariances and correlations of variables in rows, as TorchScript code that is imported in place of the
operator: torch's own code reads values of the weights."""

from __future__ import annotations

_COV = """
def covariance(x: Tensor, correction: int, fweights: Optional[Tensor], aweights: Optional[Tensor]) -> Tensor:
    rows = x
    if x.dim() < 2:
        rows = x.reshape([1, x.numel()])
    weight = fweights
    if aweights is not None:
        weight = aweights
        if fweights is not None:
            weight = fweights * aweights
    total = torch.tensor(rows.size(1))
    lost = torch.tensor(correction)
    weighed = rows
    if weight is not None:
        total = weight.sum()
        weighed = rows * weight
        if aweights is not None and correction != 0:
            lost = correction * (weight * aweights).sum() / total
    centred = rows - (weighed.sum(1) / total).unsqueeze(1)
    other = centred
    if weight is not None:
        other = centred * weight
    return torch.mm(centred, other.t()) / torch.clamp(total - lost, min=0)
"""
#: By name.
SOURCES = {
    "cov": f"""{_COV}
def cov(x: Tensor, correction: int, fweights: Optional[Tensor], aweights: Optional[Tensor]) -> Tensor:
    return covariance(x, correction, fweights, aweights).squeeze()
""",
    "corrcoef": f"""{_COV}
def corrcoef(x: Tensor) -> Tensor:
    made = covariance(x, 1, None, None)
    if x.dim() < 2:
        return (made / made).squeeze()
    far = torch.sqrt(made.diagonal())
    return torch.clamp(made / far.unsqueeze(1) / far.unsqueeze(0), -1.0, 1.0).squeeze()
""",
}
