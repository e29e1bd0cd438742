"""Earlier name of `fairerclip.auditing.results`."""

from fairerclip._util.moved import moved

_NOTE = ". Results are typed there: results.model_dump(by_alias=True) is the mapping"
__getattr__ = moved(__name__, "fairerclip.auditing.results", _NOTE)
