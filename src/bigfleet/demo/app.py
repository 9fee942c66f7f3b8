"""The live screen: looks at the scene twice a second, draws it to the terminal's size, and turns keys into deeds."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import ClassVar

import grpc
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.widgets import Static

from bigfleet.demo.feed import Feed
from bigfleet.demo.scene import Scene
from bigfleet.demo.view import KEYS, keys, screen

LOOK_SECONDS = 0.4


class DemoApp(App[None]):
    """Ends when the audience does, or with what broke."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    VerticalScroll { background: $background; scrollbar-size: 0 0; }
    #picture { height: auto; }
    #keys { dock: bottom; height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key, action, words) for key, action, words, _ in KEYS),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene
        self._feed = Feed()
        self._doing: set[asyncio.Task[None]] = set()
        self.broken: BaseException | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="picture")
        yield Static(id="keys")

    async def on_mount(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)
        self.run_worker(self._watch(), exit_on_error=False)

    def on_resize(self, event: Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        width, height = self.size
        self.query_one("#picture", Static).update(screen(self._scene.moment(), width, height - 1, self._feed))
        self.query_one("#keys", Static).update(keys(width))

    async def _watch(self) -> None:
        while True:
            try:
                await self._scene.look()
            except Exception as error:
                self.broken = error
                self.exit()
                return
            self._draw()
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
        if self._scene.resetting:
            self.notify("starting again; keys work when that is done", timeout=2)
            return

        async def done() -> None:
            try:
                await what()
            except (TimeoutError, grpc.RpcError) as error:
                self.notify(str(error), severity="warning")

        task = asyncio.get_running_loop().create_task(done())
        self._doing.add(task)
        task.add_done_callback(self._doing.discard)
