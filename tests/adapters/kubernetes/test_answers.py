from __future__ import annotations

import pytest

from autoscaler.adapters.kubernetes.answers import changes, differences, missing_rule, read_status, refusal
from autoscaler.core.actions import ContainerResize, OutcomeKind, Resize
from autoscaler.core.model import ContainerKind, PodRef, ResourceList, Resources
from autoscaler.core.units import Bytes, Millicores
from tests.adapters.kubernetes.objects import Json, capture, decoded, pod, raw

CANNOT = (
    'pods "b" is forbidden: User "system:serviceaccount:x:y" cannot patch resource "pods/resize" in API group "" in '
    'the namespace "sim"'
)


def status(code: int, message: str, *causes: Json, reason: str = "", **details: object) -> bytes:
    more = {"causes": list(causes)} if causes else {}
    return raw(
        {
            "kind": "Status",
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": {"name": "b", "kind": "pods", **more, **details},
            "code": code,
        }
    )


# texts as facts were read off API servers of 1.35 to 1.37
@pytest.mark.parametrize(
    ("code", "message", "kind", "cause"),
    [
        (400, "the body is malformed", OutcomeKind.REFUSED, "BadRequest"),
        (401, "Unauthorized", OutcomeKind.FORBIDDEN, "Unauthorized"),
        (403, CANNOT, OutcomeKind.FORBIDDEN, "MissingRule"),
        (
            403,
            'pod update requires features InPlacePodVerticalScalingInitContainers which are not available on node "n"',
            OutcomeKind.REFUSED,
            "NodeFeatures",
        ),
        (403, "exceeded quota: rq, requested: requests.cpu=1, used: 3", OutcomeKind.REFUSED, "ResourceQuota"),
        (403, "must specify requests.cpu for: c", OutcomeKind.REFUSED, "ResourceQuota"),
        (403, "maximum cpu usage per Container is 2, but limit is 3", OutcomeKind.REFUSED, "LimitRange"),
        (
            403,
            "cpu max limit to request ratio per Container is 2, but provided ratio is 10.000000",
            OutcomeKind.REFUSED,
            "LimitRange",
        ),
        (
            403,
            "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
            OutcomeKind.REFUSED,
            "AdmissionPolicy",
        ),
        (
            422,
            "b is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
            OutcomeKind.REFUSED,
            "AdmissionPolicy",
        ),
        (400, 'admission webhook "w" denied the request: no', OutcomeKind.REFUSED, "AdmissionWebhook"),
        (403, "a check that is not written yet", OutcomeKind.REFUSED, "Forbidden"),
        (404, 'pods "b" not found', OutcomeKind.GONE, ""),
        (409, "the object has been modified", OutcomeKind.CONFLICT, ""),
        (422, "Pod running on node without support for resize", OutcomeKind.REFUSED, "ResizeUnsupported"),
        (422, "static pods cannot be resized", OutcomeKind.REFUSED, "StaticPod"),
        (422, "windows pods cannot be resized", OutcomeKind.REFUSED, "UnsupportedPlatform"),
        (422, "spec: Forbidden: only cpu and memory resources are mutable", OutcomeKind.REFUSED, "Unsupported"),
        (422, "must be less than or equal to cpu limit of 1500m", OutcomeKind.REFUSED, "RequestAboveLimit"),
        (422, "resource limits cannot be removed", OutcomeKind.REFUSED, "Removed"),
        (422, "something new", OutcomeKind.REFUSED, "Invalid"),
        (429, "too many requests", OutcomeKind.THROTTLED, ""),
        (500, "etcd is gone", OutcomeKind.UNKNOWN, "HTTP 500"),
        (504, "timed out", OutcomeKind.UNKNOWN, "HTTP 504"),
        (418, "a teapot", OutcomeKind.REFUSED, ""),
    ],
)
def test_each_answer_has_its_outcome(code: int, message: str, kind: OutcomeKind, cause: str) -> None:
    outcome = refusal(code, status(code, message))
    assert (outcome.kind, outcome.cause) == (kind, cause)
    assert message in outcome.detail or kind in (OutcomeKind.FORBIDDEN, OutcomeKind.GONE)


