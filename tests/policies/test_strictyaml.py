"""Strict YAML: what is read, what is refused, and where the message points."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.strictyaml import MAX_BYTES, Fault, Refused, format_path, load_documents


def refusal(content: bytes) -> list[str]:
    with pytest.raises(Refused) as raised:
        load_documents(content, "f.yaml")
    return str(raised.value).splitlines()


def test_scalars_follow_yaml_1_2() -> None:
    (document,) = load_documents(b"[Off, yes, 1:30, 2020-01-01, .inf, 1, -0.5, 1e3, 0x1F, true, ~, '5', 0o17, '']", "f")
    assert document.data == ["Off", "yes", "1:30", "2020-01-01", ".inf", 1, -0.5, 1000.0, 31, True, None, "5", 15, ""]


def test_every_key_and_item_has_its_place() -> None:
    (document,) = load_documents(b"a:\n  b:\n  - x\n  - {c: 1}\n", "f")
    assert document.marks[("a", "b", 1, "c")] == (4, 6)
    assert document.fault(("a", "b", 0), "no") == Fault("f", 3, "a.b[0]", "no")
    assert str(document.fault(("a", "z"), "is missing")) == "f:1: a.z: is missing"


def test_several_documents_keep_their_lines_and_empty_ones_are_left_out() -> None:
    first, second = load_documents(b"---\na: 1\n---\n---\n# nothing\n---\nb: 2\n", "f")
    assert (first.data, second.data) == ({"a": 1}, {"b": 2})
    assert second.marks[("b",)] == (7, 1)
    assert load_documents(b"", "f") == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: 1\nb: 2\na: 3\n", "f.yaml:3: a: appears twice; first in line 1"),
        (b"x:\n  5: a\n", "f.yaml:2: x: a key is the number 5; keys are text: put it in quotes"),
        (b"true: a\n", "f.yaml:1: a key is the truth value true; keys are text: put it in quotes"),
        (b"? [a]\n: 1\n", "f.yaml:1: a key is no text; keys are text: put it in quotes"),
        (b"a: &x [1]\nb: *x\n", "f.yaml:1: anchors (&) and aliases (*) are not accepted"),
        (b"name: *\n", "f.yaml:1: anchors (&) and aliases (*) are not accepted; put text that starts with them in"),
        (
            b"a: !!python/name:os.system\n",
            "f.yaml:1: the tag 'tag:yaml.org,2002:python/name:os.system' is not accepted",
        ),
        (b"a: !!int x\n", "f.yaml:1: the tag"),
        (b"[" * 5000, "f.yaml:1: nested too deeply"),
        (b"a: [1\n", "f.yaml:2: is not valid YAML"),
        (b"a: b: c\n", "f.yaml:1: is not valid YAML: mapping values are not allowed here"),
        (b"a: 1\n\x00", "f.yaml:2: contains the control character U+0000"),
        (b"a: 1\nb: \xff\n", "f.yaml:2: is not UTF-8 text"),
        (b'a: "\\ud800"\n', "f.yaml:1: a: contains half a character"),
        (b"a: 1e999\n", "f.yaml:1: a: is out of range"),
        (b"a: " + b"9" * 41, "f.yaml:1: a: is out of range"),
        (b"a: " + b"x" * 20000, "f.yaml:1: a: is longer than 16384 characters"),
        (b"#" * (MAX_BYTES + 1), "f.yaml: is larger than 256 KiB; leave out what is not needed"),
    ],
)
def test_refused(content: bytes, expected: str) -> None:
    (line,) = refusal(content)
    assert line.startswith(expected)


def test_all_faults_of_a_file_come_at_once() -> None:
    assert len(refusal(b"a: 1\na: 2\n3: x\n---\nb: 1\nb: 2\n")) == 3


@given(st.binary(max_size=200) | st.text(alphabet="[]{}:-,&*!#|>'\"% \nab1", max_size=60).map(str.encode))
def test_nothing_but_a_refusal_is_ever_raised(content: bytes) -> None:
    with suppress(Refused):
        load_documents(content, "f")


def test_key_paths() -> None:
    assert format_path(("spec", "containers", 0, "minAllowed")) == "spec.containers[0].minAllowed"
    assert format_path(("matchLabels", "a.b/c")) == 'matchLabels["a.b/c"]'
