"""An MCP server without a package for it, which misbehaves as its tools say: over stdio as a program, over HTTP
in a test."""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OBJECT = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"], "title": "countOutput"}
EMPTY: dict[str, Any] = {"type": "object", "properties": {}}
ECHO = {"type": "object", "properties": {"text": {"type": "string"}, "user-id": {"type": "integer"}}, "required": ["text"]}


class Peer:
    def __init__(self) -> None:
        self.added = False
        self.calls: list[str] = []

    def tools(self) -> list[dict[str, Any]]:
        names = ["echo", "fail", "refuse", "picture", "pid", "slow", "change", "die"] + ["added"] * self.added
        tools: list[dict[str, Any]] = [{"name": name, "description": f"It is {name}.", "inputSchema": ECHO if name == "echo" else EMPTY} for name in names]
        wrapped = {"inputSchema": EMPTY, "outputSchema": OBJECT}
        return [*tools, {"name": "wrapped", **wrapped}, {"name": "object", **wrapped}]

    def answer(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """The response to a request; None for none."""
        method, params = message["method"], message.get("params") or {}
        if "id" not in message:
            return None
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        if method == "initialize":
            about = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "peer", "version": "1"}}
            return {**reply, "result": {"protocolVersion": params["protocolVersion"], **about}}
        if method == "tools/list":
            at = int(params.get("cursor") or 0)
            page: dict[str, Any] = {"tools": self.tools()[at : at + 3]}
            return {**reply, "result": page | ({"nextCursor": str(at + 3)} if at + 3 < len(self.tools()) else {})}
        if method != "tools/call":
            return {**reply, "error": {"code": -32601, "message": "no such method"}}
        self.calls.append(params["name"])
        if params["name"] == "slow":
            return None
        if params["name"] == "refuse":
            return {**reply, "error": {"code": -32602, "message": "not with me"}}
        return {**reply, "result": self.call(params["name"], params.get("arguments") or {})}

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if name == "die":
            print("I am dying", file=sys.stderr, flush=True)
            os._exit(3)
        self.added = self.added or name == "change"
        if name == "picture":
            return {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}]}
        text = {"echo": json.dumps(arguments), "pid": str(os.getpid()), "wrapped": "7", "object": '{"result": 7}'}.get(name, f"{name} it is")
        result: dict[str, Any] = {"content": [{"type": "text", "text": text}], "isError": name == "fail"}
        return result | ({"structuredContent": {"result": 7}} if name in ("wrapped", "object") else {})


class HTTPPeer(Peer):
    """It serves at `url`, and knows sessions until it is told to `forget` them."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: set[str] = set()
        self.headers: list[dict[str, str]] = []
        self.status = 0
        self.redirect = ""
        self.wordy = False  # whether it says more of a session that it does not know than the status
        self.secret = ""  # with it, a client needs a token, which its login gives
        peer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                peer.headers.append({name.lower(): value for name, value in self.headers.items()})
                session = self.headers.get("Mcp-Session-Id")
                if self.path == "/token":
                    known = peer.secret in body.decode() or base64.b64encode(f"me:{peer.secret}".encode()).decode() in self.headers.get("Authorization", "")
                    self.tell({"access_token": "granted", "token_type": "Bearer", "expires_in": 600} if known else {"error": "invalid_client"}, 200 if known else 401)
                elif peer.secret and self.headers.get("Authorization") != "Bearer granted":
                    self.say(401, b"", ("WWW-Authenticate", f'Bearer resource_metadata="{peer.home}/.well-known/oauth-protected-resource/mcp"'))
                elif peer.redirect:
                    self.say(307, b"", ("Location", peer.redirect))
                elif peer.status:
                    self.say(peer.status, b"")
                elif session is not None and session not in peer.sessions:
                    self.tell({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "never heard of it"}} if peer.wordy else {}, 404)
                elif (answered := peer.answer(json.loads(body))) is None:
                    self.say(202, b"")
                else:
                    peer.sessions.add(session or str(len(peer.headers)))
                    self.say(200, json.dumps(answered).encode(), ("Content-Type", "application/json"), ("Mcp-Session-Id", session or str(len(peer.headers))))

            def do_GET(self) -> None:
                if self.path == "/.well-known/oauth-protected-resource/mcp":
                    self.tell({"resource": peer.url, "authorization_servers": [peer.home]})
                elif self.path == "/.well-known/oauth-authorization-server":
                    ends = {"authorization_endpoint": f"{peer.home}/authorize", "token_endpoint": f"{peer.home}/token"}
                    self.tell({"issuer": peer.home, **ends, "response_types_supported": ["code"], "grant_types_supported": ["client_credentials"]})
                else:
                    self.say(404 if "well-known" in self.path else 405, b"")

            def do_DELETE(self) -> None:
                self.say(405, b"")

            def tell(self, value: dict[str, Any], status: int = 200) -> None:
                self.say(status, json.dumps(value).encode(), ("Content-Type", "application/json"))

            def say(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
                self.send_response(status)
                for header in (*headers, ("Content-Length", str(len(body)))):
                    self.send_header(*header)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.home = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.url = f"{self.home}/mcp"

    def forget(self) -> None:
        self.sessions.clear()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


if __name__ == "__main__":
    peer = Peer()
    for line in sys.stdin:
        message = json.loads(line)
        was = peer.added
        answered = peer.answer(message)
        if peer.added != was:
            print(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}), flush=True)
        if answered is not None:
            print(json.dumps(answered), flush=True)
