"""A gateway of this program's own, on this machine."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from . import _programs, client
from ._opening import Opening
from .client import Options, Tine
from .errors import Infrastructure, Invalid, TineError

log = logging.getLogger("tineworld")

_START = 60.0  # seconds
_STOP = 30.0

# The shell waits for the gateway, and ends it when standard input ends: that is when this program
# closes it, and when this program dies, however that happens. Then it removes the temporary folder,
# but not that of a gateway that did not start: its log is read.
#
# A gateway that was killed leaves its servers running, for the next one on the same state. So it is
# started once more, when this program ends: it adopts them, and ends them with itself. A shell that
# finds `serves` does this alone. Where it can't be done the folder stays, with `left` in it.
_WATCH = """
folder=$1 record=$2
shift 2
exec 3<&0
code=1
if [ ! -e "$folder/serves" ]; then
    "$@" </dev/null 3<&- &
    gateway=$!
    { read -r _; : >"$folder/closed"; [ -e "$folder/ended" ] || kill -TERM $gateway; } <&3 2>/dev/null &
    watch=$!
    wait $gateway
    code=$?
    : >"$folder/ended"
    if [ -e "$folder/serves" ]; then
        wait $watch
    else
        kill $watch 2>/dev/null
    fi
fi
if [ $code != 0 ] && [ -e "$folder/serves" ]; then
    "$@" </dev/null 3<&- &
    gateway=$!
    tries=0
    while [ $tries -lt 600 ] && kill -0 $gateway 2>/dev/null; do
        known=
        read -r known 2>/dev/null <"$record"
        case $known in *"\\"pid\\":$gateway"[,}]*) break ;; esac
        tries=$((tries + 1))
        command -p sleep 0.1
    done
    kill -TERM $gateway
    wait $gateway
    code=$?
    [ $code = 0 ] || : >"$folder/left"
