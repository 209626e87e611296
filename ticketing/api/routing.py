"""Routers by caller: each has its guard, and they may share a path."""

from typing import TYPE_CHECKING, Any

import litestar

if TYPE_CHECKING:
    _Base = litestar.Router
else:
    _Base = object


class SharedPaths(_Base):
    """Makes a router or application whose paths several routers may serve by different methods.

    The framework gives each route its OPTIONS handler as soon as it is in a router: two routers
    with one path would collide on it, or it would know the methods of one of them only. Without it
    here, the route that unites them makes its own.
    """

    @property
    def route_handler_method_map(self) -> dict[str, Any]:
        """The handlers by path and method, without OPTIONS."""
        return {
            path: {method: handler for method, handler in methods.items() if method != "OPTIONS"}
            for path, methods in super().route_handler_method_map.items()
        }


class Router(SharedPaths, litestar.Router):
    """A router of one kind of caller."""
