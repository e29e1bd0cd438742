"""Reports made from the results of an audit: the page, and what else is written from the same results."""

from fairerclip._util.lazy import lazy

_HOMES = {"render_page": "page", "write_report": "write"}

__all__ = [*_HOMES]  # noqa: PLE0604 - kept in one place, in order
__getattr__, __dir__ = lazy(__name__, _HOMES)
