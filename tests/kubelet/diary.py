"""Every version of the pods of a namespace, as a watch tells of them: what is there for half a second is not missed."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from tests.kubelet.cluster import Cluster, Json


class Diary:
    """Use it as a context manager: it watches until then. `None` stands for a pod that is gone."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._versions: dict[str, list[Json | None]] = {}
        self._changed = threading.Condition()
        self._failure, self._changed_at = "", 0.0
        path = f"/api/v1/namespaces/{namespace}/pods"
        listed = cluster.call("GET", path)
        for pod in listed["items"]:
            self._note(pod["metadata"]["name"], pod)
        self._connection = http.client.HTTPConnection(urlsplit(cluster.url).netloc, timeout=600)
        version = listed["metadata"]["resourceVersion"]
        self._connection.request("GET", f"{path}?watch=true&resourceVersion={version}&timeoutSeconds=3600")
        self._response = self._connection.getresponse()
        self._closing = False
        self._thread = threading.Thread(target=self._read, name="diary", daemon=True)
        self._thread.start()

    def __enter__(self) -> Diary:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        if self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)  # ends the read that the thread waits in
        self._thread.join(10)
        self._response.close()
        self._connection.close()

    def versions(self, pod: str) -> list[Json | None]:
        """All versions of a pod so far, oldest first."""
        with self._changed:
            return list(self._versions.get(pod, []))

    def wait(self, happened: Callable[[], bool], within_s: float, quiet_s: float | None = None) -> bool:
        """Wait until something is so, looking whenever a pod has changed. False if it did not come to it, or if no pod
        has changed for so long."""
        began_at = self._changed_at = time.monotonic()
        while not happened():
            with self._changed:
                now = time.monotonic()
                if now - began_at > within_s or (quiet_s is not None and now - self._changed_at > quiet_s):
                    return False
                assert not self._failure, self._failure
                self._changed.wait(0.2)
        return True

    def _read(self) -> None:
        try:
            for line in self._response:
                event: dict[str, Any] = json.loads(line)
                pod = event["object"]
                self._note(pod["metadata"]["name"], None if event["type"] == "DELETED" else pod)
            failure = "the API server has ended the watch"
        except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
            failure = f"the watch broke: {error}"
        with self._changed:
            self._failure = "" if self._closing else failure
            self._changed.notify_all()

    def _note(self, name: str, pod: Json | None) -> None:
        with self._changed:
            self._versions.setdefault(name, []).append(pod)
            self._changed_at = time.monotonic()
            self._changed.notify_all()
