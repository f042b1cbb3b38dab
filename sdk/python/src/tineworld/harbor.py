"""Worlds for Harbor 0.25: an environment whose commands run beside a server of a world.

    harbor run -p TASK -a AGENT --environment-import-path tineworld.harbor:WorldEnvironment --ek server=box

A trial whose world failed has an exception and no reward: after the failure every command and copy
raises, those of the verifier, too.
"""

from __future__ import annotations

import io
from contextlib import AsyncExitStack
from pathlib import Path, PurePosixPath
from typing import Any

from . import _adapters, _tar
from .errors import Invalid, WorldClosed
from .world import World

try:
    from harbor.environments.base import BaseEnvironment, ExecResult
    from harbor.environments.capabilities import EnvironmentCapabilities
except ImportError as error:
    raise _adapters.missing("harbor 0.25 (Python 3.12 or newer)", "harbor", error) from error

__all__ = ["WorldEnvironment"]


class WorldEnvironment(BaseEnvironment):
    """A world as the environment of a trial. The server stands for the task's image: Harbor builds
    nothing here. The task's network policy is the server's own."""

    def __init__(
        self,
        *args: Any,
        server: str = "",
        servers: list[str] | None = None,
        template: str | None = None,
        url: str | None = None,
        workdir: str = "/tmp",
        **more: Any,
    ) -> None:
        """`server` is the one beside which commands run, and whose files are copied. `servers` are those of
        the world, `template` the snapshot that it begins with, `url` the gateway's URL, and `workdir` where
        commands run if the task does not say it."""
        self._server, self._servers, self._template, self._url, self._workdir = server, servers, template, url, workdir
        self._stack = AsyncExitStack()
        self._world: World | None = None
        super().__init__(*args, **more)

    @staticmethod
    def type() -> str:
        return "tine"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities()

    def _validate_definition(self) -> None:
        if not self._server:
            raise ValueError("WorldEnvironment needs the server beside which commands run: --ek server=NAME")
        if (self.environment_dir / "docker-compose.yaml").exists():
            raise ValueError(f"{self.environment_dir} has a docker-compose.yaml, which a world does not run; use a task with one container")
        if (self.environment_dir / "Dockerfile").exists():
            self.logger.warning("the Dockerfile in %s is not built: the server %r stands for its image", self.environment_dir, self._server)

    @property
    def world(self) -> World:
        """The world of the trial. Raises if it failed."""
        if self._world is None:
            raise WorldClosed("this environment has no world; start() opens one")
        if self._world.failed is not None:
            raise self._world.failed
        return self._world

    async def start(self, force_build: bool) -> None:
        tine = await self._stack.enter_async_context(_adapters.shared(self._url))
        opening = tine.open(servers=self._servers, template=self._template)
        self._world = await self._stack.enter_async_context(opening)
        made = await self.ensure_dirs(self._mount_targets(writable_only=True))
        if made is not None and made.return_code:
            raise Invalid(
                f"server {self._server!r} can't make Harbor's folders: {(made.stderr or '').strip()}; "
                f"give it a root in which its user may write to them, with servers.{self._server}.sandbox.root, or an image that has them"
            )
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        """Closes the world. It is gone after that, also without `delete`."""
        self._world = None
        await self._stack.aclose()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Runs a command with bash. One that takes too long raises RuntimeError, as in Harbor's own environments."""
        user = self._resolve_user(user)
        ran = await self.world.exec(
            self._server,
            ["bash", "-c", command],
            cwd=cwd or self.task_env_config.workdir or self._workdir,
            env=self._merge_env(env),
            user=None if user in (None, "root", 0) else str(user),  # for Harbor, root is the user of the server
            timeout=timeout_sec,
        )
        if ran.timed_out:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        code = ran.exit if ran.exit is not None else 128
        return ExecResult(stdout=ran.stdout, stderr=ran.stderr, return_code=code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        await self._make_folder(str(PurePosixPath(target_path).parent))
        await self.world.put(self._file(target_path), Path(source_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self._make_folder(target_dir)
        await self.world.put(self._file(target_dir), Path(source_dir))

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        data, folder = await self._read(source_path)
        if folder:
            raise IsADirectoryError(21, "is a folder", source_path)
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        Path(target_path).write_bytes(data)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        data, folder = await self._read(source_dir)
        if not folder:
            raise NotADirectoryError(20, "is no folder", source_dir)
        _tar.unpack(io.BytesIO(data), Path(target_dir))

    async def _read(self, path: str) -> tuple[bytes, bool]:
        try:
            return await self.world.read(self._file(path))
        except Invalid as error:
            if error.status != 404:
                raise
            raise FileNotFoundError(2, "no such file", path) from error

    async def _make_folder(self, path: str) -> None:
        made = await self.world.exec(self._server, ["mkdir", "-p", path])
        if not made.ok:
            raise PermissionError(made.stderr.strip())

    def _file(self, path: str) -> str:
        whole = PurePosixPath(self.task_env_config.workdir or self._workdir) / path
        return self._server + str(whole)
