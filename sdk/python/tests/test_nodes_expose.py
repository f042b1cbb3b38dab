"""Nodes as the tools of a server."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import mcp_peer
import pytest
from test_nodes import node, soon, stdio

from tineworld.nodes import MCPHttpParams, MCPStdioParams, NodeServer, connect_mcp, create_mcp_server, function_node


@function_node
def add(a: int, b: int = 1) -> int:
    """Return a + b."""
    return a + b


@function_node(name="shout", description="Say it loud.")
async def _shout(text: str) -> dict[str, str]:
    await asyncio.sleep(0)
    if not text:
        raise ValueError("there is nothing to say")
    return {"said": text.upper()}



@pytest.fixture
def serving() -> Iterator[str]:
    with create_mcp_server([add, _shout]) as server:
        yield server.start()


def test_a_function_is_a_node() -> None:
    info = add.tool_info()
    assert (add.name(), info.name, info.detail) == ("add", "add", "Return a + b.")
    assert info.parameters["required"] == ["a"] and set(info.parameters["properties"]) == {"a", "b"}
    assert add.prepare_tool({"a": 2, "b": 3}).invoke() == 5 and add.prepare_tool(a=2).invoke() == 3
    assert add.function(1, 2) == 3
    assert function_node(lambda x: x, name="same").prepare_tool(x="y").invoke() == "y"
    with pytest.raises(RuntimeError, match='node "add" got wrong arguments(?s:.*)c\n'):
        add.prepare_tool(a=1, c=2).invoke()
    with pytest.raises(TypeError, match="can't be given by name"):
        function_node(lambda *all: all, name="all")


async def test_an_asynchronous_function_is_a_node_also_in_a_loop() -> None:
    assert _shout.name() == "shout" and _shout.prepare_tool(text="a").invoke() == {"said": "A"}
    with pytest.raises(ValueError, match="nothing to say"):
        _shout.prepare_tool(text="").invoke()


@pytest.mark.parametrize("path", ["/mcp", "/streamable-http", "/sse"])
def test_nodes_are_served_as_the_tools_they_are(serving: str, path: str) -> None:
    with connect_mcp(MCPHttpParams(serving.removesuffix("/mcp") + path)) as server:
        assert [one.tool_info().detail for one in server.tools] == ["Return a + b.", "Say it loud."]
        assert node(server, "add").tool_info().parameters == add.tool_info().parameters
        assert node(server, "add").prepare_tool(a=2).invoke() == 3, "an optional parameter stays optional"
        assert node(server, "shout").prepare_tool(text="a").invoke() == {"said": "A"}
        with pytest.raises(RuntimeError, match='tool "shout" .* nothing to say'):
            node(server, "shout").prepare_tool(text="").invoke()
        with pytest.raises(RuntimeError, match='tool "add" .*failed'):
            node(server, "add").prepare_tool(a="x").invoke()


def test_functions_run_beside_each_other() -> None:
    party = threading.Barrier(2, timeout=30)

    def meet() -> str:
        party.wait()
        return "met"

    with create_mcp_server([function_node(meet)]) as exposed, connect_mcp(MCPHttpParams(exposed.start())) as server:
        calls = [node(server, "meet").prepare_tool() for _ in range(2)]
        said: list[str] = []
        threads = [threading.Thread(target=lambda one=one: said.append(one.invoke())) for one in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert said == ["met", "met"]


def test_tools_of_another_server_are_served_with_their_schema() -> None:
    with connect_mcp(stdio()) as first, connect_mcp(stdio()) as second:
        with pytest.raises(ValueError, match='two nodes are called "echo"; .*renamed'):
            create_mcp_server([node(first, "echo"), node(second, "echo")])
        nodes = [node(first, "echo"), node(second, "echo").renamed("other_echo"), node(first, "fail"), node(first, "picture"), node(first, "object"), node(first, "wrapped"), add]
        with create_mcp_server(nodes) as exposed, connect_mcp(MCPHttpParams(exposed.start())) as server:
            assert [one.name() for one in server.tools if "echo" in one.name()] == ["echo", "other_echo"]
            other = node(server, "other_echo")
            assert other.tool_info().parameters == mcp_peer.ECHO
            assert other.prepare_tool({"text": "a", "user-id": 1}).invoke() == '{"text": "a", "user-id": 1}'
            assert node(server, "picture").prepare_tool().invoke()[0]["type"] == "image"
            assert node(server, "object").prepare_tool().invoke() == {"result": 7}
            assert node(server, "wrapped").prepare_tool().invoke() == 7
            with pytest.raises(RuntimeError, match="fail it is"):
                node(server, "fail").prepare_tool().invoke()


def test_a_server_of_the_package_is_added_to() -> None:
    mine = create_mcp_server([], server_name="mine").fastmcp
    assert mine.name == "mine"

    @mine.tool()  # type: ignore[untyped-decorator]
    def before() -> str:
        return "first"

    with pytest.raises(ValueError, match='"before"'):
        create_mcp_server([function_node(lambda: 1, name="before")], fastmcp=mine)
    with create_mcp_server([add], fastmcp=mine) as exposed, connect_mcp(MCPHttpParams(exposed.start())) as server:
        assert [one.name() for one in server.tools] == ["before", "add"]


def test_run_serves_until_it_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"can't listen on 127.0.0.1 port {port}"):
            create_mcp_server([add]).run(port=port)
    server = create_mcp_server([add])
    running = threading.Thread(target=lambda: server.run(host="127.0.0.1", port=port, transport="streamable-http"))
    running.start()
    soon("it serves", lambda: _answers(f"http://127.0.0.1:{port}/mcp", {}) != 0)
    with connect_mcp(MCPHttpParams(f"http://127.0.0.1:{port}/mcp")) as client:
        assert node(client, "add").prepare_tool(a=1).invoke() == 2
    server.close()
    server.close()
    running.join(timeout=30)
    assert not running.is_alive()
    with pytest.raises(RuntimeError, match="started before"):
        server.start()
    with pytest.raises(ValueError, match='no transport "carrier"'):
        NodeServer(server.fastmcp).run(transport="carrier")  # type: ignore[arg-type]


def test_which_names_of_hosts_are_answered() -> None:
    """A page in a browser that made a name of its own point to this machine is refused; a server for other machines
    answers by any name."""
    for host, status in {"127.0.0.1": 421, "0.0.0.0": 406}.items():
        with create_mcp_server([add]) as server:
            port = server.start(host).split(":")[2].split("/")[0]
            soon("it serves", lambda port=port: _answers(f"http://127.0.0.1:{port}/mcp", {}) != 0)  # type: ignore[misc]
            assert _answers(f"http://127.0.0.1:{port}/mcp", {"Host": "example.org"}) == status


def _answers(url: str, headers: dict[str, str]) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_nodes_over_stdio() -> None:
    program = """
from tineworld.nodes import create_mcp_server, function_node
create_mcp_server([function_node(lambda a: a, name="same")]).run(transport="stdio")
"""
    with connect_mcp(MCPStdioParams(sys.executable, ["-c", program])) as server:
        assert node(server, "same").prepare_tool(a="x").invoke() == "x"


def test_ctrl_c_ends_run() -> None:
    program = """
import sys
from tineworld.nodes import create_mcp_server, function_node
create_mcp_server([function_node(lambda a: a, name="same")]).run(port=int(sys.argv[1]))
"""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, "-c", program, str(port)], stderr=subprocess.PIPE, text=True) as ran:
        soon("it serves", lambda: _answers(f"http://127.0.0.1:{port}/mcp", {}) != 0)
        ran.send_signal(signal.SIGINT)
        try:
            _, told = ran.communicate(timeout=60)
        finally:
            ran.kill()
    assert told.rstrip().endswith("KeyboardInterrupt"), told
