"""Secrets are nowhere: not in what commands print and log, nor in errors, tracebacks and what values look like."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
import traceback
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote_plus

import pytest
from aiohttp import web

from autoscaler.adapters.prometheus.answers import MetricsError
from autoscaler.adapters.prometheus.session import PrometheusApi
from autoscaler.cli.access import access_of
from autoscaler.settings import load_settings
from tests.adapters.prometheus.guards import Asked, TokenServer, guarded, token_server
from tests.e2e.cli import environment
from tests.rig.rig import Rig

pytestmark = pytest.mark.rig

PREFIX = "BRIDGE_AUTOSCALER_PROMETHEUS_"
WORDS = (
    "pässwörd/of+ann",
    "token-of-the-pod",
    "secret/of+client",
    "AKIDSECRETACCESSKEY/x",
    "session-token-of-aws",
    "api-key-1",
)
PASSWORD, TOKEN, CLIENT, AWS_KEY, AWS_SESSION, API_KEY = WORDS
PAIRS = [("ann", PASSWORD), ("client", CLIENT), ("client", quote_plus(CLIENT)), ("client", TOKEN)]
HIDDEN = {
    *WORDS,
    *map(quote_plus, WORDS),
    *(json.dumps(word)[1:-1] for word in WORDS),
    *(b64encode(f"{who}:{word}".encode()).decode() for who, word in PAIRS),
    "-of-the-server",  # of tokens that are given
}
MODES: Mapping[str, Mapping[str, str]] = {
    "basic": {f"{PREFIX}USERNAME": "ann", f"{PREFIX}PASSWORD": PASSWORD},
    "bearer": {f"{PREFIX}BEARER_TOKEN": TOKEN},
    "oauth2": {f"{PREFIX}OAUTH2_CLIENT_ID": "client", f"{PREFIX}OAUTH2_CLIENT_SECRET": CLIENT},
    "unknown client": {f"{PREFIX}OAUTH2_CLIENT_ID": "client", f"{PREFIX}OAUTH2_CLIENT_SECRET": TOKEN},
    "sigv4": {
        f"{PREFIX}SIGV4_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": AWS_KEY,
        "AWS_SESSION_TOKEN": AWS_SESSION,
    },
    "headers": {f"{PREFIX}HEADERS": f"X-Api-Key: {API_KEY}\nAuthorization: ApiKey {TOKEN}"},
}


def tells_everything(asked: Asked, status: int) -> web.Response:
    """Repeats all that it was sent, at once and where it may be cut."""
    sent = " ".join(text for name, text in asked.headers.items() if name.startswith(("Authorization", "X-")))
    for pair in re.findall(r"Basic (\S+)", sent):
        sent += b64decode(pair).decode()
    words = f"no entry: {sent} {sent:>{len(sent) + 60}}"
    if status == 500:
        return web.Response(status=status, text=words)
    return web.json_response({"status": "error", "errorType": "bad_data", "error": words}, status=status)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("status", [400, 401, 500])
async def test_secrets_are_not_in_errors_and_logs(
    mode: str, status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        token_server(TokenServer(client="client", secret=CLIENT)) as tokens,
        guarded("http://x", lambda asked: tells_everything(asked, status)) as guard,
    ):
        for name, value in {**MODES[mode], f"{PREFIX}URL": guard.url}.items():
            monkeypatch.setenv(name, value)
        if "OAUTH2" in "".join(MODES[mode]):
            monkeypatch.setenv(f"{PREFIX}OAUTH2_TOKEN_URL", tokens.url)
        settings = load_settings()
        access = access_of(settings.prometheus)
        api = PrometheusApi(access)
        with caplog.at_level(logging.DEBUG), pytest.raises(MetricsError) as caught:
            await asyncio.to_thread(api.server_time)
        api.close()
    whole = "".join(traceback.format_exception(caught.value))
    chain = [caught.value, caught.value.__cause__, caught.value.__context__]
    text = "\n".join([whole, caplog.text, *map(repr, (settings, access, api, *chain)), *map(str, chain), str(settings)])
    assert not [word for word in HIDDEN if word in text]
    assert "(hidden)" in text or mode == "unknown client" or status == 401


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "apiVersion: bridge-autoscaler.dev/v1alpha1\nkind: BridgePolicy\nmetadata: {name: one}\n"
        "spec:\n  selector: {namespaces: [no-secrets]}\n  mode: Resize\n"
    )
    return path


@pytest.mark.parametrize("mode", MODES)
async def test_secrets_are_not_in_what_commands_print(rig: Rig, policies: Path, mode: str) -> None:
    def run(*arguments: str, **variables: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "autoscaler", *arguments],
            env={**environment(), **variables},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return f"{done.stdout}\n{done.stderr}"

    where = (f"--kubeconfig={rig.kubeconfig}", f"--policies={policies}", "--debug")
    async with (
        token_server(TokenServer(client="client", secret=CLIENT)) as tokens,
        guarded(rig.prometheus_url, lambda asked: tells_everything(asked, 500)) as guard,
    ):
        variables = {**MODES[mode], f"{PREFIX}URL": guard.url, "AWS_EC2_METADATA_DISABLED": "true"}
        if "OAUTH2" in "".join(variables):
            variables[f"{PREFIX}OAUTH2_TOKEN_URL"] = tokens.url
        commands = (("plan", "-o", "json"), ("run", "--once"), ("doctor",))
        runs = (asyncio.to_thread(run, *command, *where, **variables) for command in commands)
        texts = dict(zip(commands, await asyncio.gather(*runs), strict=True))
        assert bool(guard.asked) == (mode != "unknown client")
    for command, text in texts.items():
        assert not [word for word in HIDDEN if word in text], (command, text)
        assert guard.url in text, text


def test_secrets_are_not_in_the_help() -> None:
    variables = {name: value for mode in MODES.values() for name, value in mode.items()}
    for command in ("plan", "explain", "run", "doctor"):
        done = subprocess.run(
            [sys.executable, "-m", "autoscaler", command, "--help"],
            env={**environment(), **variables},
            capture_output=True,
            text=True,
            check=True,
        )
        assert not [word for word in HIDDEN if word in done.stdout + done.stderr]
