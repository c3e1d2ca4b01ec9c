"""What can go wrong with an API server, in words for the person who has to put it right.

The message of each names the file or the server, the key, the value and what to do. Credentials never appear in one.
"""

from __future__ import annotations


class KubernetesError(Exception):
    """Base of the adapter's errors. `str()` of it is ready to be shown."""


class BadConfiguration(KubernetesError):
    """A kubeconfig or a service account cannot be used as it is: trying again does not help."""


class Unreachable(KubernetesError):
    """No answer, or none that is the API server's: refused, timed out, broken off, not trusted, HTTP 5xx."""


class Unauthorized(KubernetesError):
    """401, also after the credentials were read again."""


class PermissionMissing(KubernetesError):
    """403: a rule is missing from the role. The message names it."""


class NotServed(KubernetesError):
    """404 to a list: the API server does not know this kind."""


class Expired(KubernetesError):
    """A watch cannot go on from its resource version (410), or what came was no event. List again."""
