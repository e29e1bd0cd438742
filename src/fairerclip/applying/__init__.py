"""Any saved model applied to new rows, and the files of its answers.

`apply_to_file` writes the answers of a classifier, `mitigate_store` the mitigated copy of a collection, and
`search_queries` ranks a collection by free queries.
Names are imported when they are first used.
"""

from fairerclip._util.lazy import lazy

_HOMES = {
    "AppliedReport": "streamed_answers",
    "MitigationReport": "mitigated_files",
    "apply_to_file": "streamed_answers",
    "mitigate_store": "mitigated_files",
    "search_queries": "free_queries",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - the names are listed once, in _HOMES
__getattr__, __dir__ = lazy(__name__, _HOMES)
