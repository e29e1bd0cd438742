"""Audits of how CLIP models treat groups: all sections on one task, or many models compared on one dataset."""

from fairerclip._util.lazy import lazy

_HOMES = {
    "AuditOptions": "audit_options",
    "AuditResults": "results",
    "audit_task": "run",
    "read_results": "results",
    "recommend": "recommendation",
    "write_results": "results",
}

__all__ = [*_HOMES]  # noqa: PLE0604 - kept in one place, in order
__getattr__, __dir__ = lazy(__name__, _HOMES)
