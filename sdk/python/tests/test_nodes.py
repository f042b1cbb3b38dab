"""Tools of servers as nodes."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import mcp_peer
import pytest
import rig

from tineworld.nodes import MCPHttpParams, MCPServer, MCPStdioParams, Node, apply_patches, connect_mcp, create_mcp_server, function_node

PEER = str(Path(__file__).with_name("mcp_peer.py"))


def stdio(**more: Any) -> MCPStdioParams:
    return MCPStdioParams(sys.executable, [PEER], **more)


@pytest.fixture
def peer() -> Iterator[mcp_peer.HTTPPeer]:
    one = mcp_peer.HTTPPeer()
    yield one
    one.close()


@pytest.fixture
def server() -> Iterator[MCPServer]:
    with connect_mcp(stdio()) as one:
        yield one


def node(server: MCPServer, name: str) -> type[Node]:
    (found,) = [one for one in server.tools if one.name() == name]
    return found


def soon(what: str, check: Callable[[], bool]) -> None:
    end = time.monotonic() + rig.PATIENCE
    while not check():
        assert time.monotonic() < end, f"after {rig.PATIENCE:g} s it is still not so that {what}"
        time.sleep(0.02)


def test_all_pages_of_tools_are_nodes(server: MCPServer) -> None:
    assert [one.name() for one in server.tools] == [tool["name"] for tool in mcp_peer.Peer().tools()]
    info = node(server, "echo").tool_info()
    assert (info.name, info.detail, info.parameters) == ("echo", "It is echo.", mcp_peer.ECHO)


def test_arguments_are_a_dict_or_keywords(server: MCPServer) -> None:
    echo = node(server, "echo")
    assert echo.prepare_tool({"text": "a", "user-id": 1}).invoke() == '{"text": "a", "user-id": 1}'
    assert echo.prepare_tool(text="a").invoke() == '{"text": "a"}'
    assert echo.prepare_tool({"user-id": 1}, text="a").invoke() == '{"user-id": 1, "text": "a"}'


def test_values_are_structured_or_text_or_contents(server: MCPServer) -> None:
    assert node(server, "wrapped").prepare_tool().invoke() == 7, "what a function of Python returned"
    assert node(server, "object").prepare_tool().invoke() == {"result": 7}, "an object that looks like that, and is one"
    (picture,) = node(server, "picture").prepare_tool().invoke()
    assert picture["type"] == "image" and picture["data"] == "AA=="


def test_failures_name_the_tool(server: MCPServer) -> None:
    with pytest.raises(RuntimeError, match='tool "fail" of command .* failed: fail it is'):
        node(server, "fail").prepare_tool().invoke()
    with pytest.raises(RuntimeError, match='tool "refuse" of command .* failed: not with me'):
        node(server, "refuse").prepare_tool().invoke()


@pytest.mark.parametrize("timeout", [0.5, timedelta(seconds=0.5)])
def test_each_call_has_the_timeout(timeout: float | timedelta) -> None:
    with connect_mcp(stdio(timeout=timeout)) as server:
        with pytest.raises(TimeoutError, match='tool "slow" .* did not answer within 0.5 s'):
            node(server, "slow").prepare_tool().invoke()
        assert node(server, "echo").prepare_tool(text="a").invoke(), "it goes on"
    with pytest.raises(ValueError, match="more than 0"):
        stdio(timeout=0)


def test_a_changed_list_is_fetched_again(server: MCPServer) -> None:
    assert "added" not in [one.name() for one in server.tools]
    node(server, "change").prepare_tool().invoke()
    soon("the list has the new tool", lambda: "added" in [one.name() for one in server.tools])


def test_a_server_that_died_is_started_again(server: MCPServer) -> None:
    pid = node(server, "pid")
    first = pid.prepare_tool().invoke()
    node(server, "change").prepare_tool().invoke()
    with pytest.raises(ConnectionError, match='(?s)tool "die" .* broke off .* may have been carried out: .*I am dying'):
        node(server, "die").prepare_tool().invoke()
    assert pid.prepare_tool().invoke() != first
    assert "added" not in [one.name() for one in server.tools], "the list is that of the new one"


@pytest.mark.parametrize("wordy", [False, True])
def test_a_session_that_the_server_forgot_is_made_anew(peer: mcp_peer.HTTPPeer, wordy: bool) -> None:
    peer.wordy = wordy
    with connect_mcp(MCPHttpParams(peer.url)) as server:
        echo = node(server, "echo")
        peer.added = True
        peer.forget()
        assert echo.prepare_tool(text="a").invoke() == '{"text": "a"}'
        assert peer.calls == ["echo"], "it was carried out once"
        assert "added" in [one.name() for one in server.tools]


# Streams that the server's own side has open when it ends are dropped by the package mcp.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("path", ["/mcp", "/sse"])
def test_a_server_that_was_away(path: str) -> None:
    same = function_node(lambda a: a, name="same")
    with create_mcp_server([same]) as first:
        url = first.start()
        server = connect_mcp(MCPHttpParams(url.removesuffix("/mcp") + path))
        call = node(server, "same").prepare_tool(a="x")
        assert call.invoke() == "x"
    for _ in range(2):
        with pytest.raises(ConnectionError, match=f"{path}(: the connection broke off| did not answer)"):
            call.invoke()
    with create_mcp_server([same]) as second:
        second.start(port=urlsplit(url).port or 0)
        assert call.invoke() == "x"
        server.close()


@pytest.mark.parametrize("status,what", [(401, "401 Unauthorized; check headers, auth, or MCP_TOKEN"), (503, "503 Service Unavailable")])
def test_a_refused_call_names_the_status(peer: mcp_peer.HTTPPeer, status: int, what: str) -> None:
    with connect_mcp(MCPHttpParams(peer.url)) as server:
        call = node(server, "echo").prepare_tool(text="a")
        peer.status = status
        with pytest.raises(ConnectionError, match=f'tool "echo" .* answered {what}'):
            call.invoke()
        peer.status = 0
        assert call.invoke() == '{"text": "a"}'


def test_closing_twice_and_using_it_afterwards(server: MCPServer) -> None:
    echo = node(server, "echo")
    server.close()
    server.close()
    with pytest.raises(RuntimeError, match="mcp_peer.py\" is used after it was closed; call connect_mcp again$"):
        echo.prepare_tool(text="a").invoke()


def test_set_ups_that_fail(tmp_path: Path, peer: mcp_peer.HTTPPeer) -> None:
    with pytest.raises(FileNotFoundError, match='command "no-such-command" is not found on PATH'):
        connect_mcp(MCPStdioParams("no-such-command"))
    with pytest.raises(FileNotFoundError, match='folder ".*absent" for command .* mend cwd'):
        connect_mcp(stdio(cwd=tmp_path / "absent"))
    with pytest.raises(ConnectionError, match="(?s)command .*python.* -c .*was started and did not speak MCP: exit code 3: .*not today"):
        connect_mcp(MCPStdioParams(sys.executable, ["-c", "import sys; print('not today', file=sys.stderr); sys.exit(3)"]))
    with pytest.raises(TimeoutError, match="did not answer the handshake within 0.5 s"):
        connect_mcp(config=MCPStdioParams(sys.executable, ["-c", "import sys; sys.stdin.read()"]), setup_timeout=0.5)
    with pytest.raises(ConnectionError, match="http://127.0.0.1:1/mcp did not answer"):
        connect_mcp(MCPHttpParams("http://127.0.0.1:1/mcp"))
    with pytest.raises(ConnectionError, match="http://127.0.0.1:1/sse did not answer"):
        connect_mcp(MCPHttpParams("http://127.0.0.1:1/sse"))
    with pytest.raises(ValueError, match="is no URL of a server"):
        MCPHttpParams("example.org/mcp")
    peer.status = 401
    with pytest.raises(ConnectionError, match="answered 401 Unauthorized; check headers, auth, or MCP_TOKEN"):
        connect_mcp(MCPHttpParams(peer.url))


def test_the_set_up_takes_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that does not end by itself is ended in the background."""
    ended = threading.Event()
    close = MCPServer.close

    def closed(self: MCPServer) -> None:
        close(self)
        ended.set()

    monkeypatch.setattr(MCPServer, "close", closed)
    stubborn = MCPStdioParams(sys.executable, ["-c", "import sys, time; print(1, file=sys.stderr, flush=True); time.sleep(1000)"])
    with pytest.raises(TimeoutError, match="did not answer the handshake within 0.5 s"):
        connect_mcp(stubborn, setup_timeout=0.5)
    assert not ended.is_set(), "nobody waited for the program"
    assert ended.wait(rig.PATIENCE)
    assert not [one for one in Path("/proc").glob("[0-9]*/cmdline") if b"time.sleep(1000)" in _read(one)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_list_of_tools_that_never_comes_is_in_the_time_of_the_set_up() -> None:
    class Silent:
        async def list_tools(self) -> Any:
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match="did not list its tools within 0.5 s"):
        connect_mcp(MCPStdioParams("never-run"), client_session=Silent(), setup_timeout=0.5)