fi
[ -e "$folder/closed" ] && [ ! -e "$folder/left" ] && command -p rm -rf "$folder"
exit $code
"""


def local(
    config: Mapping[str, Any] | str | Path | None = None,
    *,
    agents: str | Path | None = None,
    state: str | Path | None = None,
    binary: str | Path | None = None,
    **options: Unpack[Options],
) -> Opening[Tine]:
    """Starts a gateway and connects to it. It ends with the block, with `close`, or with this program.

    `config` is a config as a dict, the path of one, or None for the built-in servers; a mistake in it
    is Invalid. `agents` is a folder of blueprints, for a config that is no file. `state` is
    where the gateway keeps its data; without it a temporary folder, which is removed at the end.
    `binary` is the program `tine`: by default the one of TINE_BIN, else the one that came with this
    package, else `tineworld` or `tine` on PATH. The options are those of `connect`.

    >>> async with tineworld.local({"servers": {"files": {"builtin": "files"}}}) as t: ...
    """
    if os.name != "posix":
        raise Invalid(f"local() works on Linux and macOS; on Windows start `{_programs.command()} serve` and use connect()")

    async def make() -> Tine:
        gateway = Gateway(config if agents is None else _with_agents(config, Path(agents)), state, _programs.find(binary))
        try:
            url, token = await gateway.start()
            tine = await client.connect(url, token, **options)
        except BaseException:
            await gateway.stop()
            raise
        tine.at_end(gateway.stop)
        return tine

    return Opening(make, Tine.close)


class Gateway:
    """A process `tine serve` and its folder."""

    def __init__(self, config: Mapping[str, Any] | str | Path | None, state: str | Path | None, binary: str) -> None:
        self._config = config
        self._given_state = state
        self._program = binary
        self._folder: Path | None = None
        self._record: Path | None = None
        self._serve: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> tuple[str, str]:
        """Starts the gateway and returns its address and token when it serves."""
        folder = self._folder = Path(tempfile.mkdtemp(prefix="tineworld-"))
        state = Path(self._given_state).absolute() if self._given_state else folder / "state"
        config = self._write(folder)
        record = self._record = state / "gateway.json"
        self._serve = [self._program, "serve", "--listen", "127.0.0.1:0", "--state", str(state), "--config", str(config)]
        process = self._process = self._watch()
        before = record.stat().st_mtime_ns if record.exists() else None
        loop = asyncio.get_running_loop()
        end = loop.time() + _START
        while loop.time() < end:
            if process.poll() is not None:
                raise self._ended(process.returncode, config)
            if record.exists() and record.stat().st_mtime_ns != before:
                known = json.loads(record.read_bytes())
                (folder / "serves").touch()
                return str(known["url"]).rstrip("/"), str(known.get("token") or "")
            await asyncio.sleep(0.02)
        raise Infrastructure(f"{self._program} serve did not serve within {_START:g} s: {self._log()}")

    def _watch(self) -> subprocess.Popen[bytes]:
        assert self._folder is not None
        with open(self._folder / "gateway.log", "ab") as output:
            return subprocess.Popen(
                ["/bin/sh", "-c", _WATCH, "tineworld", str(self._folder), str(self._record), *self._serve],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=_programs.environment(),
                start_new_session=True,  # Ctrl-C is for this program, which then ends the gateway
            )

    def _write(self, folder: Path) -> Path:
        """The config's path."""
        if isinstance(self._config, (str, Path)):
            path = Path(self._config).absolute()
            if not path.is_file():
                raise Invalid(f"there is no config {path}; give local() a dict, or the path of a tine.yaml")
            return path
        path = folder / "tine.yaml"
        try:
            path.write_text(_yaml(_BUILT_IN if self._config is None else self._config), "utf-8")
        except (TypeError, ValueError) as error:
            raise Invalid(f"the config that local() got is not JSON: {error}") from None
        return path

    def _ended(self, code: int, config: Path) -> TineError:
        """Why the gateway did not start. It names its config where that is wrong."""
        log = self._log()
        if str(config) not in log:
            return Infrastructure(f"{self._program} serve ended with exit code {code}: {log}")
        if isinstance(self._config, (str, Path)):
            return Invalid(log)
        # The file is gone when this is read, and its lines are not the caller's.
        return Invalid("the config that local() got is wrong: " + re.sub(re.escape(str(config)) + r"(:\d+)*:? *", "", log))

    def _log(self) -> str:
        assert self._folder is not None
        try:
            text = (self._folder / "gateway.log").read_text(errors="replace").strip()
        except OSError as error:
            return str(error)
        return text[-2000:] or "it said nothing"

    async def stop(self) -> None:
        """Ends the gateway and the servers that it started, and removes its temporary folder."""
        process, self._process = self._process, None
        if process is None:
            self._remove()
            return
        try:
            code = await _wait(process)
            if code < 0 and self._served():  # the shell was killed, too
                await _wait(self._watch())
        except subprocess.TimeoutExpired:
            log.warning("the gateway of local() still stops after %g s; it goes on by itself, and then removes %s", _STOP, self._folder)
            return
        self._remove()

    def _served(self) -> bool:
        return self._folder is not None and (self._folder / "serves").exists()

    def _remove(self) -> None:
        """Removes the temporary folder, unless servers are left that only a gateway on this state can end."""
        folder = self._folder
        if folder is None:
            return
        if (folder / "left").exists():
            log.warning(
                "the gateway of local() was killed and did not start again to end its servers, which may still run: %s; "
                "start it and stop it with Ctrl-C, then remove %s: %s",
                self._log(),
                folder,
                shlex.join(self._serve),
            )
        else:
            shutil.rmtree(folder, ignore_errors=True)
        self._folder = None


async def _wait(process: subprocess.Popen[bytes]) -> int:
    assert process.stdin is not None
    process.stdin.close()
    return await asyncio.to_thread(process.wait, _STOP)


def _with_agents(config: Mapping[str, Any] | str | Path | None, folder: Path) -> Mapping[str, Any]:
    """A config with a folder of blueprints."""
    if config is None:
        config = {"servers": _BUILT_IN["servers"] | {"orchestrator": {"builtin": "orchestrator"}}}
    if isinstance(config, (str, Path)) or "dir" in (section := dict(config.get("agents") or {})):
        raise Invalid("the config that local() got says itself where its agents are, in agents.dir or beside it; leave agents out")
    if not folder.is_dir():
        raise Invalid(f"there is no folder {folder.absolute()}; give local() a folder of blueprints as agents")
    return {**config, "agents": section | {"dir": str(folder.absolute())}}


def _yaml(config: Mapping[str, Any]) -> str:
    """JSON is YAML, so that a dict needs no other package. Without braces around it all it is surely a
    tine.yaml, whose unknown keys are errors, and not the file of an editor."""
    lines = [f"{_json(str(key))}: {_json(value)}\n" for key, value in config.items()]
    return "".join(lines) or "{}\n"


def _json(value: Any) -> str:
    """JSON in which YAML sees what JSON means: no surrogates, and nothing that breaks lines."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff]", lambda found: f"\\u{ord(found[0]):04x}", text)


# As `tine serve` has without a config; named here, since a tine.yaml may lie in the current folder.
_BUILT_IN: dict[str, Any] = {
    "servers": {name: {"builtin": name} for name in ("files", "memory", "sqlite", "time", "fetch", "everything", "rollout")}
}
