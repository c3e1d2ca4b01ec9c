"""Policies in files and folders: found, read, checked against each other, and read again when they change.

A folder is read as a ConfigMap is mounted: entries are links into `..data`, which the kubelet swaps in one step. It is
resolved once for each reading, so that no reading sees half of a change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoscaler.core.policy import Policy
from autoscaler.plugins import Catalog
from autoscaler.policyfile import KIND, Loaded, read_policy
from autoscaler.strictyaml import MAX_BYTES, Fault, Refused, load_documents

_SUFFIXES = (".yaml", ".yml")
_KUSTOMIZE = ("kustomization.yaml", "kustomization.yml")
_SWAP = "..data"
_READINGS = 3  # a folder may be swapped while it is read


@dataclass(frozen=True, slots=True)
class File:
    """A file's name for messages, and its content; or why it could not be read."""

    name: str
    content: bytes = b""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class PolicySet:
    """Policies that are valid together, sorted by name, and what in them has no effect."""

    policies: tuple[Policy, ...] = ()
    warnings: tuple[Fault, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reload:
    """What a change of the files came to: names of policies, or the faults because of which the old set stays."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        if self.faults:
            return f"{len(self.faults)} fault(s); the last good policies stay: " + "; ".join(map(str, self.faults))
        parts = (("added", self.added), ("changed", self.changed), ("removed", self.removed))
        return "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names) or "no policy changed"


class PolicyStore:
    """The policies in force. A bad file is reported and changes nothing; the last good set stays."""

    def __init__(self, paths: Sequence[Path], catalog: Catalog) -> None:
        self._paths = tuple(paths)
        self._catalog = catalog
        self._digest = b""
        self._loaded: dict[str, Loaded] = {}
        self.current = PolicySet()
        self.faults: tuple[Fault, ...] = ()  # of the newest reading; not empty while the files are bad

    def load(self) -> PolicySet:
        """Read for the first time. Raises `Refused` with every fault of every file."""
        files = read_files(self._paths)
        self._accept(_checked(files, self._catalog), files)
        return self.current

    def reload_if_changed(self) -> Reload | None:
        """Read again; None if no file has changed since the last reading. Never raises for what users write."""
        digest, before = b"", self._loaded
        try:
            files = read_files(self._paths)
            digest = _digest(files)
            if digest == self._digest:
                return None
            self._accept(_checked(files, self._catalog), files)
        except Refused as refused:
            known, self.faults = self.faults, refused.faults
            self._digest = digest  # a bad file is not parsed again in each turn either
            return None if known == refused.faults else Reload(faults=refused.faults)
        after = self._loaded
        return Reload(
            added=tuple(sorted(after.keys() - before.keys())),
            changed=tuple(
                sorted(name for name in after.keys() & before.keys() if not _same(after[name], before[name]))
            ),
            removed=tuple(sorted(before.keys() - after.keys())),
        )

    def _accept(self, loaded: dict[str, Loaded], files: Sequence[File]) -> None:
        self._loaded, self._digest, self.faults = loaded, _digest(files), ()
        self.current = _set_of(loaded, files)


def read_policies(paths: Sequence[Path], catalog: Catalog) -> PolicySet:
    """The policies of files and folders, once. Raises `Refused` with every fault of every file."""
    return PolicyStore(paths, catalog).load()


def _set_of(loaded: dict[str, Loaded], files: Iterable[File]) -> PolicySet:
    in_order = [loaded[name] for name in sorted(loaded)]
    return PolicySet(
        tuple(entry.policy for entry in in_order),
        tuple(warning for entry in in_order for warning in entry.warnings),
        tuple(file.name for file in files),
    )


def _checked(files: Iterable[File], catalog: Catalog) -> dict[str, Loaded]:
    """Every policy of the files, by name. Raises `Refused` if there is a fault in any of them."""
    faults: list[Fault] = []
    loaded: dict[str, Loaded] = {}
    for file in files:
        try:
            documents = [] if file.failure else load_documents(file.content, file.name)
        except Refused as refused:
            faults += refused.faults
            continue
        if not documents:
            faults.append(Fault(file.name, 0, "", file.failure or f"is empty; expected a {KIND}"))
        for document in documents:
            try:
                entry = read_policy(document, catalog)
            except Refused as refused:
                faults += refused.faults
                continue
            name = entry.policy.name
            if name in loaded:
                where = loaded[name].policy.source
                faults.append(document.fault(("metadata", "name"), f"{name} is defined already in {where}; rename one"))
                continue
            loaded[name] = entry
    if faults:
        raise Refused(faults)
    return loaded


def _same(one: Loaded, other: Loaded) -> bool:
    return json.dumps(one.document.data) == json.dumps(other.document.data)  # == takes 1 for true


def _digest(files: Iterable[File]) -> bytes:
    digest = hashlib.blake2b()
    for file in files:
        for part in (file.name.encode(), file.failure.encode(), file.content):
            digest.update(len(part).to_bytes(8) + part)
    return digest.digest()


def read_files(paths: Sequence[Path]) -> list[File]:
    """The files that paths name: files as they are, of folders every *.yaml and *.yml. Raises `Refused`.

    Left out of folders: hidden entries, sub-folders, and kustomize's own file.
    """
    faults = [] if paths else [Fault("--policies", 0, "", "no policies given; name a file or a folder")]
    files: dict[Path, File] = {}
    for path in paths:
        found = _files_of(path)
        if found is None:
            faults.append(Fault(str(path), 0, "", "no such file or folder"))
        elif not found:
            faults.append(Fault(str(path), 0, "", f"this folder has no *.yaml or *.yml file; put a {KIND} there"))
        for file in found or ():
            files.setdefault(Path(file.name).absolute(), file)  # a file may be named twice
    if faults:
        raise Refused(faults)
    return list(files.values())


def _files_of(path: Path) -> list[File] | None:
    """The file, or those of the folder; None if there is neither."""
    try:
        if path.is_dir():
            return _read_folder(path)
        return [_read(path, str(path))] if path.exists() else None
    except OSError as error:  # whether it exists cannot be told either
        return [File(str(path), failure=_why(error))]


def _read_folder(folder: Path) -> list[File]:
    files: list[File] = []
    for _ in range(_READINGS):
        real = _resolved(folder)
        try:
            names = sorted(entry.name for entry in real.iterdir() if _counts(entry))
        except OSError as error:
            files = [File(str(folder), failure=_why(error))]
        else:
            files = [_read(real / name, str(folder / name)) for name in names]
        if _resolved(folder) == real:
            break
    return files


def _resolved(folder: Path) -> Path:
    swap = folder / _SWAP
    return (swap if swap.is_dir() else folder).resolve()


def _counts(entry: Path) -> bool:
    return (
        entry.suffix in _SUFFIXES
        and not entry.name.startswith(".")
        and entry.name not in _KUSTOMIZE
        and (entry.is_file() or (entry.is_symlink() and not entry.exists()))  # a broken link is worth a message
    )


def _read(path: Path, name: str) -> File:
    try:
        with path.open("rb") as opened:
            return File(name, opened.read(MAX_BYTES + 1))
    except OSError as error:
        return File(name, failure=_why(error))


def _why(error: OSError) -> str:
    return f"cannot be read: {error.strerror or type(error).__name__}"
