"""LEACE: the smallest change of embeddings after which no linear function of them is correlated with S."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from fairerclip._util.checks import check_choice, check_within
from fairerclip._util.types import F64, Ints
from fairerclip.baselines.heads import check_classes, class_prompts, sensitive_codes
from fairerclip.baselines.logistic import L2Probe
from fairerclip.baselines.shared_solutions import once
from fairerclip.baselines.training_data import Needs, Training
from fairerclip.data.embedding_rows import unit_rows
from fairerclip.errors import ShapeError

HEADS = ("zero-shot", "probe")
MAX_WIDTH = 8192
"""Largest width of rows; a few square float64 matrices of this size take 2 GB."""
_NO_EFFECT = 1e-10  # whitened covariances are at most 1, so less than this is rounding error


class Eraser(NamedTuple):
    """Oblique projection ``x − (x − mean)·right·left`` with mean (p,), right (p, k) and left (k, p)."""

    mean: F64
    right: F64
    left: F64

    def __call__(self, X: F64) -> F64:
        """Apply the projection to rows (n, p). O(n·p·k) time."""
        return np.asarray(X - (X - self.mean) @ self.right @ self.left)


@dataclass(eq=False, repr=False)
class LEACE(L2Probe):
    """Zero-shot classifier or linear probe on embeddings after least-squares concept erasure.

    Needs sensitive values: true values, or prompts to predict them from. The zero-shot head needs class prompts and no
    labels; the probe needs labels y and no class prompts. Neither uses a gradient.

    Parameters
    ----------
    head : {"zero-shot", "probe"}
        Classifier of the erased embeddings.
    shrinkage : float, default=0.0
        Share, from 0 to 1, of the covariance that is replaced by a multiple of the identity with the same trace. The
        covariance defines the norm in which the change is smallest. Erasure on the training rows is exact for every
        value; with few rows some shrinkage makes it more stable on other rows. 1 gives an orthogonal projection.
    C, class_weight, standardize, select, max_iter, tol
        Parameters of the probe, as in `LinearProbe`.

    Attributes
    ----------
    mean_, right_, left_ : array of shape (p,), (p, k) and (k, p)
        The map ``x − (x − mean_)·right_·left_`` of unit rows; k is less than the number of sensitive values, and 0 if
        there is nothing to erase.
    coef_, intercept_ : array of shape (c, p) and (c,)
        The head, for erased rows.

    Notes
    -----
    Rows are normalised to unit length first, because cosines depend on their direction only. Let Σ be the covariance
    of x, S one-hot, and W = Σ^(-1/2). The map removes the part of ``W(x − μ)`` in the span of ``W·Cov(x, S)`` and
    multiplies by W⁻¹. Of all affine maps after which Cov(x, S) is zero it changes x least in mean square. Several
    attributes are crossed, and the cells of the cross are erased. If Σ is singular, W is a pseudo-inverse, which
    suffices because Cov(x, S) lies in the range of Σ.

    Class prompts are not mapped. A zero-shot score is a linear function of the image, whose weights are the prompt,
    and every linear function of erased images is already uncorrelated with S. The map is learned from images, whose
    mean and covariance differ from those of prompts, so it has no guarantee on prompts. Scores are ``r(x)·t`` without
    normalising r(x) again, which would change no prediction but make scores nonlinear in r(x). The guarantee holds
    for training rows and linear functions: a nonlinear classifier may still predict S.

    Differences from the paper and its code: moments are computed at once and not in a stream; every direction above
    rounding error is erased, where the code drops small ones; ``shrinkage`` is given and not estimated from the rows;
    and sensitive values may be predicted. O(n·p² + p³) time.

    Licence of the released code: MIT. This is a new implementation.

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

    changes_embeddings = free_queries = True

    head: str = "zero-shot"
    _: KW_ONLY
    shrinkage: float = 0.0

    @property
    def requirements(self) -> Needs:
        """Inputs that `fit` needs for this head."""
        check_choice("head", self.head, HEADS)
        probe = self.head == "probe"
        return self.needs._replace(labels="target" if probe else "none", text=not probe)

    @property
    def title(self) -> str:
        """Name of the method with its head."""
        return f"LEACE ({self.head} head)"

    def _learn(self, data: Training) -> None:
        check_within("shrinkage", self.shrinkage, 0.0, 1.0)
        if data.X.shape[1] > MAX_WIDTH:
            raise ShapeError(
                f"LEACE takes rows at most {MAX_WIDTH:,} wide, because it decomposes their covariance; got "
                f"{data.X.shape[1]:,}"
            )
        if self.head == "probe":
            self._check_probe()
            check_classes(data, self.classes_, "LEACE")
        eraser, erased = once(_erased, data.X, sensitive_codes(data), data.weight, self.shrinkage)
        self.mean_, self.right_, self.left_ = eraser
        if self.head == "zero-shot":
            self.coef_, self.intercept_ = class_prompts(data, "LEACE"), np.zeros(data.n_classes)
            return
        held = None if data.validation is None else eraser(unit_rows(data.validation.X))
        self.coef_, self.intercept_, self.diagnostics_ = self._fit_probe(data, erased, held)

    def _embed(self, rows: F64) -> F64:
        """Return the unit rows after erasure (b, p), not normalised again."""
        return Eraser(self.mean_, self.right_, self.left_)(unit_rows(rows))

    def _match(self, embedded: F64, text: F64) -> F64:
        """Return inner products (b, m): scores for any query are linear in the erased rows."""
        return np.asarray(embedded @ text.T)

    def _class_scores(self, embedded: F64) -> F64:
        """Return the class scores (b, c), which are linear in the erased rows."""
        return np.asarray(embedded @ self.coef_.T + self.intercept_)


def _erased(X: F64, s: Ints, weight: F64, shrinkage: float) -> tuple[Eraser, F64]:
    X = unit_rows(X)
    eraser = erase(X, s, weight, shrinkage)
    return eraser, eraser(X)


def erase(X: F64, s: Ints, weight: F64, shrinkage: float = 0.0) -> Eraser:
    """Compute the smallest change of rows X (n, p) that removes their covariance with the codes s (n,).

    Parameters
    ----------
    X, s, weight : array of shape (n, p), (n,) and (n,)
        Rows, codes and row weights.
    shrinkage : float
        As in `LEACE`.

    Returns
    -------
    Eraser
        The map to apply to rows.
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
    rounding = len(mean) * np.finfo(np.float64).eps
    # Variances of equal rows are the squares of the rounding errors of their mean.
    positive = variances > max(rounding * variances.max(initial=0.0), rounding**2 * float(mean @ mean))
    V, spread = V[:, positive], np.sqrt(variances[positive])
    U, sizes, _ = np.linalg.svd((V / spread).T @ cross, full_matrices=False)  # whitened
    # Columns of Cov(x, one-hot) sum to zero up to rounding, which whitening may amplify.
    rank = min(len(np.unique(s)) - 1, int(np.sum(sizes > _NO_EFFECT)))
    U = U[:, :rank]
    return Eraser(mean, (V / spread) @ U, (V * spread @ U).T)
