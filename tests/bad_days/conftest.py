from tests.adapters.kubernetes.conftest import api, build, connection

__all__ = ["api", "build", "connection"]
