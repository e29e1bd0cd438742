"""Zero-shot classification: the class whose prompts have the largest cosine with the image."""

from __future__ import annotations

from fairerclip.baselines.heads import CosineHead, class_prompts
from fairerclip.baselines.training_data import Needs, Training


class ZeroShot(CosineHead):
    """Unchanged CLIP: predict the class whose prompts have the largest cosine with the image.

    Needs class prompts. It uses no labels, no sensitive values and no gradient, and mitigates nothing; all other
    methods are compared with it.

    Attributes
    ----------
    text_ : array of shape (c, p)
        One unit vector per class: its prompts are normalised, averaged and normalised.

    Notes
    -----
    With one prompt per class it equals the zero-shot method in the tables of FairerCLIP; several prompts are averaged,
    as in Radford et al.

    Differences from the paper: the factor of the cosines is left out, which changes no prediction.

    Licence of the released code: MIT. This is a new implementation.

    References
    ----------
    Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", 2021, arXiv:2103.00020.

    Examples
    --------
    >>> import numpy as np
    >>> images = np.array([[2.0, 0.1], [0.0, 1.0]])
    >>> ZeroShot().fit(images, text={"cat": [1.0, 0.0], "dog": [0.0, 1.0]}).predict(images).tolist()
    ['cat', 'dog']
    """

    needs = Needs("none", True, False, False, "Radford et al. 2021, arXiv:2103.00020")
    prompts_alone = True
    free_queries = True

    @property
    def title(self) -> str:
        """Name of the method."""
        return "zero-shot baseline"

    def _learn(self, data: Training) -> None:
        self.text_ = class_prompts(data, "ZeroShot")
