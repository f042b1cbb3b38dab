"""The official Python SDK as a client that knows a URL and logs in by itself.

usage: oauth.py streamable|sse legacy|auto TOOL ARGUMENTS URL [CLIENT_ID]

Where a browser would open, the redirect is followed here.
"""

import asyncio
import json
import sys
from urllib.parse import parse_qs, urlparse

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata

REDIRECT = "http://127.0.0.1:1/callback"


class Memory(TokenStorage):
    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


class Browser:
    """A person with a browser who is logged in at the issuer already."""

    visits = 0
    answer = None

    async def go(self, url):
        self.visits += 1
        async with httpx2.AsyncClient() as http:
            response = await http.get(url, follow_redirects=False)
        self.answer = parse_qs(urlparse(response.headers["location"]).query)

    async def back(self):
        if "code" not in self.answer:
            raise RuntimeError(f"the issuer says {self.answer}")
        one = {k: v[0] for k, v in self.answer.items()}
        return AuthorizationCodeResult(code=one["code"], state=one.get("state"), iss=one.get("iss"))


async def main(kind, era, tool, arguments, url, client_id=None):
    storage, browser = Memory(), Browser()
    if client_id:
        storage.client = OAuthClientInformationFull(
            client_id=client_id, redirect_uris=[REDIRECT], token_endpoint_auth_method="none"
        )
    auth = OAuthClientProvider(
        server_url=url,
        client_metadata=OAuthClientMetadata(client_name="e2e", redirect_uris=[REDIRECT]),
        storage=storage,
        redirect_handler=browser.go,
        callback_handler=browser.back,
    )
    if kind == "sse":
        target = sse_client(url, auth=auth)
    else:
        target = streamable_http_client(url, http_client=create_mcp_http_client(auth=auth))
    async with Client(target, mode=era) as client:
        tools = (await client.list_tools()).tools
        result = await client.call_tool(tool, json.loads(arguments))
        print(
            json.dumps(
                {
                    "tools": [t.name for t in tools],
                    "text": "".join(getattr(c, "text", "") for c in result.content),
                    "isError": bool(result.is_error),
                    "visits": browser.visits,
                    "client": storage.client.client_id,
                    "token": storage.tokens.access_token,
                }
            )
        )


asyncio.run(main(*sys.argv[1:]))
