"""Any saved model applied to new rows, and the files of its answers.

`mitigate_store` writes the mitigated copy of a collection, and `search_queries` ranks a collection by free queries.
Names are imported when they are first used.
"""

from fairerclip._util.lazy import lazy

_HOMES = {
    "MitigationReport": "mitigated_files",
    "mitigate_store": "mitigated_files",
    "search_queries": "free_queries",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - the names are listed once, in _HOMES
__getattr__, __dir__ = lazy(__name__, _HOMES)
