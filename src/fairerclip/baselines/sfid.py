"""SFID: the dimensions by which a forest predicts S are overwritten with their mean over rows of uncertain S."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fairerclip._util.checks import check_count, check_interval
from fairerclip._util.types import F64
from fairerclip.baselines.gradient.recipes import seed_of
from fairerclip.baselines.heads import CosineHead, class_prompts, mean_prompt, sensitive_codes, varies
from fairerclip.baselines.sensitive_forest import predict_by_forest
from fairerclip.baselines.shared_solutions import once
from fairerclip.baselines.training_data import Needs, Training, unit_prompts

REPLACED = 50 / 512
"""Published share of dimensions that are overwritten: 50 of the 512 of CLIP ViT-B/32."""


class SFID(CosineHead):
    """Zero-shot classifier with the dimensions that predict S best overwritten by constants, in images and prompts.

    Needs class prompts and sensitive values of the images: true values, or prompts to predict them from. It uses no
    labels and no gradient, and ranks by any query.

    Parameters
    ----------
    replace : float, default=50/512
        Share of the dimensions that is overwritten, above 0 and below 1; the number is rounded, at least 1 and not all.
    confidence : float, default=0.7
        Rows whose most probable value has a smaller probability are rows of uncertain S.
    max_rows : int, default=1000
        Number of rows, drawn at random, that the forest learns from. With 3,150 rows of width 512 all of them take
        five times as long as 1,000.
    random_state : int, RandomState or None
        Source of the drawn rows and of the forest.

    Attributes
    ----------
    kept_ : array of shape (p,)
        1 for dimensions that are left as they are, 0 for those that are overwritten.
    image_fill_, text_fill_ : array of shape (p,)
        What image rows and prompts get in the overwritten dimensions; 0 in the others.
    importances_ : array of shape (p,)
        Importance of each dimension in the forest; neither it nor the forest is saved.
    text_ : array of shape (c, p)
        Class prompts after the change, normalised.
    diagnostics_ : dict
        replaced (number of dimensions), uncertain_rows, and a note.

    Notes
    -----
    A forest of 100 trees predicts S from unit rows. The dimensions with the largest mean decrease of impurity are
    overwritten with their weighted mean over rows of uncertain S. Probabilities are those of trees that have not seen
    the row: out of bag for rows that the forest learned from. At least 20 rows and 1 % of all are used:
    if fewer are uncertain, the least confident ones, and the note says so. Several attributes are crossed. If S has
    one value, nothing is overwritten.

    Differences from the paper: it has a second forest for text, trained on biographies that are labelled with sex,
    and takes the means from held-out rows. Here there is no labelled text: prompts are overwritten in the same
    dimensions, with their mean over the prompts of classes and sensitive values. Other choices would be worse. The
    mean of the images is far from prompts, because of the gap between the modalities; prompts left unchanged would
    have a share of their length in dimensions in which all images are equal; and a forest of a few prompts learns
    nothing. 50 of 512 dimensions are a share of any width here.

    Licence of the released code: MIT. This is a new implementation from the paper.

    References
    ----------
    Jung et al., "A Unified Debiasing Approach for Vision-Language Models across Modalities and Tasks", NeurIPS 2024,
    arXiv:2410.07593.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> s = np.arange(100) % 2
    >>> X = rng.normal(size=(100, 4)) + np.outer(s, [0.0, 0.0, 3.0, 0.0])
    >>> model = SFID(replace=0.25, random_state=0).fit(X, text=np.eye(4)[:2], sensitive_features=s)
    >>> model.kept_.tolist(), len(set(model.transform(X)[:, 2]))
    ([1.0, 1.0, 0.0, 1.0], 1)
    """

    needs = Needs("none", True, True, False, "Jung et al. 2024, arXiv:2410.07593")
    changes_embeddings = changes_prompts = free_queries = True
    fitted: ClassVar[tuple[str, ...]] = ("text_", "kept_", "image_fill_", "text_fill_")
    shapes = {  # noqa: RUF012
        "text_": ("c", "p"),
        "kept_": ("p",),
        "image_fill_": ("p",),
        "text_fill_": ("p",),
    }

    def __init__(
        self,
        replace: float = REPLACED,
        *,
        confidence: float = 0.7,
        max_rows: int = 1000,
        random_state: Any = None,
    ) -> None:
        self.replace = replace
        self.confidence = confidence
        self.max_rows = max_rows
        self.random_state = random_state

    @property
    def title(self) -> str:
        """Name of the method."""
        return "SFID"

    def _learn(self, data: Training) -> None:
        check_interval("replace", self.replace, 0, 1, "()")
        check_interval("confidence", self.confidence, 0, 1, "(]")
        check_count("max_rows", self.max_rows, least=10)
        text, s = class_prompts(data, "SFID"), sensitive_codes(data)
        width = data.X.shape[1]
        self.kept_, self.importances_ = np.ones(width), np.zeros(width)
        mean, rows, note = np.zeros(width), 0, "S has one value, so nothing is overwritten"
        if varies(s, data.weight):
            seed = seed_of(self.random_state)
            forest = once(predict_by_forest, data.X, s, data.weight, self.max_rows, seed)
            self.importances_ = forest.importances
            number = min(max(1, round(self.replace * width)), width - 1)  # images stay different
            self.kept_[np.argsort(-forest.importances, kind="stable")[:number]] = 0.0
            rows, mean, remark = forest.uncertain(data.X, data.weight, self.confidence)
            note = f"{number} of {width} dimensions are overwritten{remark}"
        self.image_fill_ = (1 - self.kept_) * mean
        self.text_fill_ = (1 - self.kept_) * mean_prompt(data, text)
        self.text_ = unit_prompts(self._embed_text(text), "overwriting dimensions")
        self.diagnostics_ = {
            "replaced": int(np.sum(self.kept_ == 0)),
            "uncertain_rows": rows,
            "note": note,
        }

    def _embed(self, rows: F64) -> F64:
        return np.asarray(rows * self.kept_ + self.image_fill_)

    def _embed_text(self, rows: F64) -> F64:
        return np.asarray(rows * self.kept_ + self.text_fill_)
