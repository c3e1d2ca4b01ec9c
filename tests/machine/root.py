"""The guest's disk: busybox, containerd, runc, the kubelet and two images, baked once into the cache.

Made by `mke2fs -d`, so without mounting anything; then booted once, for containerd to unpack the images.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.machine import needs
from tests.machine.images import write_image
from tests.machine.machine import Disk, Machine, pack
from tests.rig.build import CNI, GUEST, BuildError, binary, cache_root

HERE = Path(__file__).parent
BRIDGE_IMAGE, PAUSE_IMAGE = "localhost/bridge:1", "localhost/pause:1"
_GUEST_MODULES = ("virtio_net", "overlay", "bridge", "br_netfilter", "veth", "virtio_rng")
_BOOT_MODULES = ("virtio_pci", "virtio_blk")
_FOLDERS = (
    *("bin", "sbin", "usr/bin", "usr/sbin", "proc", "sys", "dev", "run", "tmp", "root", "var/log"),
    *("etc/cni/net.d", "etc/containerd", "etc/kubernetes", "opt/cni/bin", "opt/images"),
    *("var/lib/kubelet", "var/lib/containerd"),
)
_SIZE = "4096M"  # sparse: some 300 MB are written


def disk() -> Disk:
    """The baked disk, made if anything that enters it has changed. Raises `BuildError`."""
    kernel = needs.kernel()
    target = cache_root() / "machine" / _digest(kernel)
    (vmlinuz,) = (kernel / "boot").glob("vmlinuz-*")
    made = Disk(vmlinuz, target / "initramfs.gz", target / "root.img")
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent) as work:
                whole = Path(work) / "disk"
                whole.mkdir()
                _make(Disk(vmlinuz, whole / "initramfs.gz", whole / "root.img"), kernel, Path(work))
                whole.rename(target)
    return made


def bridge_image(archive: Path) -> None:
    """Write the test bridge's image as an archive."""
    write_image(archive, BRIDGE_IMAGE, {"/bridge": binary("bridge")}, ["/bridge"])


def _digest(kernel: Path) -> str:
    digest = hashlib.sha256(str(kernel.name).encode())
    for tool in (*GUEST, *CNI, "bridge"):
        digest.update(str(binary(tool)).encode())  # the folder is named after what it was built from
    for source in (*sorted((HERE / "guest").iterdir()), HERE / "root.py", HERE / "images.py"):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _make(disk: Disk, kernel: Path, work: Path) -> None:
    print("making the disk of the emulated node (kept in the cache afterwards) ...", end="", flush=True)
    began_at = time.monotonic()
    (modules,) = (kernel / "lib" / "modules").iterdir()
    root = work / "root"
    _fill(root, modules, kernel)
    _make_initramfs(work / "initramfs", modules, kernel, disk.initramfs)
    needs.run(["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", root, disk.root, _SIZE])
    said = Machine.bake(disk, work)
    if "baked" not in said or "failed:" in said:
        raise BuildError(f"the emulated node did not take its images:\n{said}")
    print(f" {time.monotonic() - began_at:.0f} s", flush=True)


def _fill(root: Path, modules: Path, kernel: Path) -> None:
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True)
    (root / "var" / "run").symlink_to("../run")
    busybox = shutil.which("busybox") or "busybox"
    shutil.copy(busybox, root / "bin" / "busybox")
    for applet in needs.run([busybox, "--list"]).split():
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")
    for tool in GUEST:
        shutil.copy(binary(tool), root / "usr" / "bin" / tool)
    for tool in CNI:
        shutil.copy(binary(tool), root / "opt" / "cni" / "bin" / tool.removeprefix("cni-"))
    guest = HERE / "guest"
    for name, place in (
        ("init", "sbin/init"),
        ("containerd.toml", "etc/containerd/config.toml"),
        ("cni.conflist", "etc/cni/cni.conflist"),
        ("kubelet.yaml", "etc/kubernetes/kubelet.yaml"),
    ):
        shutil.copy(guest / name, root / place)
    (root / "sbin" / "init").chmod(0o755)
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\n")
    (root / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
    (root / "etc" / "resolv.conf").touch()
    pause = root.parent / "pause"
    needs.run(["gcc", "-static", "-Os", "-s", "-o", pause, guest / "pause.c"])
    write_image(root / "opt" / "images" / "pause.tar", PAUSE_IMAGE, {"/pause": pause}, ["/pause"])
    bridge_image(root / "opt" / "images" / "bridge.tar")
    loaded = _modules(_BOOT_MODULES, modules, kernel)
    needed = [one for one in _modules(_GUEST_MODULES, modules, kernel) if one not in loaded]
    _copy_modules(needed, root / "lib" / "modules" / modules.name)


def _make_initramfs(folder: Path, modules: Path, kernel: Path, archive: Path) -> None:
    for name in ("bin", "dev", "proc", "sys", "disk", "conf"):
        (folder / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "busybox", folder / "bin" / "busybox")
    shutil.copy(HERE / "guest" / "initramfs", folder / "init")
    (folder / "init").chmod(0o755)
    _copy_modules(_modules(_BOOT_MODULES, modules, kernel), folder / "modules")
    pack(folder, archive)


def _modules(names: Sequence[str], modules: Path, kernel: Path) -> list[Path]:
    """Files of kernel modules with what they need, in the order in which they are to be loaded."""
    if not (modules / "modules.dep.bin").exists():
        needs.run(["depmod", "-b", kernel, modules.name])
    paths = list[Path]()
    for name in names:
        shown = needs.run(["modprobe", "-S", modules.name, "-d", kernel, "--show-depends", name])
        paths += [Path(line.split()[1]) for line in shown.splitlines() if line.startswith("insmod")]
    return list(dict.fromkeys(paths))


def _copy_modules(paths: Sequence[Path], into: Path) -> None:
    into.mkdir(parents=True)
    for path in paths:
        shutil.copy(path, into / path.name)
    (into / "order").write_text("".join(f"{path.name}\n" for path in paths))
