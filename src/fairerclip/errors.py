"""Exceptions and warnings of the package, one class per cause.

Each error is a `FairerClipError` and also a builtin exception, so both ``except FairerClipError`` and
``except ValueError`` work. Messages say what was expected, what was given, and what to do.
"""

from collections.abc import Mapping
from typing import Any, Self


class FairerClipError(Exception):
    """Base class of every error that this package raises itself.

    Attributes
    ----------
    reason : str
        Short name of the cause, for programs; empty where the class of the error says it all. docs/reference/format.md
        lists the reasons of a `ModelFileError`.
    """

    reason: str = ""

    def because(self, reason: str) -> Self:
        """Set the reason and return the error, to raise it."""
        self.reason = reason
        return self


class ShapeError(FairerClipError, ValueError):
    """An array has the wrong number of axes, rows or columns."""


class RowTypeError(ShapeError, TypeError):
    """Rows hold no real numbers: text, dates, complex numbers, records, objects or masked values."""


class NonFiniteError(FairerClipError, ValueError):
    """Rows hold NaN or infinity."""


class ZeroRowError(FairerClipError, ValueError):
    """Rows hold only zeros, so their cosine with a prompt is undefined."""


class LabelError(FairerClipError, ValueError):
    """Labels are missing, have one value only, or do not match the prompts."""


class PromptError(FairerClipError, ValueError):
    """Prompt embeddings are missing, repeated, or do not match the labels."""


class ParameterError(FairerClipError, ValueError):
    """A parameter has a value outside its range."""


class TextCollapseError(FairerClipError, ValueError):
    """The text encoder maps every class to the same point, so classes cannot be distinguished."""


class NoSolutionError(FairerClipError, ValueError):
    """No direction has a positive objective: the penalty is larger than the target term everywhere."""


class NotDefiniteError(FairerClipError, ValueError):
    """The regularised covariance is not positive definite in floating point."""


class ToleranceError(NotDefiniteError):
    """Conjugate gradients did not reach their tolerance: the ridge is too small for the working precision."""


class FreeQueryError(FairerClipError, ValueError):
    """A query is not among the prompts that the model was fitted on; `EmbeddingMitigator` takes any query."""


class StateError(FairerClipError, RuntimeError):
    """The call needs something that the model no longer holds."""


class TaskFileError(FairerClipError, ValueError):
    """A task file or an embedding file cannot be used."""


class ResultsFileError(FairerClipError, ValueError):
    """A results file cannot be used: it is not a results file, of a newer version, or breaks the format."""


class ModelFileError(FairerClipError, ValueError):
    """A model file is damaged, of an unknown version, or not a model; ``reason`` says which."""


class ExportError(FairerClipError, ValueError):
    """A model, or a part of it, cannot be written in the form of another program."""


class StoreError(FairerClipError, ValueError):
    """Embeddings on disk cannot be used: they are damaged, of mixed widths, or in an unknown layout."""


class JoinError(FairerClipError, ValueError):
    """Labels and embeddings cannot be joined: ids are repeated, a column is missing, or no id matches."""


class ProvenanceError(FairerClipError, ValueError):
    """Image and text embeddings come from different models."""


class DatasetError(FairerClipError, OSError):
    """A dataset is not on disk in its official layout."""


class DatasetAbsentError(DatasetError):
    """No file of a dataset is in the folder that was given."""


class PromptFileError(FairerClipError, ValueError):
    """A prompt file cannot be used, or no prompt file has this name."""


class ImageError(FairerClipError, ValueError):
    """An image cannot be decoded, or is larger or of another format than is accepted."""


class EncoderError(FairerClipError, ValueError):
    """A CLIP encoder cannot be loaded or used."""


class MissingExtraError(FairerClipError, ImportError):
    """An optional library is needed but not installed; the message names the extra to install."""


class OutputExistsError(FairerClipError, FileExistsError):
    """The output path exists and may not be overwritten."""


