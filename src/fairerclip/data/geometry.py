"""Geometry of the simulated image-text space from which `simulate` draws its tasks.

Embeddings are built on orthogonal axes and then rotated by one random rotation, so that no single coordinate has a
meaning::

    image mean | text mean | target | hidden | sensitive … | interaction | species | bulk

*target* is the class evidence that prompts can use, *hidden* is class evidence that only a trained probe can use,
*interaction* depends on class × sensitive value, *species* are the sub-clusters of a class, and *bulk* is
noise with a power-law spectrum. The distance of image mean and text mean is the modality gap.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from fairerclip._util.types import Ints
from fairerclip.errors import ParameterError

Floats = NDArray[np.float32]

MIN_BULK = 16  # with fewer bulk axes the noise of the prompts would not average out
STRATIFIED_ROWS = 2000  # larger cells need no stratified noise
_NORMAL, _TAIL = NormalDist(), 1e-9
REWORDED = (0.15, 0.3)  # spread of leak and offset over wordings of the same prompts
AXIS_NOISE = 0.02  # noise along the two mean axes; it has the same effect on every class


@dataclass(frozen=True)
class Geometry:
    """Strengths of one simulated space. Evidence is in standard deviations of the noise on its axis."""

    target: float = 1.5
    hidden: float = 0.8
    sensitive: float = 1.8
    interaction: float = 0.5
    evidence_gap: float = 0.0  # target evidence × (1 ± this) with the first and last sensitive value
    species: float = 1.1
    n_species: int = 6  # per class
    species_axes: int = 6
    leak: float = 0.6  # of a class prompt toward its sensitive value, relative to its class direction
    offset: float = 0.0  # added to the score of the first class for every image, in the units of `target`
    prompt_noise: float = 0.8
    prompt_length: float = (
        0.2  # length of the part that differs between prompts; the common part has length 1
    )
    modality_cosine: float = 0.32  # between image mean and text mean
    image_mean: float = 0.8
    axis_noise: float = 0.05
    bulk_variance: float = 0.28
    bulk_decay: float = 0.9


def simplex(m: int) -> Floats:
    """Return m unit vectors (m, m-1) at equal angles; for m = 2 they are -1 and +1.

    Examples
    --------
    >>> simplex(2).tolist()
    [[-1.0], [1.0]]
    """
    vectors = np.zeros((m, m - 1))
    for j in range(m - 1):  # Helmert contrasts: column j separates value j+1 from all before it
        vectors[: j + 1, j] = -1.0 / np.sqrt((j + 1) * (j + 2))
        vectors[j + 1, j] = np.sqrt((j + 1) / (j + 2))
    unit: Floats = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


class Space:
    """One drawn space: a rotation, the axes, and the sub-clusters.

    Parameters
    ----------
    geometry : Geometry
        Strengths.
    n_target : int
        Number of classes, or of latent traits when `traits` is true.
    n_sensitive : sequence of int
        Number of values of each sensitive attribute.
    width : int
        Width p of the embeddings.
    rng : numpy.random.Generator
        Source of the rotation, the spectrum's axes and the sub-clusters.
    traits : bool
        The target axes carry unlabelled traits, one axis each, instead of classes.
    """

    def __init__(
        self,
        geometry: Geometry,
        n_target: int,
        n_sensitive: Sequence[int],
        width: int,
        rng: np.random.Generator,
        *,
        traits: bool = False,
    ) -> None:
        self.geometry, self.width, self.rng = geometry, width, rng
        self.class_codes = np.eye(n_target, dtype=np.float32) if traits else simplex(n_target)
        self.sensitive_codes = [simplex(m) for m in n_sensitive]
        kc, ks = self.class_codes.shape[1], [codes.shape[1] for codes in self.sensitive_codes]
        sizes = [1, 1, kc, kc, *ks, kc * ks[0], geometry.species_axes]
        edges = np.cumsum([0, *sizes])
        if width < edges[-1] + MIN_BULK:
            raise ParameterError(
                f"width must be at least {edges[-1] + MIN_BULK} for {n_target} classes and sensitive values "
                f"{list(n_sensitive)}, got {width}"
            )
        axes = [slice(int(a), int(b)) for a, b in pairwise(edges)]
        self.target, self.hidden = axes[2], axes[3]
        self.sensitive = axes[4 : 4 + len(ks)]
        self.interaction, self.species = axes[-2], axes[-1]
        self.bulk = slice(int(edges[-1]), width)
        self.rotation = _rotation(width, rng)  # (p, p)
        self.centres = self._species(n_target)  # (classes, species per class, species axes)

    def _species(self, n_target: int) -> Floats:
        g = self.geometry
        centres = self.rng.standard_normal((n_target, g.n_species, g.species_axes))
        # Zero mean inside each class: sub-clusters then help a kernel and do not change the linear evidence.
        centres -= centres.mean(axis=1, keepdims=True)
        centres *= g.species / np.sqrt(np.mean(centres**2))
        return centres.astype(np.float32)

    def _noise_scale(self) -> Floats:
        g = self.geometry
        scale = np.full(self.width, g.axis_noise)
        scale[:2] = AXIS_NOISE
        n_bulk = self.bulk.stop - self.bulk.start
        spectrum = np.arange(1, n_bulk + 1, dtype=np.float64) ** -g.bulk_decay
        scale[self.bulk] = np.sqrt(g.bulk_variance * spectrum / spectrum.sum())
        return scale.astype(np.float32)

    def images(self, y: Ints | None, s: Sequence[Ints], rng: np.random.Generator) -> Floats:
        """Draw one image embedding per row, of unit length.

        Parameters
        ----------
        y : ndarray of shape (n,) or None
            Classes; None leaves the target axes to noise (traits).
        s : sequence of ndarray of shape (n,)
            Values of each sensitive attribute.
        rng : numpy.random.Generator
            Source of the rows.

        Returns
        -------
        X : ndarray of shape (n, p), float32
            Rows of unit length.

        Notes
        -----
        Inside each cell (class × first attribute) the noise on the target and sensitive axes is a Latin
        hypercube sample: each row has the right distribution, and even a cell of nine rows covers it evenly.
        Accuracies of small cells therefore vary less between seeds than those of independent rows would.
        """
        g, unit = self.geometry, np.float32(self.geometry.axis_noise)
        x = rng.standard_normal((len(s[0]), self.width), dtype=np.float32)
        if y is not None:
            cells = y * len(self.sensitive_codes[0]) + s[0]
            for axis in (
                *range(2, self.hidden.start),
                *range(self.sensitive[0].start, self.sensitive[0].stop),
            ):
                _stratify(x[:, axis], cells, rng)
        x *= self._noise_scale()
        x[:, 0] += np.float32(g.image_mean)
        codes = [table[values] for table, values in zip(self.sensitive_codes, s, strict=True)]
        for axes, code in zip(self.sensitive, codes, strict=True):
            x[:, axes] += unit * g.sensitive * code
        if y is not None:
            classes = self.class_codes[y]  # (n, kc)
            tilt = 1.0 - g.evidence_gap * (2.0 * s[0] / max(len(self.sensitive_codes[0]) - 1, 1) - 1.0)
            x[:, self.target] += (unit * g.target * tilt[:, None]).astype(np.float32) * classes
            x[:, self.hidden] += unit * g.hidden * classes
            crossed = classes[:, :, None] * codes[0][:, None, :]  # (n, kc, ks)
            x[:, self.interaction] += unit * g.interaction * crossed.reshape(len(x), -1)
            x[:, self.species] += unit * self.centres[y, rng.integers(g.n_species, size=len(y))]
        x = x @ self.rotation
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        return x

    def texts(
        self,
        directions: Floats,
        offsets: Sequence[float] | None = None,
        rng: np.random.Generator | None = None,
    ) -> Floats:
        """Draw prompt embeddings around the text mean, of unit length.

        Parameters
        ----------
        directions : ndarray of shape (m, p)
            Direction of each prompt on the unrotated axes; see `direction`.
        offsets : sequence of m floats, optional
            Constant added to the score of each prompt for all images, in the units of `Geometry.target`.
        rng : numpy.random.Generator, optional
            Source of the noise of the prompts; by default the generator of the space.

        Returns
        -------
        text : ndarray of shape (m, p), float32
            Rows of unit length.
        """
        g, m = self.geometry, len(directions)
        noise = np.zeros((m, self.width))
        source = self.rng if rng is None else rng
        noise[:, self.bulk] = source.standard_normal((m, self.bulk.stop - self.bulk.start))
        # Exactly equal lengths: prompts must differ in direction only.
        noise *= g.prompt_noise / np.linalg.norm(noise, axis=1, keepdims=True)
        t = g.prompt_length * (directions.astype(np.float64) + noise)
        t[:, 0] += g.modality_cosine
        t[:, 1] += np.sqrt(1.0 - g.modality_cosine**2)
        if offsets is not None:
            t[:, 0] += g.prompt_length * g.axis_noise * np.asarray(offsets) / g.image_mean
        t = t @ self.rotation.astype(np.float64)
        unit: Floats = (t / np.linalg.norm(t, axis=1, keepdims=True)).astype(np.float32)
        return unit

    def direction(self, target: Floats | None, leaks: Sequence[Floats | None]) -> Floats:
        """Return the unrotated vector (p,) of a prompt with these parts on the target and the sensitive axes."""
        d = np.zeros(self.width, dtype=np.float32)
        if target is not None:
            d[self.target] = target
        for axes, leak in zip(self.sensitive, leaks, strict=True):
            if leak is not None:
                d[axes] = leak
        return d

    def class_texts(self) -> Floats:
        """Draw one prompt per class (c, p), each leaking toward the sensitive value that it is correlated with."""
        directions, offsets = self._class_directions(self.geometry.leak, self.geometry.offset)
        return self.texts(directions, offsets)

    def _class_directions(self, leak: float, offset: float) -> tuple[Floats, list[float]]:
        codes = self.sensitive_codes[0]
        rest: list[Floats | None] = [None] * (len(self.sensitive) - 1)
        rows = [
            self.direction(code, [leak * codes[j % len(codes)], *rest])
            for j, code in enumerate(self.class_codes)
        ]
        return np.stack(rows), [offset] + [0.0] * (len(rows) - 1)

    def reworded(self, rng: np.random.Generator) -> Floats:
        """Draw another wording of the class prompts (c, p): other noise, leak and offset."""
        g = self.geometry
        leak, offset = rng.normal([g.leak, g.offset], REWORDED)
        return self.texts(*self._class_directions(float(leak), float(offset)), rng=rng)

    def sensitive_texts(self, which: int = 0) -> Floats:
        """Draw one prompt per value of an attribute (|S|, p)."""
        rows = []
        for code in self.sensitive_codes[which]:
            leaks: list[Floats | None] = [None] * len(self.sensitive)
            leaks[which] = code
            rows.append(self.direction(None, leaks))
        return self.texts(np.stack(rows))


def _stratify(column: Floats, cells: Ints, rng: np.random.Generator) -> None:
    """Replace normal noise (n,) in place: the m rows of a cell get one draw from each of m quantile strata."""
    for cell in np.unique(cells):
        rows = np.flatnonzero(cells == cell)
        if len(rows) <= STRATIFIED_ROWS:
            u = (rng.permutation(len(rows)) + rng.random(len(rows))) / len(rows)
            column[rows] = list(map(_NORMAL.inv_cdf, np.clip(u, _TAIL, 1 - _TAIL)))


def _rotation(width: int, rng: np.random.Generator) -> Floats:
    q, r = np.linalg.qr(rng.standard_normal((width, width), dtype=np.float32))
    # Signs from R make the rotation uniformly distributed and equal for every LAPACK.
    return np.asarray(q * np.sign(np.diag(r)), dtype=np.float32)
