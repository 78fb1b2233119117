"""Tests mirror the package; the same examples every time, and no clock in their verdict."""

from hypothesis import settings

settings.register_profile("coterie", deadline=None, derandomize=True)
settings.load_profile("coterie")
