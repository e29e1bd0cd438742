"""Earlier name of `fairerclip.auditing`.

``fairerclip.audit`` is a function. Importing ``fairerclip.audit.task`` puts this package in its place, so the package
can be called, too.
"""

import sys
from types import ModuleType
from typing import Any

from fairerclip._util.moved import moved


class CallableModule(ModuleType):
    """A module that is called as the function of the same name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call `fairerclip.report.audit_call.audit`."""
        from fairerclip.report.audit_call import audit

        return audit(*arguments, **options)


__getattr__ = moved(__name__, "fairerclip.auditing")
sys.modules[__name__].__class__ = CallableModule