class OutputError(FairerClipError, OSError):
    """The output cannot be written: no permission, no space, or no such folder."""


class LostWorkerError(FairerClipError, RuntimeError):
    """A worker process ended without a result."""


class ClusterError(FairerClipError, RuntimeError):
    """There is no cluster to send the work to, or it has no workers."""


class WorkFailedError(FairerClipError, RuntimeError):
    """Every part of the work failed, or a part that was requested by name.

    Attributes
    ----------
    results : dict
        Results of the parts that did not fail, ready for JSON.
    """

    def __init__(self, message: str, results: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.results = dict(results or {})


class FairerClipWarning(UserWarning):
    """Base class of every warning of this package."""


class KeptRunWarning(FairerClipWarning):
    """A saved run cannot be used, so it is run again."""


class UnknownArrayWarning(FairerClipWarning):
    """A task file has arrays that nothing uses, or whose names are probably misspelled."""


class PositionJoinWarning(FairerClipWarning):
    """Labels are joined with embeddings by position, so nothing shows whether they are of the same images."""


class NoSensitiveWarning(FairerClipWarning):
    """There are neither sensitive labels nor sensitive prompts, so nothing is mitigated."""


class ConstantSensitiveWarning(FairerClipWarning):
    """A sensitive attribute has one value only, so its dependence term is zero."""


class ManyCategoriesWarning(FairerClipWarning):
    """A categorical sensitive attribute has so many values that it is probably a number."""


class VanishedLabelWarning(FairerClipWarning):
    """A class or a sensitive value has no rows, from the start or after an iteration."""


class DroppedTermWarning(FairerClipWarning):
    """A dependence term is zero and was left out of the objective."""


class RankWarning(FairerClipWarning):
    """Fewer components have a positive objective than were requested."""


class TextCollapseWarning(FairerClipWarning):
    """The text encoder maps two classes to the same direction, or a method makes their scores equal."""


class ConstantPredictionWarning(FairerClipWarning):
    """Every training row gets the same predicted class."""


class ZeroRowWarning(FairerClipWarning):
    """Rows hold only zeros."""


class PromptOrderWarning(FairerClipWarning):
    """Prompts agree with the known labels much better in another order."""


class UninformativePromptsWarning(FairerClipWarning):
    """Prompts agree with the known labels no better than chance."""


class SwappedPromptsWarning(FairerClipWarning):
    """The prompts of the sensitive values agree with the classes better than the prompts of the classes do."""


class IdleParameterWarning(FairerClipWarning):
    """A parameter was set that has no effect with the other parameters."""


class NormDriftWarning(FairerClipWarning):
    """Rows have other lengths than the rows that the model was fitted on."""


class DirectionDriftWarning(FairerClipWarning):
    """The mean of the rows has another direction than that of the rows that the model was fitted on."""


class CollectionDriftWarning(FairerClipWarning):
    """Rows come from another collection than the one that a mitigator was fitted on."""


class SensitiveDriftWarning(FairerClipWarning):
    """A sensitive value is read much more or less often than in the rows that a mitigator was fitted on."""


class SensitiveQueryWarning(FairerClipWarning):
    """A query asks for a sensitive attribute, so it is not mitigated."""


class AccuracyFloorWarning(FairerClipWarning):
    """No model of a search reaches the required accuracy."""


class UnusedRowsWarning(FairerClipWarning):
    """Labelled training rows could not be used to choose a model."""


class PositiveClassWarning(FairerClipWarning):
    """Two classes have names and no positive class was given, so the second in sorted order is the positive one."""


class RefitWarning(FairerClipWarning):
    """A model that was trained again does not predict as it did."""


class LabelCycleWarning(FairerClipWarning):
    """Pseudo-labels returned to an earlier state, so the iteration would repeat forever."""


class NotConvergedWarning(FairerClipWarning):
    """The maximum number of iterations was reached before the iteration converged."""
