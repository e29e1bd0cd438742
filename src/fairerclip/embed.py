"""Earlier name of `fairerclip.encoders.embed`."""

from fairerclip._util.moved import moved

__getattr__ = moved(__name__, "fairerclip.encoders.embed")
