"""Zero-shot classification of mitigated embeddings: a fitted `EmbeddingMitigator` with class prompts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fairerclip._util.types import F64
from fairerclip.baselines.baseline import Baseline
from fairerclip.baselines.training_data import Needs
from fairerclip.embedding.mitigator import EmbeddingMitigator
from fairerclip.errors import StateError
from fairerclip.inputs.encode import as_labels
from fairerclip.inputs.prompts import prompt_groups, prototypes


class MitigatedZeroShot(Baseline):
    """Predict the class whose prompt has the largest inner product with the mitigated image embedding.

    It is made from a fitted mitigator (`of`) and answers like any other model of the package, so that a mitigator can
    be audited and compared. All class prompts are mitigated alike, even those about S. The mitigator is what is saved.
    """

    needs = Needs("none", True, True, False, "docs/math.md#same-space")
    changes_embeddings = free_queries = True
    fitted = ("text_",)

    mitigator_: EmbeddingMitigator
    text_: F64

    @classmethod
    def of(cls, mitigator: EmbeddingMitigator, text: Mapping[Any, Any]) -> MitigatedZeroShot:
        """Return a classifier from a fitted mitigator and prompts (p,) or (m, p) by class."""
        model = cls()
        model.mitigator_, model.n_features_in_ = mitigator, mitigator.n_features_in_
        model.classes_ = as_labels(list(text))
        model.text_ = prototypes(prompt_groups(list(text.values()), mitigator.n_features_in_, "text"))
        model.offsets_ = np.zeros(len(text))
        model.diagnostics_ = dict(mitigator.diagnostics_)
        return model

    @property
    def title(self) -> str:
        """Name of the method."""
        return "EmbeddingMitigator"

    def _embed(self, rows: F64) -> F64:
        """Return the mitigated embeddings (b, p)."""
        return np.asarray(self.mitigator_.fitted_.map.transform(rows, unit=self.mitigator_.unit))

    def _match(self, embedded: F64, text: F64) -> F64:
        return np.asarray(embedded @ text.T)

    def _class_scores(self, embedded: F64) -> F64:
        return self._match(embedded, self.text_)

    def save(self, path: str | Path, **options: Any) -> Path:
        """Write the mitigator; class prompts are not part of it."""
        return self.mitigator_.save(path, **options)

    def fit(self, X: Any, y: Any = None, **given: Any) -> MitigatedZeroShot:
        """Raise: fit an `EmbeddingMitigator` and call `of`."""
        raise StateError(
            "MitigatedZeroShot is made by MitigatedZeroShot.of(mitigator, text); fit the mitigator"
        )
