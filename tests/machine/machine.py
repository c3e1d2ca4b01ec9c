"""A node in QEMU, without hardware virtualization: a real kernel, containerd, runc and kubelet.

Source of the emulated network: QEMU's user network, in which the guest reaches the host's loopback at 10.0.X.2. The
guest's own addresses (node 10.0.X.15, pods 10.0.X.100 and up) are forwarded one by one, from the same addresses on the
host, which `tests.machine.network` has made local.
"""

from __future__ import annotations

import gzip
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.rig.build import BuildError
from tests.rig.process import Process

KUBELET_PORT = 10250
POD_PORTS = (8080, 9090)
_POD_HOSTS = range(100, 160)
_MEMORY_MIB = 1536
_CPUS = 2
_BAKE_S = 240
_KERNEL_LINE = (
    "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr tsc=reliable psi=1 cgroup_no_v1=all "
    "random.trust_cpu=on net.ifnames=0"
)


@dataclass(frozen=True)
class Disk:
    """What a guest boots from."""

    kernel: Path
    initramfs: Path
    root: Path


class Machine:
    """A guest that boots; its node joins the cluster of `kubeconfig` by itself. `index` chooses its network, 10.0.X.0.

    `kubeconfig`: as the guest is to use it. `kubelet`: further arguments of the kubelet.
    """

    def __init__(self, folder: Path, disk: Disk, name: str, index: int, kubeconfig: str, *kubelet: str) -> None:
        self.name = name
        self.address = f"{network_of(index)}.15"
        folder.mkdir(parents=True)
        self.console = folder / "console.log"
        with tempfile.TemporaryDirectory() as work:
            conf = Path(work) / "conf"
            conf.mkdir()
            (conf / "kubeconfig").write_text(kubeconfig)
            (conf / "machine").write_text(
                _settings(NODE=name, NET=network_of(index), KUBELET_ARGUMENTS=" ".join(kubelet))
            )
            initramfs = _with(disk, Path(work), folder)
        line = _qemu(disk, initramfs, self.console, "snapshot=on", index)
        self._process = Process(f"machine {name}", line, folder / "qemu.log", TMPDIR=str(folder))

    def alive(self) -> bool:
        """Whether QEMU runs still; its log and the guest's console tell why not."""
        return self._process.running

    def stop(self) -> None:
        """Cut the power."""
        self._process.stop()

    @staticmethod
    def bake(disk: Disk, work: Path) -> str:
        """Boot once with a disk that keeps what is written. Returns the console's text; raises `BuildError`."""
        (work / "conf").mkdir()
        (work / "conf" / "machine").write_text(_settings(NODE="bake", NET=network_of(0), BAKE="yes"))
        console = work / "console.log"
        line = _qemu(disk, _with(disk, work, work), console, "snapshot=off", None)
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=_BAKE_S)
        except subprocess.TimeoutExpired:
            raise BuildError(f"the emulated node hangs:\n{console.read_text(errors='replace')[-2000:]}") from None
        if done.returncode:
            raise BuildError(f"{line[0]} ended with status {done.returncode}: {done.stderr.strip()}")
        return console.read_text(errors="replace")


def network_of(index: int) -> str:
    """The first three numbers of the addresses of a machine and its pods."""
    return f"10.0.{index + 2}"


def pack(folder: Path, archive: Path) -> None:
    """A folder as a compressed cpio archive, of which the kernel takes several in a row as its initramfs."""
    names = "\n".join(["."] + [str(path.relative_to(folder)) for path in sorted(folder.rglob("*"))])
    packed = subprocess.run(
        ["cpio", "--create", "--format=newc", "--quiet"],
        input=names.encode(),
        capture_output=True,
        cwd=folder,
        check=True,
    )
    archive.write_bytes(gzip.compress(packed.stdout, compresslevel=1, mtime=0))


def _settings(**values: str) -> str:
    return "".join(f'{name}="{value}"\n' for name, value in values.items())


def _with(disk: Disk, work: Path, into: Path) -> Path:
    """The initramfs with `work`/conf appended to it."""
    (work / "more").mkdir()
    (work / "conf").rename(work / "more" / "conf")
    pack(work / "more", work / "more.gz")
    whole = into / "initramfs.gz"
    whole.write_bytes(disk.initramfs.read_bytes() + (work / "more.gz").read_bytes())
    return whole


def _forwards(index: int) -> Iterator[str]:
    network = network_of(index)
    yield f"hostfwd=tcp:{network}.15:{KUBELET_PORT}-{network}.15:{KUBELET_PORT}"
    for host in _POD_HOSTS:
        for port in POD_PORTS:
            yield f"hostfwd=tcp:{network}.{host}:{port}-{network}.{host}:{port}"


def _qemu(disk: Disk, initramfs: Path, console: Path, writes: str, index: int | None) -> Sequence[str]:
    """`index`: of the machine whose network is forwarded; None for no forwards."""
    forwards = [] if index is None else list(_forwards(index))
    network = ",".join(["user,id=net", f"net={network_of(index or 0)}.0/24", "ipv6=off", *forwards])
    return [
        "qemu-system-x86_64",
        *("-accel", "tcg,thread=multi,tb-size=512"),
        *("-cpu", "max,la57=off"),
        *("-smp", str(_CPUS)),
        *("-m", str(_MEMORY_MIB)),
        *("-nodefaults", "-no-user-config", "-no-reboot"),
        *("-display", "none"),
        *("-rtc", "base=utc"),
        *("-kernel", str(disk.kernel)),
        *("-initrd", str(initramfs)),
        *("-append", _KERNEL_LINE),
        *("-serial", f"file:{console}"),
        *("-drive", f"file={disk.root},if=virtio,format=raw,{writes},cache=unsafe"),
        *("-netdev", network),
        *("-device", f"virtio-net-pci,netdev=net,mac=52:54:00:12:34:{50 + (index or 0)}"),
        *("-device", "virtio-rng-pci"),
    ]
