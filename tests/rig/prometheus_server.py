"""A Prometheus 3 on loopback: scrapes what it is told to, takes remote writes."""

from __future__ import annotations

import json
import ssl
import struct
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cramjam
import yaml

from tests.rig.build import binary
from tests.rig.process import Process, free_ports

STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]  # ends a series at once

Series = tuple[Mapping[str, str], Sequence[tuple[float, float]]]  # labels with __name__; (unix seconds, value)


class PrometheusServer:
    """A running Prometheus with its data in `folder`; the constructor returns when it is ready."""

    def __init__(
        self,
        folder: Path,
        scrape_configs: Sequence[Mapping[str, Any]] = (),
        *,
        scrape_interval: str = "1s",
        out_of_order: str = "30m",
        arguments: Sequence[str] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`tls`: a client's side, where the arguments make it speak TLS as localhost."""
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}" if tls is None else f"https://localhost:{port}"
        self._config_file = folder / "prometheus.yml"
        self._config: dict[str, Any] = {
            "global": {"scrape_interval": scrape_interval, "scrape_timeout": scrape_interval},
            "storage": {"tsdb": {"out_of_order_time_window": out_of_order}},
        }
        self._scrape_configs = scrape_configs
        self._configure(scrape_configs)
        self._process = Process(
            "prometheus",
            [
                binary("prometheus"),
                f"--config.file={self._config_file}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--storage.tsdb.retention.time=100y",
                f"--web.listen-address=127.0.0.1:{port}",
                "--web.enable-lifecycle",
                "--web.enable-remote-write-receiver",
                "--query.timeout=20s",
                "--log.level=warn",
                *arguments,
            ],
            folder / "prometheus.log",
        )
        try:
            self._process.wait_ready(f"{self.url}/-/ready", context=tls)
        except BaseException:
            self.stop()
            raise

    @contextmanager
    def blind(self) -> Iterator[None]:
        """Scrape nothing meanwhile."""
        self._configure(())
        self._reload()
        try:
            yield
        finally:
            self._configure(self._scrape_configs)
            self._reload()

    def _configure(self, scrape_configs: Sequence[Mapping[str, Any]]) -> None:
        self._config_file.write_text(
            yaml.safe_dump({**self._config, "scrape_configs": list(map(dict, scrape_configs))})
        )

    def _reload(self) -> None:
        urllib.request.urlopen(f"{self.url}/-/reload", b"", timeout=60).close()

    def write(self, series: Iterable[Series]) -> None:
        """Store samples by remote write 1.0. Raises AssertionError with the server's words when it refuses them."""
        message = b"".join(
            _field(1, b"".join(_field(1, _label(name, labels[name])) for name in sorted(labels)) + _samples(samples))
            for labels, samples in series
        )
        request = urllib.request.Request(
            f"{self.url}/api/v1/write",
            bytes(cramjam.snappy.compress_raw(message)),
            {
                "Content-Encoding": "snappy",
                "Content-Type": "application/x-protobuf",
                "X-Prometheus-Remote-Write-Version": "0.1.0",
            },
        )
        try:
            urllib.request.urlopen(request, timeout=60).close()
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"remote write refused: {error.code} {error.read().decode()}") from None

    def query(self, promql: str, at: float | None = None) -> list[tuple[dict[str, str], float]]:
        """The vector that an instant query answers: (labels, value)."""
        form = {"query": promql} if at is None else {"query": promql, "time": repr(at)}
        with urllib.request.urlopen(f"{self.url}/api/v1/query", urllib.parse.urlencode(form).encode()) as response:
            answer = json.load(response)
        return [(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]

    @property
    def cpu_s(self) -> float:
        """Seconds of CPU that it has used."""
        return self._process.cpu_s

    def stop(self) -> None:
        self._process.stop()


def _varint(number: int) -> bytes:
    out = bytearray()
    number &= 2**64 - 1
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _label(name: str, value: str) -> bytes:
    return _field(1, name.encode()) + _field(2, value.encode())


def _samples(samples: Sequence[tuple[float, float]]) -> bytes:
    return b"".join(
        _field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(round(at * 1000))) for at, value in samples
    )
