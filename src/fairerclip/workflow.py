"""Earlier name of `fairerclip.experiment`."""

from fairerclip._util.moved import moved

__getattr__ = moved(__name__, "fairerclip.experiment")
