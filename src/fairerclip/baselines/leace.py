"""LEACE: the least change of embeddings after which no linear function of them is correlated with S."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fairerclip._util.checks import check_choice, check_within
from fairerclip._util.types import F64, Ints
from fairerclip.baselines.baseline import Needs, Training
from fairerclip.baselines.heads import check_classes, class_prompts
from fairerclip.baselines.logistic import L2Probe
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import ShapeError

HEADS = ("zero-shot", "probe")
MAX_WIDTH = 8192
"""Of rows: a few square matrices of so many float64 take 2 GB."""
_NO_EFFECT = 1e-10  # whitened covariances are at most 1: this is rounding


class Eraser(NamedTuple):
    """``x − (x − mean)·right·left``: an oblique projection, (p,), (p, k) and (k, p)."""

    mean: F64
    right: F64
    left: F64

    def __call__(self, X: F64) -> F64:
        """Rows (n, p) after it. O(n·p·k) time."""
        return np.asarray(X - (X - self.mean) @ self.right @ self.left)


@dataclass(eq=False, repr=False)
class LEACE(L2Probe):
    """Zero-shot, or a linear probe, on embeddings after least-squares concept erasure.

    Needs sensitive values, true ones or prompts to read them from. The zero-shot head needs class prompts and takes no
    labels, the probe needs labels y and no prompts.

    Parameters
    ----------
    head : {"zero-shot", "probe"}
        What classifies the erased embeddings.
    shrinkage : float, default=0.0
        Share, from 0 to 1, of the covariance that is replaced by a multiple of the identity with the same trace,
        when the norm is chosen in which the change is least. Erasure is exact on training rows whatever it is; where
        rows are few, some shrinkage makes it steadier on others. 1 gives an orthogonal projection.
    C, class_weight, standardize, select, max_iter, tol
        Of the probe, as in `LinearProbe`.

    Attributes
    ----------
    mean_, right_, left_ : (p,), (p, k), (k, p) the map ``x − (x − mean_)·right_·left_`` of unit rows; k is below
        the number of sensitive values, 0 where there is nothing to erase.
    coef_, intercept_ : (c, p), (c,) of the head, on erased rows.

    Notes
    -----
    Rows are brought to length one first, as cosines see them. With Σ the covariance of x, S one-hot, and W =
    Σ^(-1/2), the map takes away the part of ``W(x − μ)`` in the span of ``W·Cov(x, S)`` and goes back; of all affine
    maps after which Cov(x, S) is zero it changes x least in mean square. Several attributes are crossed, and the
    cells of the cross are erased. Where Σ is singular, W is a pseudo-inverse: Cov(x, S) lies in the range of Σ.

    Class prompts are not mapped. A zero-shot score is a linear function of the image with the prompt for its
    weights, and every linear function of erased images is uncorrelated with S already; the map was learned from
    images, whose mean and covariance are not those of prompts, so that on prompts it would promise nothing. Scores
    are ``r(x)·t`` without normalising r(x) again: that would change no prediction, and would make scores nonlinear
    in r(x). "Uncorrelated" concerns training rows and linear functions: a curved classifier may still find S.

    The published code accumulates moments in a stream; here they are computed at once. O(n·p² + p³) time.

    References
    ----------
    Belrose et al., "LEACE: Perfect Linear Concept Erasure in Closed Form", 2023, arXiv:2306.03819.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> s = np.arange(60) % 2
    >>> X = rng.normal(size=(60, 4)) + s[:, None]
    >>> model = LEACE().fit(X, text=np.eye(4)[:2], sensitive_features=s)
    >>> difference = model.transform(X)[s == 1].mean(axis=0) - model.transform(X)[s == 0].mean(axis=0)
    >>> bool(np.abs(difference).max() < 1e-12)
    True
    """

    needs = Needs("none", True, True, False, "Belrose et al. 2023, arXiv:2306.03819")
    fitted: ClassVar[tuple[str, ...]] = ("mean_", "right_", "left_", "coef_", "intercept_")
    shapes = {  # noqa: RUF012
        "mean_": ("p",),
        "right_": ("p", "k"),
        "left_": ("k", "p"),
        "coef_": ("c", "p"),
        "intercept_": ("c",),
    }

    head: str = "zero-shot"
    _: KW_ONLY
    shrinkage: float = 0.0

    @property
    def requirements(self) -> Needs:
        """What `fit` must be given for this head."""
        check_choice("head", self.head, HEADS)
        probe = self.head == "probe"
        return self.needs._replace(labels="target" if probe else "none", text=not probe)

    def _learn(self, data: Training) -> None:
        check_within("shrinkage", self.shrinkage, 0.0, 1.0)
        if data.X.shape[1] > MAX_WIDTH:
            raise ShapeError(
                f"LEACE takes rows at most {MAX_WIDTH:,} wide, as it decomposes their covariance; got "
                f"{data.X.shape[1]:,}"
            )
        if self.head == "probe":
            self._check_probe()
            check_classes(data, self.classes_, "LEACE")
        X = unit_rows(data.X)
        s = (
            np.zeros(len(X), dtype=np.int64) if data.s is None else data.s
        )  # one value alone: nothing to erase
        eraser = erase(X, s, data.weight, self.shrinkage)
        self.mean_, self.right_, self.left_ = eraser
        if self.head == "zero-shot":
            self.coef_, self.intercept_ = class_prompts(data, "LEACE"), np.zeros(data.n_classes)
            return
        held = None if data.validation is None else eraser(unit_rows(data.validation.X))
        self.coef_, self.intercept_, self.diagnostics_ = self._fit_probe(data, eraser(X), held)

    def transform(self, X: Any) -> F64:
        """Unit rows after erasure (n, p), not of length one any more."""
        rows = unit_rows(self._rows(X))
        return Eraser(self.mean_, self.right_, self.left_)(rows)

    def scores(self, X: Any) -> F64:
        """Score of each class (n, c): a linear function of the erased rows."""
        return np.asarray(self.transform(X) @ self.coef_.T + self.intercept_)


def erase(X: F64, s: Ints, weight: F64, shrinkage: float = 0.0) -> Eraser:
    """The least change of rows X (n, p) that leaves no covariance with the codes s (n,).

    Parameters
    ----------
    X, s, weight : (n, p), (n,), (n,)
    shrinkage : as in `LEACE`.

    Returns
    -------
    Eraser
    """
    share = weight / weight.sum()
    mean = share @ X
    centred = X - mean
    # One column per value: n_v·(mean of the value − mean of all), which is Cov(x, one-hot).
    onehot = np.eye(int(s.max()) + 1)[s]
    cross = centred.T @ (onehot * share[:, None])  # (p, v)
    covariance = (centred * share[:, None]).T @ centred
    if shrinkage:
        target = np.trace(covariance) / len(mean) * np.eye(len(mean))
        covariance = (1 - shrinkage) * covariance + shrinkage * target
    variances, V = np.linalg.eigh((covariance + covariance.T) / 2)
    alive = variances > len(mean) * np.finfo(np.float64).eps * variances.max(initial=0.0)
    V, spread = V[:, alive], np.sqrt(variances[alive])
    U, sizes, _ = np.linalg.svd((V / spread).T @ cross, full_matrices=False)  # whitened
    # Columns of Cov(x, one-hot) sum to zero, up to rounding that whitening may have made large.
    rank = min(len(np.unique(s)) - 1, int(np.sum(sizes > _NO_EFFECT)))
    U = U[:, :rank]
    return Eraser(mean, (V / spread) @ U, (V * spread @ U).T)