@pytest.mark.parametrize(
    ("name", "cause"), [("c-cpu-above", "NodeCapacity"), ("c-mem-above", "NodeCapacity"), ("c-qos-change", "QoSClass")]
)
def test_captured_refusals(name: str, cause: str) -> None:
    answer = capture(name)
    outcome = refusal(answer["code"], raw(answer["body"]))
    assert (outcome.kind, outcome.cause) == (OutcomeKind.REFUSED, cause)


def test_the_servers_own_cause_wins_over_the_text() -> None:
    body = status(403, "pod resize is only supported on linux nodes", {"reason": "UnsupportedPlatform"})
    assert refusal(403, body).cause == "UnsupportedPlatform"


def test_of_two_causes_the_telling_one_counts() -> None:
    causes = ("Pod QOS Class may not change as a result of resizing", "must be less than or equal to cpu limit of 1")
    body = status(422, "invalid", *({"reason": "FieldValueInvalid", "message": message} for message in causes))
    assert refusal(422, body).cause == "RequestAboveLimit"


def test_a_foreign_uid_means_the_pod_is_gone() -> None:
    body = status(422, "invalid", {"reason": "FieldValueInvalid", "field": "metadata.uid", "message": "immutable"})
    assert refusal(422, body).kind is OutcomeKind.GONE


def test_a_server_without_the_subresource_is_not_a_missing_pod() -> None:
    body = raw({"kind": "Status", "message": "the server could not find the requested resource", "code": 404})
    outcome = refusal(404, body)
    assert outcome.kind is OutcomeKind.REFUSED
    assert "1.33" in outcome.detail


def test_a_missing_permission_names_the_rule_and_where_it_is() -> None:
    detail = refusal(403, status(403, CANNOT)).detail
    assert 'apiGroups: [""], resources: [pods/resize], verbs: [patch]' in detail
    assert "rbac/base" in detail
    assert "system:serviceaccount:x:y" in detail
    assert missing_rule("exceeded quota") is None


def test_what_passes_says_how_long_to_wait() -> None:
    assert refusal(403, status(403, 'node "n" not found')).retry_after_s == 10
    assert refusal(429, status(429, "slow down"), "7").retry_after_s == 7
    assert refusal(429, status(429, "slow down", retryAfterSeconds=3)).retry_after_s == 3
    assert refusal(429, status(429, "slow down"), "Sun, 29 Nov 2026 10:00:00 GMT").retry_after_s is None
    assert refusal(403, status(403, "exceeded quota: q")).retry_after_s is None


@pytest.mark.parametrize(
    "body", [b"", b"<html>\n<b>proxy</b></html>", b"\xff\xfe", b'{"kind": "Pod"}', b"x" * 5000, b"[" * 99_999]
)
def test_an_answer_that_is_no_status_is_quoted_shortly(body: bytes) -> None:
    outcome = refusal(403, body)
    assert outcome.kind is OutcomeKind.REFUSED
    assert 0 < len(outcome.detail) < 700
    assert "\n" not in read_status(body).message


def resize(cpu: int | None = None, memory: int | None = None) -> Resize:
    amounts = ResourceList(None if cpu is None else Millicores(cpu), None if memory is None else Bytes(memory))
    change = ContainerResize("app", ContainerKind.CONTAINER, Resources(amounts, amounts))
    return Resize(PodRef("sim", "bridge-0"), "uid-bridge-0", 1, (change,))


def test_a_spec_that_is_what_was_asked_has_no_differences() -> None:
    before, after = decoded(pod(cpu="1")), decoded(pod(cpu="2"))
    assert differences(before, resize(cpu=2000), after) == ()


def test_foreign_fields_are_named_also_on_containers_that_were_not() -> None:
    item = pod()
    item["spec"]["containers"].append({"name": "extra", "resources": {}})
    before = decoded(item)
    item["spec"]["containers"][1]["resources"] = {"limits": {"memory": "1Gi"}}
    assert differences(before, resize(cpu=1500), decoded(item)) == (
        "app.requests.cpu: 1 stored, 1500m asked",
        "app.limits.cpu: 1 stored, 1500m asked",
        "extra.limits.memory: 1Gi stored, none before",
    )
    assert differences(before, resize(), decoded(pod())) == ("extra: no longer in the pod",)


def test_a_resize_to_the_size_that_is_there_changes_nothing() -> None:
    assert not changes(decoded(pod(cpu="1")), resize(cpu=1000))
    assert changes(decoded(pod(cpu="1")), resize(memory=1))
