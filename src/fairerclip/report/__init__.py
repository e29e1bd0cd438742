"""Reports of the results of an audit: the HTML page, Markdown, CSV tables, the model card and figures."""

from fairerclip._util.lazy import lazy

_HOMES = {"Audit": "audit_call", "render_page": "page", "write_report": "write"}

__all__ = [*_HOMES]  # noqa: PLE0604 - kept in one place, in order
__getattr__, __dir__ = lazy(__name__, _HOMES)
