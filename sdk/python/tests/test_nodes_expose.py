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
from dataclasses import dataclass
from typing import Any, TypedDict

import mcp_peer
import pytest
from test_nodes import node, soon, stdio

from tineworld.nodes import MCPHttpParams, MCPStdioParams, Node, NodeServer, ToolInfo, _versions, connect_mcp, create_mcp_server, function_node


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
    party = threading.Barrier(40, timeout=30)

    def meet() -> str:
        party.wait()
        return "met"

    with create_mcp_server([function_node(meet)]) as exposed, connect_mcp(MCPHttpParams(exposed.start())) as server:
        calls = [node(server, "meet").prepare_tool() for _ in range(40)]
        said: list[str] = []
        threads = [threading.Thread(target=lambda one=one: said.append(one.invoke())) for one in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert said == ["met"] * 40


def _bare() -> dict:  # type: ignore[type-arg]
    return {"a": [1, {"b": None}]}


def _listed() -> list:  # type: ignore[type-arg]
    return [[1], [2, 3]]


class _Named(TypedDict):
    name: str


def _typed() -> _Named:
    return {"name": "n", "more": 1}  # type: ignore[typeddict-unknown-key]


class _Own(Node):
    _info = ToolInfo("own", "", {"type": "object", "properties": {}})

    def invoke(self) -> Any:
        return [{"result": 1}, "2", None]


VALUES: list[Any] = [None, True, 0, -1.5, "", "é\n7", "7", [], [[1], [2, 3]], [None], {}, {"a": [{"b": None}]}, {"result": 7}, {"result": [7]}, [{"result": 7}]]


def test_values_come_back_as_they_were() -> None:
    same = function_node(lambda value: value, name="same")
    annotated = function_node(_as_any, name="annotated")
    others = [function_node(one) for one in (_bare, _listed, _typed)] + [_Own]
    with create_mcp_server([same, annotated, *others]) as exposed, connect_mcp(MCPHttpParams(exposed.start())) as server:
        for value in VALUES:
            for name in ("same", "annotated"):
                got = node(server, name).prepare_tool(value=value).invoke()
                assert got == value and type(got) is type(value), name
        for one in others:
            assert node(server, one.name()).prepare_tool().invoke() == one.prepare_tool().invoke(), one
        with create_mcp_server([node(server, "same")]) as again, connect_mcp(MCPHttpParams(again.start())) as second:
            assert node(second, "same").prepare_tool(value=[[1]]).invoke() == [[1]], "also through a second server"


def _as_any(value: Any) -> Any:
    return value


@dataclass
class _Point:
    x: int


def _point() -> _Point:
    return _Point(1)


def test_values_that_are_not_json_are_refused() -> None:
    wrong: dict[str, tuple[Any, Any, str]] = {
        "object": (None, lambda: _Point(1), 'node "object" returned a value of type _Point, which is not JSON; return str'),
        "nested": (None, lambda: {"a": [0, {1}]}, r"a value of type set at \['a'\]\[1\]"),
        "raw": (bytes, lambda: b"a", 'node "raw" returned a value of type bytes'),
        "nan": (float, lambda: float("nan"), 'node "nan" returned a float that JSON does not have, nan'),
        "keys": (None, lambda: {1: 2}, "a dict with a key of type int"),
        "half": (str, lambda: "\ud800", "a str that is not Unicode"),
        "liar": (int, lambda: "5", 'node "liar" returned a str that is not as its annotation says'),
    }
    nodes = []
    for name, (annotation, function, _) in wrong.items():
        if annotation is not None:
            function.__annotations__["return"] = annotation
        nodes.append(function_node(function, name=name))
    with create_mcp_server([*nodes, function_node(_point)]) as exposed, connect_mcp(MCPHttpParams(exposed.start())) as server:
        for name, (_, _, why) in wrong.items():
            with pytest.raises(RuntimeError, match=why):
                node(server, name).prepare_tool().invoke()
        assert node(server, "_point").prepare_tool().invoke() == {"x": 1}, "what the annotation makes JSON of"


def test_pictures_are_contents() -> None:
    def look() -> Any:
        return ["see", _versions.types.ImageContent.model_validate({"type": "image", "data": "AA==", "mimeType": "image/png"})]

    with create_mcp_server([function_node(look)]) as exposed, connect_mcp(MCPHttpParams(exposed.start())) as server:
        assert [one["type"] for one in node(server, "look").prepare_tool().invoke()] == ["text", "image"]


def test_arguments_that_a_function_does_not_have_are_refused(serving: str) -> None:
    with connect_mcp(MCPHttpParams(serving)) as server:
        with pytest.raises(RuntimeError, match='node "add" got wrong arguments: it does not know zz; its parameters are a, b'):
            node(server, "add").prepare_tool(a=1, zz=3).invoke()


async def test_a_node_is_called_as_the_function() -> None:
    assert (add(3), add(3, b=4), add.renamed("plus")(1)) == (4, 7, 2)
    assert await _shout("a") == {"said": "A"}
    with pytest.raises(TypeError, match="argument"):
        add(1, zz=2)


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
def test_a_server_that_has_clients_is_closed_quietly(path: str) -> None:
    program = f"""
import threading
from tineworld.nodes import *
waiting, go = threading.Event(), threading.Event()
def wait():
    waiting.set()
    go.wait()
    return "done"
exposed = create_mcp_server([function_node(wait)])
url = exposed.start().removesuffix("/mcp") + {path!r}
server = connect_mcp(MCPHttpParams(url))
got = []
def ask():
    try:
        got.append(server.tools[0].prepare_tool().invoke())
    except ConnectionError as error:
        got.append("broke off" in str(error))
call = threading.Thread(target=ask)
call.start()
waiting.wait()
threading.Timer(0.3, go.set).start()
exposed.close()
call.join()
print(got)
server.close()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert not [word for word in ("ERROR", "Traceback", "ASGI") if word in ran.stderr], ran.stderr
    assert ran.stdout == ("['done']\n" if path == "/mcp" else "[True]\n"), "a call has some time, unless its answer comes on another stream"


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
