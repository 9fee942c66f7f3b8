"""The live screen: looks at the scene twice a second, draws it, and turns keys into things that happen to the fleet."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import ClassVar

import grpc
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Footer, Static

from bigfleet.demo.scene import Scene
from bigfleet.demo.view import KEYS, screen

LOOK_SECONDS = 0.4


class DemoApp(App[None]):
    """Ends when the audience does, or with what broke."""

    ENABLE_COMMAND_PALETTE = False
    CSS = "VerticalScroll { background: $background; } #picture { padding: 0 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, action, words) for key, action, words in KEYS),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene
        self._doing: set[asyncio.Task[None]] = set()
        self.broken: BaseException | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="picture")
        yield Footer()

    async def on_mount(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)
        self.run_worker(self._watch(), exit_on_error=False)

    async def _watch(self) -> None:
        picture = self.query_one("#picture", Static)
        while True:
            try:
                await self._scene.look()
            except Exception as error:
                self.broken = error
                self.exit()
                return
            picture.update(screen(self._scene.moment()))
            await asyncio.sleep(LOOK_SECONDS)

    def action_burst(self, cluster: str) -> None:
        self._do(lambda: self._scene.burst(cluster))

    def action_critical(self) -> None:
        self._do(self._scene.critical)

    def action_fail_zone(self) -> None:
        self._do(self._scene.fail_zone)

    def action_drain(self) -> None:
        self._do(self._scene.drain)

    def action_reset(self) -> None:
        self._do(self._scene.reset)

    def _do(self, what: Callable[[], Awaitable[object]]) -> None:
        """Without waiting: keys must answer at once, however long a roll-up takes."""

        async def done() -> None:
            try:
                await what()
            except (TimeoutError, grpc.RpcError) as error:
                self.notify(str(error), severity="warning")

        task = asyncio.get_running_loop().create_task(done())
        self._doing.add(task)
        task.add_done_callback(self._doing.discard)
