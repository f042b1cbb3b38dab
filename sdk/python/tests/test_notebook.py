"""Cells of a real notebook kernel, in which an event loop runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import rig
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel


class Notebook:
    """Runs cells and returns what they print."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self._manager, self._client = manager, client

    def cell(self, code: str, *, interrupt_at: str | None = None) -> str:
        """Runs a cell; with `interrupt_at` it is interrupted when it has printed that."""
        printed: list[str] = []

        def hear(message: dict[str, dict[str, str]]) -> None:
            printed.append(message["content"].get("text") or "".join(message["content"].get("traceback", "")))
            if interrupt_at is not None and "".join(printed).endswith(interrupt_at):
                self._manager.interrupt_kernel()

        self._client.execute_interactive(code, timeout=rig.PATIENCE, output_hook=hear)
        return "".join(printed)


@pytest.fixture(scope="module")
def notebook() -> Iterator[Notebook]:
    manager, client = start_new_kernel(kernel_name="python3", env=os.environ | {"TINE_BIN": rig.tine_binary()})
    yield Notebook(manager, client)
    client.stop_channels()
    manager.shutdown_kernel()


def test_cells_without_await(notebook: Notebook) -> None:
    assert notebook.cell("import asyncio, tineworld; print(asyncio.get_running_loop().is_running())") == "True\n"
    assert notebook.cell("t = tineworld.sync.local(lease=None); w = t.open(servers=['files', 'everything'])") == ""
    assert notebook.cell("print(w.call('files__write_file', path='a', content='1').is_error)") == "False\n"
    assert notebook.cell("with w.fork(2) as ws: print([x.call('files__read_text_file', path='a').text for x in ws])") == "['1', '1']\n"


def test_a_cell_is_interrupted_and_the_world_goes_on(notebook: Notebook) -> None:
    slow = "print('waiting', flush=True); print(w.call('everything__trigger-long-running-operation', duration=50, steps=5))"
    told = notebook.cell(slow, interrupt_at="waiting\n")
    assert "KeyboardInterrupt" in told and "Result(" not in told
    assert notebook.cell("print(w.call('files__read_text_file', path='a').text)") == "1\n"
    assert notebook.cell("t.close()") == ""


def test_cells_with_await(notebook: Notebook) -> None:
    code = """
    async with tineworld.local(lease=None) as t, t.open(servers=["files"]) as w:
        print((await w.call("files__list_directory", path=".")).is_error)
    """
    assert notebook.cell(code) == "False\n"


def test_nodes_in_cells(notebook: Notebook) -> None:
    """What a server writes to its standard error is in the notebook, whose own is no file."""
    peer = str(Path(__file__).with_name("mcp_peer.py"))
    assert notebook.cell(f"import sys; from tineworld.nodes import *; server = connect_mcp(MCPStdioParams(sys.executable, [{peer!r}]))") == ""
    assert notebook.cell("print(server.tools[0].prepare_tool(text='a').invoke())") == '{"text": "a"}\n'
    told = notebook.cell("[one for one in server.tools if one.name() == 'die'][0].prepare_tool().invoke()")
    assert "ConnectionError" in told and "I am dying" in told
    assert notebook.cell("server.close(); server.close()") == ""
