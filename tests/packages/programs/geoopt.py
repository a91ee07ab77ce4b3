"""Curved spaces (`geoopt`)."""

from __future__ import annotations

import geoopt
import torch

BALL, LORENTZ, STEREO = geoopt.PoincareBall(), geoopt.Lorentz(), geoopt.Stereographic(-0.7)


def _of(function):
    return lambda: (function, (torch.randn(3, 5) * 0.1, torch.randn(3, 5) * 0.1), {})


PROGRAMS = {
    "to the ball": _of(lambda x, y: BALL.expmap0(x)),
    "projection": _of(lambda x, y: BALL.projx(x * 20)),
    "distance": _of(lambda x, y: BALL.dist(BALL.projx(x), BALL.projx(y))),
    "sum": _of(lambda x, y: BALL.mobius_add(x, y)),
    "matrix": _of(lambda x, y: BALL.mobius_matvec(torch.ones(4, 5), BALL.expmap0(x))),
    "from the ball": _of(lambda x, y: BALL.logmap0(BALL.expmap0(x))),
    "transport": _of(lambda x, y: BALL.transp0(BALL.expmap0(x), y)),
    "hyperboloid": _of(lambda x, y: LORENTZ.dist(LORENTZ.projx(x), LORENTZ.projx(y))),
    "curvature of its own": _of(lambda x, y: STEREO.dist(x, y)),
}
