"""Earlier name of `fairerclip.auditing.run`."""

from fairerclip._util.moved import moved

_NOTE = ". Results are typed there: results.model_dump(by_alias=True) is the mapping"
__getattr__ = moved(__name__, "fairerclip.auditing.run", _NOTE)