def test_a_command_in_a_message_is_one_line() -> None:
    assert MCPStdioParams("python", ["-m", "a server"]).describe() == "command \"python -m 'a server'\""
    assert len(MCPStdioParams("python", ["-c", "x\n" * 1000]).describe()) < 300


def test_a_url_in_a_message_has_no_secrets() -> None:
    with pytest.raises(ConnectionError) as error:
        connect_mcp(MCPHttpParams("http://me:secret@127.0.0.1:1/mcp?key=secret"))
    assert "http://127.0.0.1:1/mcp" in str(error.value) and "secret" not in str(error.value)


def test_the_token_of_the_environment(peer: mcp_peer.HTTPPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TOKEN", "t0ken")
    with connect_mcp(MCPHttpParams(peer.url)):
        assert {one.get("authorization") for one in peer.headers} == {"Bearer t0ken"}
    peer.headers.clear()
    with connect_mcp(MCPHttpParams(peer.url, headers={"authorization": "Bearer mine", "X-Key": "k"})):
        assert {(one.get("authorization"), one.get("x-key")) for one in peer.headers} == {("Bearer mine", "k")}
    for url, sent in {"https://example.org/mcp": True, "http://example.org/mcp": False, "http://127.0.0.1.example.org/": False, "http://[::1]:1/": True}.items():
        assert ("Authorization" in MCPHttpParams(url).sent_headers()) is sent, url


def test_a_redirect_takes_no_headers_to_another_server(peer: mcp_peer.HTTPPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_TOKEN", "t0ken")
    other = mcp_peer.HTTPPeer()
    peer.redirect = other.url
    try:
        connect_mcp(MCPHttpParams(peer.url, headers={"X-Key": "k"})).close()
    except ConnectionError:
        pass  # some versions of the package mcp follow no redirect to another server
    other.close()
    assert peer.headers[0]["authorization"] == "Bearer t0ken"
    assert not [one for one in other.headers if "authorization" in one or "x-key" in one]


class Tokens:
    """Where the package mcp keeps tokens."""

    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


def test_a_login_by_the_package_mcp(peer: mcp_peer.HTTPPeer) -> None:
    provider: Any = importlib.import_module("mcp.client.auth.extensions.client_credentials").ClientCredentialsOAuthProvider
    named = {"issuer": peer.home} if "issuer" in inspect.signature(provider).parameters else {}
    peer.secret = "s3cret"
    with connect_mcp(MCPHttpParams(peer.url, auth=provider(peer.url, Tokens(), "me", "s3cret", **named))) as server:
        assert node(server, "echo").prepare_tool(text="a").invoke() == '{"text": "a"}'
    with pytest.raises(ConnectionError, match=f"{peer.url} (answered 401|did not answer)") as error:
        connect_mcp(MCPHttpParams(peer.url, auth=provider(peer.url, Tokens(), "me", "wr0ng", **named)))
    assert "wr0ng" not in str(error.value)


def test_a_session_that_is_given_is_used() -> None:
    types: Any = importlib.import_module("mcp.types")

    class Session:
        async def list_tools(self) -> Any:
            return types.ListToolsResult.model_validate({"tools": [{"name": name, "inputSchema": mcp_peer.EMPTY} for name in ("quick", "slow")]})

        async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
            if name == "slow":
                await asyncio.Event().wait()
            return types.CallToolResult.model_validate({"content": [{"type": "text", "text": str(arguments)}]})

    with connect_mcp(MCPStdioParams("never-run", timeout=0.5), client_session=Session()) as server:
        assert node(server, "quick").prepare_tool(a=1).invoke() == "{'a': 1}"
        with pytest.raises(TimeoutError, match='tool "slow" of command "never-run" did not answer within 0.5 s'):
            node(server, "slow").prepare_tool().invoke()


async def test_it_works_where_an_event_loop_runs() -> None:
    asyncio.get_running_loop()
    apply_patches()
    with connect_mcp(stdio()) as server:
        assert node(server, "echo").prepare_tool(text="a").invoke() == '{"text": "a"}'


async def test_several_threads_use_one_connection(server: MCPServer) -> None:
    echo = node(server, "echo")
    texts = await asyncio.gather(*(asyncio.to_thread(echo.prepare_tool(text=str(i)).invoke) for i in range(20)))
    assert texts == [f'{{"text": "{i}"}}' for i in range(20)]


def test_a_program_that_ends_leaves_no_server(tmp_path: Path) -> None:
    program = f"""
from tineworld.nodes import *
server = connect_mcp(MCPStdioParams({sys.executable!r}, [{PEER!r}]))
print([one for one in server.tools if one.name() == "pid"][0].prepare_tool().invoke())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    soon("the server has ended", lambda: not Path(f"/proc/{ran.stdout.strip()}").exists())


def test_a_gateway_is_a_server(gateway: rig.Gateway) -> None:
    with connect_mcp(MCPHttpParams(f"{gateway.url}/mcp")) as server:
        assert "a.txt" in str(node(server, "files__write_file").prepare_tool(path="a.txt", content="1").invoke())
        assert "a.txt" in str(node(server, "files__list_directory").prepare_tool(path=".").invoke())


def test_without_the_extra() -> None:
    program = "import sys; sys.modules['mcp'] = None\nimport tineworld\nimport tineworld.nodes"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert 'ImportError: tineworld.nodes needs the package mcp; run: pip install "tineworld[mcp]"' in ran.stderr
