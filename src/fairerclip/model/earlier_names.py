"""Names that `FairerCLIP` had until 0.1.0: each gives a `RenamedWarning` and works; all go with the next release."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from fairerclip._util.types import F64, Floats
from fairerclip.errors import RenamedWarning
from fairerclip.model.parameters import LEARNED


def _warn(old: str, new: str) -> None:
    message = f"{old} is called {new} now; the old name is removed in the next release"
    warnings.warn(message, RenamedWarning, stacklevel=4)


class EarlierNames:
    """Earlier parameters and methods of `FairerCLIP`."""

    _earlier: Mapping[str, Any] = {}
    """Corrections of the class scores that were given to the constructor, for the next fit."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Leave ``**earlier`` out of the signature that scikit-learn and documentation see."""
        super().__init_subclass__(**options)  # scikit-learn adds set_fit_request and the like here
        parameters = list(inspect.signature(cls.__init__).parameters.values())
        named = [p for p in parameters[1:] if p.kind is not inspect.Parameter.VAR_KEYWORD]
        cls.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]

    def _take_earlier(self, parameters: dict[str, Any]) -> None:
        """Keep earlier parameters of the constructor and warn; any other name is a ``TypeError``."""
        for name in parameters:
            if name not in LEARNED:
                raise TypeError(f"FairerCLIP() got an unexpected keyword argument {name!r}")
            _warn(f"FairerCLIP({name}=…)", f"fit(…).at({name}=…)")
        self._earlier = {**self._earlier, **parameters}

    def set_params(self, **parameters: Any) -> Any:
        """Set parameters by name, as scikit-learn does; earlier names warn."""
        earlier = {name: parameters.pop(name) for name in LEARNED if name in parameters}
        if earlier:
            self._take_earlier(earlier)
        return super().set_params(**parameters)  # type: ignore[misc]

    def __sklearn_clone__(self) -> Any:
        copy = super().__sklearn_clone__()  # type: ignore[misc]
        if self._earlier:
            copy._earlier = self._earlier
        return copy

    @property
    def offsets(self) -> list[float] | None:
        """Earlier name of ``offsets_``; None where they are zero."""
        offsets = self.offsets_  # type: ignore[attr-defined]
        _warn("offsets", "offsets_")
        return offsets.tolist() if offsets.any() else None

    @property
    def sensitive_shifts(self) -> list[list[float]] | None:
        """Earlier name of ``sensitive_shifts_``."""
        shifts = self.sensitive_shifts_  # type: ignore[attr-defined]
        _warn("sensitive_shifts", "sensitive_shifts_")
        return None if shifts is None else shifts.tolist()

    def similarity(self, X: Any) -> F64:
        """Earlier name of `FairerCLIP.cosines`."""
        _warn("similarity", "cosines")
        return self.cosines(X)  # type: ignore[attr-defined,no-any-return]

    def decide(self, Z: Floats) -> dict[str, NDArray[Any]]:
        """Earlier way to `predict` and `decision_function` from rows that `transform` gave (n, r)."""
        _warn("decide(Z)", "fitted_.scores(Z) and fitted_.labels(scores)")
        fitted = self.fitted_model()  # type: ignore[attr-defined]
        scores = fitted.scores(Z)
        margin = scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores
        return {"prediction": fitted.labels(scores), "score": margin}

    def tune(
        self,
        X: Any,
        y: Any = None,
        *,
        validation: Any,
        objective: Any = "worst_group",
        accuracy_floor: float | None = None,
        search: Mapping[str, Any] | None = None,
        max_seconds: float | None = None,
        progress: Any = None,
        **fit_arguments: Any,
    ) -> Any:
        """Fit with the parameters that `FairerCLIPSearch` finds, which become this model's own."""
        from fairerclip.tuning.search import FairerCLIPSearch

        _warn("FairerCLIP.tune", "FairerCLIPSearch(model).fit(…).best_estimator_")
        found = FairerCLIPSearch(
            self,  # type: ignore[arg-type]
            objective=objective,
            accuracy_floor=accuracy_floor,
            search_space=search,
            max_seconds=max_seconds,
        ).fit(X, y, validation=validation, progress=progress, **fit_arguments)
        vars(self).clear()  # nothing of an earlier fit stays
        vars(self).update(vars(found.best_estimator_))
        return self
