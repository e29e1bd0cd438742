"""Earlier name of `fairerclip.auditing.run`."""

from fairerclip._util.moved import moved

__getattr__ = moved(
    __name__,
    "fairerclip.auditing.run",
    ". Results are typed there: results.model_dump(by_alias=True) is the mapping",
)
