"""One thread a test: see tests/world.py."""

from tests.world import one_thread

__all__ = ["one_thread"]
