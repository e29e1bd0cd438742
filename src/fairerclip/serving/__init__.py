"""The service of `fairerclip serve`: one fitted model behind HTTP.

`ServedModel` answers, `MicroBatches` joins the calls of several requests, `RequestGuard` enforces the limits of a
request, `GuardedConnection` those of a connection, and `serve` runs the processes. Its libraries are the extra
``serve``.
"""
