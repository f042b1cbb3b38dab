"""Tools of MCP servers as nodes, and nodes as an MCP server. Nothing here needs `await`.

>>> with connect_mcp(MCPHttpParams("http://127.0.0.1:8463/mcp")) as server:
...     for node in server.tools:
...         print(node.name(), node.tool_info().detail)

It needs the extra `mcp`: pip install "tineworld[mcp]".
"""

try:
    import mcp as _mcp  # noqa: F401
except ImportError as _error:
    raise ImportError('tineworld.nodes needs the package mcp; run: pip install "tineworld[mcp]"') from _error

from .expose import NodeServer, create_mcp_server
from .functions import function_node
from .node import Node, ToolInfo
from .params import MCPHttpParams, MCPStdioParams
from .server import MCPServer, connect_mcp

__all__ = [
    "MCPHttpParams",
    "MCPServer",
    "MCPStdioParams",
    "Node",
    "NodeServer",
    "ToolInfo",
    "apply_patches",
    "connect_mcp",
    "create_mcp_server",
    "function_node",
]


def apply_patches() -> None:
    """Does nothing. Notebooks need no patches: a server's standard error is a pipe, whatever
    stands for `sys.stderr`."""
