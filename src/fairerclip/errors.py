"""One exception or warning per cause.

Each error is a `FairerClipError` and the natural builtin, so both ``except FairerClipError`` and
``except ValueError`` work. Messages say what was expected, what came, and what to do.
"""

from collections.abc import Mapping
from typing import Any


class FairerClipError(Exception):
    """Base of every error that this package raises on purpose."""


class ShapeError(FairerClipError, ValueError):
    """An array has the wrong number of axes, rows or columns."""


class NonFiniteError(FairerClipError, ValueError):
    """Rows hold NaN or infinity."""


class ZeroRowError(FairerClipError, ValueError):
    """Rows are all zero, so that their cosine with a prompt is undefined."""


class LabelError(FairerClipError, ValueError):
    """Labels are missing, of one value only, or do not fit the prompts."""


class PromptError(FairerClipError, ValueError):
    """Prompt embeddings are missing, repeated, or do not fit the labels."""


class ParameterError(FairerClipError, ValueError):
    """A parameter has a value outside its range."""


class TextCollapseError(FairerClipError, ValueError):
    """The text encoder maps every class to the same point: no class could be told from another."""


class NoSolutionError(FairerClipError, ValueError):
    """No direction has a positive objective: the penalty outweighs the target everywhere."""


class NotDefiniteError(FairerClipError, ValueError):
    """The regularised covariance is not positive definite in floating point."""


class FreeQueryError(FairerClipError, ValueError):
    """A retrieval query that is not among the prompts the model was fitted on."""


class StateError(FairerClipError, RuntimeError):
    """The call needs something that the model no longer holds."""


class TaskFileError(FairerClipError, ValueError):
    """A task file or an embedding file cannot be used."""


class ResultsFileError(FairerClipError, ValueError):
    """A file of results cannot be used: not one, of a newer version, or not what the format says."""


class ModelFileError(FairerClipError, ValueError):
    """A saved model is damaged, of an unknown version, or not a model."""


class StoreError(FairerClipError, ValueError):
    """Embeddings on disk cannot be used: damaged, of mixed widths, or not what was expected."""


class JoinError(FairerClipError, ValueError):
    """Labels and embeddings do not meet: ids repeat, a column is missing, or nothing matches."""


class ProvenanceError(FairerClipError, ValueError):
    """Image and text embeddings come from different models."""


class DatasetError(FairerClipError, OSError):
    """A dataset is not on disk in its official layout."""


class DatasetAbsentError(DatasetError):
    """There is nothing of a dataset where it was looked for."""


class PromptFileError(FairerClipError, ValueError):
    """A prompt file cannot be used, or there is none of that name."""


class ImageError(FairerClipError, ValueError):
    """An image cannot be decoded, or is one that must not be."""


class EncoderError(FairerClipError, ValueError):
    """A CLIP encoder cannot be loaded or used."""


class MissingExtraError(FairerClipError, ImportError):
    """A library that is not installed is needed; the message names the extra."""


class OutputExistsError(FairerClipError, FileExistsError):
    """The output path is taken and overwriting was not asked for."""


class OutputBusyError(FairerClipError, OSError):
    """Another process is writing the same output."""


class OutputError(FairerClipError, OSError):
    """The output cannot be written: no permission, no space, no such place."""


class LostWorkerError(FairerClipError, RuntimeError):
    """A process that worked for us ended without an answer."""


class WorkFailedError(FairerClipError, RuntimeError):
    """Every part of some work failed, or one that was asked for by name.

    Attributes
    ----------
    results : what there is all the same, ready for JSON.
    """

    def __init__(self, message: str, results: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.results = dict(results or {})


class FairerClipWarning(UserWarning):
    """Base of every warning that this package gives."""


class NotOneStepWarning(FairerClipWarning):
    """A folder was replaced file by file, since it could not be replaced in one step."""


class KeptRunWarning(FairerClipWarning):
    """A kept run cannot be used and is run again."""


class NoSensitiveWarning(FairerClipWarning):
    """There is neither a sensitive attribute nor prompts to read it from: nothing is mitigated."""


class ConstantSensitiveWarning(FairerClipWarning):
    """A sensitive attribute has one value only: its term is zero."""


class ManyCategoriesWarning(FairerClipWarning):
    """A categorical sensitive attribute has so many values that it looks like a quantity."""


class VanishedLabelWarning(FairerClipWarning):
    """A class or a sensitive value has no rows (any more)."""


class DroppedTermWarning(FairerClipWarning):
    """A dependence term vanished and was left out of the objective."""


class RankWarning(FairerClipWarning):
    """Fewer components have a positive objective than were asked for."""


class TextCollapseWarning(FairerClipWarning):
    """The text encoder maps two classes to the same direction."""


class ConstantPredictionWarning(FairerClipWarning):
    """Every training row is predicted to be of one class."""


class ZeroRowWarning(FairerClipWarning):
    """Rows are all zero."""


class PromptOrderWarning(FairerClipWarning):
    """Prompts agree with the known labels far better in another order."""


class UninformativePromptsWarning(FairerClipWarning):
    """Prompts agree with the known labels no better than chance."""


class SwappedPromptsWarning(FairerClipWarning):
    """The prompts of the sensitive values agree with the classes better than the prompts of the classes do."""


class IdleParameterWarning(FairerClipWarning):
    """A parameter was set that has no effect beside the others."""


class NormDriftWarning(FairerClipWarning):
    """Rows have other lengths than those that the model was fitted on."""


class DirectionDriftWarning(FairerClipWarning):
    """Rows point elsewhere on average than those that the model was fitted on."""


class RenamedWarning(FairerClipWarning, FutureWarning):
    """A name that has moved was used; it goes in the next release."""


class AccuracyFloorWarning(FairerClipWarning):
    """No model of a search reaches the accuracy floor that was asked for."""


class PositiveClassWarning(FairerClipWarning):
    """Two classes have names, and none was given as the positive one: the second in sorted order was taken."""


class UntunedRankingWarning(FairerClipWarning):
    """A task without target labels was fitted without tuning its rankings."""


class LabelCycleWarning(FairerClipWarning):
    """Pseudo-labels came back to an earlier state and would repeat for ever."""


class NotConvergedWarning(FairerClipWarning):
    """The iteration cap was reached while something still changed."""
