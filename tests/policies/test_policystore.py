"""Files and folders of policies, and what happens when they change."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.plugins import Catalog
from autoscaler.policystore import PolicySet, PolicyStore, Reload, read_policies
from autoscaler.recommenders.percentile import Percentile, PercentileParameters
from autoscaler.strictyaml import Refused
from tests.policies.documents import CATALOG, policy_text

RESIZE = "selector: {namespaces: [sim]}\nmode: Resize"


def refusal(*paths: Path) -> list[str]:
    with pytest.raises(Refused) as raised:
        read_policies(paths, CATALOG)
    return str(raised.value).splitlines()


def names(found: PolicySet) -> list[str]:
    return [policy.name for policy in found.policies]


class Mount:
    """A folder as the kubelet mounts a ConfigMap: links through `..data`, which is swapped in one step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._version = 0
        folder.mkdir()

    def publish(self, **files: str) -> None:
        self._version += 1
        version = self.folder / f"..{self._version}"
        version.mkdir()
        for name, text in files.items():
            (version / f"{name}.yaml").write_text(text)
            if not (self.folder / f"{name}.yaml").is_symlink():
                (self.folder / f"{name}.yaml").symlink_to(f"..data/{name}.yaml")
        swap = self.folder / "..data_tmp"
        swap.symlink_to(version.name)
        swap.replace(self.folder / "..data")
        for link in self.folder.glob("*.yaml"):
            if not link.exists():
                link.unlink()


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    return Mount(tmp_path / "policies")


def test_files_and_folders_are_read_together(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "b.yaml").write_text(policy_text(name="b") + "---\n" + policy_text(name="c"))
    (tmp_path / "dir" / "a.yml").write_text(policy_text(name="a"))
    (tmp_path / "d.txt").write_text(policy_text(name="d"))
    found = read_policies([tmp_path / "d.txt", tmp_path / "dir", tmp_path / "dir" / "a.yml"], CATALOG)
    assert names(found) == ["a", "b", "c", "d"]
    assert found.files == tuple(str(tmp_path / name) for name in ("d.txt", "dir/a.yml", "dir/b.yaml"))


def test_other_entries_of_a_folder_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(policy_text())
    for name in ("kustomization.yaml", ".hidden.yaml", "README.md"):
        (tmp_path / name).write_text("kind: Other")
    (tmp_path / "sub.yaml").mkdir()
    assert names(read_policies([tmp_path], CATALOG)) == ["bridges"]


def test_nothing_to_read(tmp_path: Path) -> None:
    assert refusal(tmp_path) == [f"{tmp_path}: this folder has no *.yaml or *.yml file; put a BridgePolicy there"]
    assert refusal(tmp_path / "no") == [f"{tmp_path}/no: no such file or folder"]
    long = tmp_path / ("x" * 300)
    assert refusal(long) == [f"{long}: cannot be read: File name too long"]
    assert refusal() == ["--policies: no policies given; name a file or a folder"]
    (tmp_path / "a.yaml").write_text("# nothing\n")
    assert refusal(tmp_path) == [f"{tmp_path}/a.yaml: is empty; expected a BridgePolicy"]
    (tmp_path / "a.yaml").unlink()
    (tmp_path / "a.yaml").symlink_to("gone")
    assert refusal(tmp_path) == [f"{tmp_path}/a.yaml: cannot be read: No such file or directory"]


def test_faults_of_all_files_come_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: Deployment\n---\n- 1\n")
    (tmp_path / "b.yaml").write_text("a: [")
    assert [line.partition(": ")[0] for line in refusal(tmp_path)] == [
        f"{tmp_path}/a.yaml:1",
        f"{tmp_path}/a.yaml:3",
        f"{tmp_path}/b.yaml:1",
    ]


def test_a_name_can_be_used_once_in_all_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(policy_text())
    (tmp_path / "b.yaml").write_text(policy_text())
    assert refusal(tmp_path) == [
        f"{tmp_path}/b.yaml:3: metadata.name: bridges is defined already in {tmp_path}/a.yaml:1; rename one"
    ]


def test_a_swapped_mount_is_read_again(mount: Mount) -> None:
    mount.publish(a=policy_text(name="a"), b=policy_text(name="b"))
    store = PolicyStore([mount.folder], CATALOG)
    assert names(store.load()) == ["a", "b"]
    assert store.current.files == (str(mount.folder / "a.yaml"), str(mount.folder / "b.yaml"))
    assert store.reload_if_changed() is None

    mount.publish(a=policy_text(RESIZE, name="a"), c=policy_text(name="c"))
    assert store.reload_if_changed() == Reload(added=("c",), changed=("a",), removed=("b",))
    assert [(policy.name, policy.mode) for policy in store.current.policies] == [("a", "Resize"), ("c", "Recommend")]
    assert store.reload_if_changed() is None


def test_a_swap_without_another_content_is_no_change(mount: Mount) -> None:
    mount.publish(a=policy_text())
    store = PolicyStore([mount.folder], CATALOG)
    store.load()
    mount.publish(a=policy_text())
    assert store.reload_if_changed() is None
    mount.publish(a="# a remark\n" + policy_text())
    assert str(store.reload_if_changed()) == "no policy changed"
    assert store.current.policies[0].source.endswith("a.yaml:2")


def test_a_bad_file_is_said_once_and_the_last_good_set_stays(mount: Mount) -> None:
    mount.publish(a=policy_text())
    store = PolicyStore([mount.folder], CATALOG)
    good = store.load()

    mount.publish(a=policy_text(), b="kind: Nonsense")
    said = store.reload_if_changed()
    assert said is not None
    assert [str(fault) for fault in said.faults] == [
        f"{mount.folder}/b.yaml:1: kind: found 'Nonsense'; expected BridgePolicy"
    ]
    assert "the last good policies stay" in str(said)
    assert store.current is good
    assert store.faults == said.faults
    assert store.reload_if_changed() is None
    assert store.faults == said.faults

    mount.publish(a=policy_text(), b="kind: Nonsense # and more of it")
    assert store.reload_if_changed() is None
    assert store.faults == said.faults

    mount.publish(a=policy_text())
    assert store.reload_if_changed() == Reload()
    assert store.faults == ()
    assert names(store.current) == ["bridges"]


def test_a_folder_that_vanishes_is_a_bad_file_too(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(policy_text())
    store = PolicyStore([file], CATALOG)
    store.load()
    file.unlink()
    said = store.reload_if_changed()
    assert said is not None
    assert [str(fault) for fault in said.faults] == [f"{file}: no such file or folder"]
    assert names(store.current) == ["bridges"]


def test_a_bad_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
    """Many policies take long to read, and a file that is bad now is bad in a while, too."""
    built = []

    class Counted(Percentile):
        def __init__(self, params: PercentileParameters) -> None:
            built.append(params)
            super().__init__(params)

    good, bad = tmp_path / "a.yaml", tmp_path / "b.yaml"
    good.write_text(policy_text("selector: {namespaces: [sim]}\nrecommender: {name: percentile}"))
    store = PolicyStore([tmp_path], Catalog({"percentile": Counted}, {}))
    store.load()
    bad.write_text("kind: Nonsense")
    assert store.reload_if_changed() is not None
    assert [store.reload_if_changed() for _ in range(3)] == [None] * 3
    assert len(built) == 2
    bad.unlink()
    assert store.reload_if_changed() == Reload()
