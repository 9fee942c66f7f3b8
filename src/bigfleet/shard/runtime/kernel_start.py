"""How a shard gets compiled kernels without making anybody wait for nothing.

Until they are there a small fleet is decided about by the same kernels as plain Python, and a larger one waits and says
for what. Compiling happens in a process of its own, where it holds up neither streams nor steps; what it made is loaded
in a thread, and the engine goes over to it between two steps. Owns no rule of the engine and takes no step.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import bigfleet.engine
from bigfleet.engine.kernels import jit
from bigfleet.engine.kernels.cache import VARIABLE, cache_roots
from bigfleet.shard.runtime.worker import Worker

# The first step of so many machines takes plain Python a fifth of a second; of half a million, about a minute.
UNCOMPILED_MACHINES = 2000
PROGRESS_SECONDS = 5.0
COMPILER = (sys.executable, "-P", "-m", "bigfleet.shard.runtime.kernel_compiler")
# Beside a shard that is deciding, compiling can wait.
_NICENESS = 10
_COMPLAINT = 2000


class KernelStart:
    """The way from no kernels to compiled ones. `machines` counts the fleet, `listed` tells whether that is all."""

    def __init__(self, machines: Callable[[], int], listed: Callable[[], bool], log: Any) -> None:
        self._machines = machines
        self._listed = listed
        self._log = log
        self._began = time.monotonic()
        self._done, self._total = 0, jit.kernel_count()
        self._ready = asyncio.Event()
        self._deciding = False
        self._failure: Exception | None = None
        self._compiler: asyncio.subprocess.Process | None = None

    @property
    def compiled(self) -> bool:
        """Whether the engine works with compiled kernels, or there is nothing to compile."""
        return self._ready.is_set() and self._failure is None

    def waiting_for(self) -> str | None:
        """What a decision about this fleet waits for, as a sentence; None when it does not have to."""
        if self._usable:
            return None
        if self._failure is not None:
            return f"the engine's kernels cannot be compiled here: {self._failure}"
        return (
            f"the engine's kernels are being compiled, {self._done} of {self._total} are done after "
            f"{time.monotonic() - self._began:.0f} s; {self._machines()} machines are too many to decide about without "
            f"them (at most {UNCOMPILED_MACHINES}). This happens once per host and version; `bigfleet warm` does it "
            "ahead"
        )

    async def until_usable(self) -> None:
        """Returns when a step may be taken, with kernels of either form; raises if there will never be a form."""
        if not self._usable:
            await self._ready.wait()
            if self._failure is not None and not self._usable:
                raise self._failure
        if not self._deciding and self._listed():
            # From here on nothing makes it wait again: a fleet does not outgrow plain Python in a minute.
            self._deciding = True
            self._make_way()

    @property
    def _usable(self) -> bool:
        return self.compiled or self._deciding or self._machines() <= UNCOMPILED_MACHINES

    # ---- becoming compiled -----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Before an engine is made, which calls kernels already: no call compiles from now on."""
        # Numba tells every bytecode it looks at, which nobody who debugs a shard wants to read.
        logging.getLogger("numba").setLevel(logging.WARNING)
        if not jit.compiled():
            jit.interpret()

    def close(self) -> None:
        """Whoever uses kernels in this process afterwards has them compiled as they are called."""
        if self._failure is None:
            jit.switch()

    async def run(self, between_steps: Callable[[Callable[[], None]], Awaitable[None]]) -> None:
        """Get the kernels and have the engine use them. `between_steps` runs something while no step is under way."""
        try:
            if not jit.compiled():
                await self._prepare()
                await between_steps(jit.switch)
        except Exception as error:
            self._failure = error
            self._log.error("kernels cannot be compiled here; a small fleet goes on without", err=str(error))
        self._ready.set()
        if self._failure is None:
            self._log.info("engine warm", seconds=round(time.monotonic() - self._began, 2), kernels=self._total)

    async def _prepare(self) -> None:
        store = jit.STORE
        if store is not None and store.complete:
            await self._load()
            return
        places = ", ".join(str(root) for root in cache_roots())
        self._log.info(
            "compiling kernels, once per host and version",
            kernels=self._total,
            cache=str(store.directory) if store is not None else "",
            meanwhile=f"at most {UNCOMPILED_MACHINES} machines are decided about uncompiled, larger fleets wait",
        )
        telling = asyncio.create_task(self._tell())
        try:
            if store is None:
                self._log.warning(
                    "compiled kernels cannot be kept: every start compiles them, inside the shard",
                    tried=places,
                    remedy=f"{VARIABLE}=DIR",
                )
            else:
                await self._compile_elsewhere()
            await self._load()
        finally:
            telling.cancel()

    async def _compile_elsewhere(self) -> None:
        """Have another process fill the cache. If it fails this one compiles what is missing."""
        path = [str(Path(bigfleet.engine.__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in path if each)}
        pipe = asyncio.subprocess.PIPE
        try:
            compiler = await asyncio.create_subprocess_exec(
                *COMPILER,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=environment,
                # An interrupt typed at a terminal is the shard's to answer.
                start_new_session=True,
            )
        except OSError as error:
            self._log.warning("the compiling process did not start; the shard compiles itself", err=str(error))
            return
        self._compiler = compiler
        if self._deciding:
            self._make_way()
        try:
            _, complaint = await asyncio.gather(self._follow(compiler), _all(compiler.stderr))
            code = await compiler.wait()
            if code:
                self._log.warning(
                    "the compiling process failed; the shard compiles itself",
                    code=code,
                    err=complaint[-_COMPLAINT:].decode(errors="replace").strip(),
                )
        finally:
            self._compiler = None
            if compiler.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    compiler.kill()
                await compiler.wait()

    async def _follow(self, compiler: asyncio.subprocess.Process) -> None:
        assert compiler.stdout is not None
        async for line in compiler.stdout:
            done, _, total = line.decode().strip().partition(" ")
            if done.isdecimal() and total.isdecimal():
                self._done, self._total = int(done), int(total)

    async def _load(self) -> None:
        """What is in the cache is read, what is not is compiled; the engine's thread goes on meanwhile."""

        def told(done: int, total: int) -> None:
            # Loading is quick: it shows only where it has become compiling and overtakes what was said before.
            self._done, self._total = max(done, self._done), total

        worker = Worker("kernels")
        try:
            await worker.run(jit.prepare, told)
        finally:
            worker.close()

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            self._log.info(
                "compiling kernels" if self._usable else "waiting for kernels to be compiled",
                done=self._done,
                total=self._total,
                seconds=round(time.monotonic() - self._began),
                machines=self._machines(),
            )

    def _make_way(self) -> None:
        if self._compiler is not None and self._compiler.returncode is None:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self._compiler.pid, _NICENESS)


async def _all(stream: asyncio.StreamReader | None) -> bytes:
    assert stream is not None
    return await stream.read()
