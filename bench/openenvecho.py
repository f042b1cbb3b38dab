"""The tool echo for the benchmark, as OpenEnv's own server has it, and over MCP.

openenvecho.py serve   OpenEnv's server on a free port, which it prints
openenvecho.py mcp     the same tool over stdio, for a gateway
"""
import asyncio
import socket
import sys

from fastmcp import FastMCP


def tool():
    mcp = FastMCP("echo")

    @mcp.tool
    def echo(text: str) -> str:
        return text

    return mcp


def serve():
    import uvicorn
    from openenv.core.env_server.http_server import create_app
    from openenv.core.env_server.mcp_environment import MCPEnvironment
    from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
    from openenv.core.env_server.types import Observation, State

    class Echo(MCPEnvironment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self):
            super().__init__(tool())
            self.now = State(episode_id="bench")

        def reset(self, seed=None, episode_id=None, **kwargs):
            return Observation()

        def _step_impl(self, action, timeout_s=None, **kwargs):
            raise NotImplementedError

        @property
        def state(self):
            return self.now

    app = create_app(Echo, CallToolAction, CallToolObservation, env_name="echo", max_concurrent_envs=1024)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    asyncio.run(server.serve(sockets=[listener]))


if sys.argv[1] == "serve":
    serve()
else:
    tool().run(show_banner=False)
