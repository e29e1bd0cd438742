"""Earlier name of `fairerclip.auditing`."""

from fairerclip._util.moved import moved

__getattr__ = moved(__name__, "fairerclip.auditing")
