"""Container images without a registry: docker archives with one layer, the same bytes for the same content."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_FOLDERS = ("etc", "proc", "sys", "dev", "run", "host")
_PASSWD = b"root:x:0:0:root:/:/\nnobody:x:65534:65534::/:/\n"


def write_image(archive: Path, reference: str, programs: Mapping[str, Path], entrypoint: Sequence[str]) -> None:
    """An archive that `ctr images import`, `docker load` and `kind load image-archive` take.

    `programs`: the files of the image by their path in it.
    """
    layer = _tar(
        [(f"{folder}/", b"", 0o755) for folder in _FOLDERS]
        + [("tmp/", b"", 0o1777), ("etc/passwd", _PASSWD, 0o644)]
        + [(path.lstrip("/"), program.read_bytes(), 0o755) for path, program in programs.items()]
    )
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
            "history": [{"created": "1970-01-01T00:00:00Z"}],
        }
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "RepoTags": [reference], "Layers": ["layer.tar"]}]).encode()
    content = [(name, config, 0o644), ("layer.tar", layer, 0o644), ("manifest.json", manifest, 0o644)]
    archive.write_bytes(_tar(content))


def _tar(content: Sequence[tuple[str, bytes, int]]) -> bytes:
    """Files and, with a slash at the end, folders: name, content, mode."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, data, mode in content:
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = mode, len(data)
            entry.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
