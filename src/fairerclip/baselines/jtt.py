"""Just train twice (JTT): rows that a first probe gets wrong weigh more in the second."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.checks import LARGEST, check_interval, check_positive
from fairerclip.baselines.heads import LinearHead, check_classes
from fairerclip.baselines.logistic import L2Probe
from fairerclip.baselines.shared_solutions import first_stage
from fairerclip.baselines.training_data import Needs, Training

NO_ERRORS = "the first probe gets every training row right, so no row weighs more: this is the plain probe"


@dataclass(eq=False, repr=False)
class JTT(L2Probe, LinearHead):
    """Linear probe in which the training rows that a first, strongly penalised probe gets wrong weigh more.

    Needs labels y, and with ``class_weight="group"`` sensitive values: true values, or prompts to predict them from. It
    uses no class prompts and no gradient.

    Parameters
    ----------
    upweight : float, default=100.0
        Factor λ of the weight of a row that the first probe gets wrong; 1 is the plain probe. Published: 100 for
        Waterbirds, 50 for CelebA, and grids from 4 to 100.
    first_C : float, default=0.001
        Inverse strength of the penalty of the first probe. It must be small enough for errors on training rows.
    C, class_weight, standardize, select, max_iter, tol
        Parameters of the second probe, as in `LinearProbe`; all but C and select are those of the first one, too.

    Attributes
    ----------
    coef_, intercept_ : array of shape (c, p) and (c,)
        The second probe, for unit rows.
    diagnostics_ : dict
        As in `LinearProbe`, and ``errors``, the number of rows that the first probe gets wrong. If there are none,
        ``note`` says that the model is the plain probe.

    Notes
    -----
    The second probe minimises ``½‖W‖² + C·Σ wᵢ·CEᵢ`` with weights ``wᵢ = λ`` for errors and 1 for other rows, scaled
    to sum to n. This is the probe on a table in which each error is repeated λ times, as published. If there are
    ``class_weight``, it applies to these rows.

    Differences from the paper: it trains a whole network twice by gradient descent, and stops the first training
    early to keep errors. Here the encoder is frozen, both probes are fitted to convergence, and the penalty
    ``first_C`` takes the place of the early stop. A probe with a weak penalty may have no errors on its training
    rows; JTT is then the plain probe.

    Licence of the released code: none found in the listing of its repository. This is a new implementation from the
    paper.

    References
    ----------
    Liu et al., "Just Train Twice: Improving Group Robustness without Training Group Information", 2021,
    arXiv:2107.09931.

    Examples
    --------
    >>> X = np.array([[1.0, 0.1], [1.0, 0.3], [1.0, 0.2], [1.0, 0.4], [0.9, 0.1], [0.3, 1.0], [0.2, 1.0], [1.0, 0.6]])
    >>> y = ["cat", "cat", "cat", "cat", "cat", "dog", "dog", "dog"]
    >>> model = JTT(upweight=20.0).fit(X, y)
    >>> model.diagnostics_["errors"], model.predict(X[-1:]).tolist()
    (3, ['dog'])
    """

    needs = Needs("target", False, False, False, "Liu et al. 2021, arXiv:2107.09931")

    upweight: float = 100.0
    _: KW_ONLY
    first_C: float = 1e-3

    @property
    def title(self) -> str:
        """Name of the method with its weights."""
        return f"{self._weighted()}JTT (just train twice)"

    def _learn(self, data: Training) -> None:
        check_interval("upweight", self.upweight, 1, LARGEST, "[]")
        check_positive("first_C", self.first_C)
        self._check_probe()
        check_classes(data, self.classes_, "JTT")
        wrong = self._errors(data)
        weight = data.weight * np.where(wrong, float(self.upweight), 1.0)
        repeated = replace(data, weight=weight * (data.weight.sum() / weight.sum()))
        validation = None if data.validation is None else data.validation.X
        self.coef_, self.intercept_, found = self._fit_probe(repeated, data.X, validation)
        errors = int(np.sum(wrong & (data.weight > 0)))
        self.diagnostics_ = {**found, "errors": errors, **({} if errors else {"note": NO_ERRORS})}

    def _errors(self, data: Training) -> NDArray[np.bool_]:
        """Return which rows (n,) the first probe gets wrong."""
        first = replace(self, C=float(self.first_C))

        def wrong() -> NDArray[np.bool_]:
            coef, intercept, _ = first._fit_probe(data, data.X)
            return np.asarray((data.X @ coef.T + intercept).argmax(axis=1) != data.y)

        groups = data.s if self.class_weight == "group" else None
        return first_stage(wrong, "JTT", data.X, data.y, data.weight, groups, *_settings(first))


def _settings(probe: L2Probe) -> tuple[object, ...]:
    return probe.C, probe.class_weight, probe.standardize, probe.max_iter, probe.tol
