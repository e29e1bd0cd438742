"""Errors that a request is answered with: a code that programs can compare, and a message for people."""

from __future__ import annotations

import json

STATUSES = {
    "invalid_http": 400,
    "incomplete_body": 400,
    "invalid_utf8": 400,
    "invalid_json": 400,
    "invalid_npy": 400,
    "not_found": 404,
    "not_offered": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "slow_head": 408,
    "slow_body": 408,
    "length_required": 411,
    "body_too_large": 413,
    "too_many_rows": 413,
    "unsupported_type": 415,
    "unsupported_encoding": 415,
    "invalid_request": 422,
    "no_rows": 422,
    "wrong_shape": 422,
    "wrong_dtype": 422,
    "not_finite": 422,
    "zero_row": 422,
    "out_of_range": 422,
    "unknown_class": 422,
    "image_refused": 422,
    "text_refused": 422,
    "refused_by_model": 422,
    "internal": 500,
    "busy": 503,
    "not_ready": 503,
    "timed_out": 503,
    "stopping": 503,
}
"""Status of each code."""
RETRY = frozenset({"busy", "not_ready", "timed_out", "stopping"})
"""Codes after which the same request may succeed later; their answers have a Retry-After."""
RETRY_SECONDS = 1


def internal() -> RequestProblem:
    """Return the error that stands for any fault of ours: it tells nothing of the cause, which is logged."""
    return RequestProblem("internal", "the service failed; its log has the cause")


class RequestProblem(Exception):
    """A request that is answered with an error.

    Parameters
    ----------
    code : str
        A key of `STATUSES`.
    message : str
        What was expected, what came, and what to do, in one line. It may quote the request and is not logged.
    headers : sequence of pairs of bytes
        Further headers of the answer.
    """

    def __init__(self, code: str, message: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super().__init__(message)
        self.code, self.status = code, STATUSES[code]
        self.headers = headers
        if code in RETRY:
            self.headers = (*headers, (b"retry-after", str(RETRY_SECONDS).encode()))

    def document(self, request_id: str) -> bytes:
        """Return the body of the answer.

        Examples
        --------
        >>> RequestProblem("no_rows", "expected at least one row").document("a1").decode()
        '{"error":{"code":"no_rows","message":"expected at least one row","request_id":"a1"}}'
        """
        error = {"code": self.code, "message": str(self), "request_id": request_id}
        return json.dumps({"error": error}, separators=(",", ":")).encode()
