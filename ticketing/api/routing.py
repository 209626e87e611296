"""Routers by caller: each has its guard, and they may share a path."""

from typing import Any

import litestar


class Router(litestar.Router):
    """A router whose paths other routers may serve with other methods.

    The framework gives each route an OPTIONS handler as soon as it is in a router, and two routers
    with one path would then collide on it. Without it here, the application's single route makes
    its own.
    """

    @property
    def route_handler_method_map(self) -> dict[str, Any]:
        """The handlers by path and method, without OPTIONS."""
        return {
            path: {method: handler for method, handler in methods.items() if method != "OPTIONS"}
            for path, methods in super().route_handler_method_map.items()
        }
