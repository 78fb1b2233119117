from ..world import one_thread

__all__ = ["one_thread"]
