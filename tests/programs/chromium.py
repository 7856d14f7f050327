"""A headless Chromium that tests type into, over the pipes of its debugging protocol."""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

BROWSER = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--allow-file-access-from-files",  # lets a page measure others in its frames
)
CONSOLE = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
HIGH = 10  # file descriptors above those that Chromium expects, 3 and 4


class Tab:
    """A tab with one page."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to_browser = to_browser
        self._from_browser = os.fdopen(from_browser, "rb")
        self._numbers = count(1)
        self._rest = b""
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []  # that nobody has waited for yet
        self.console: list[str] = []  # errors that the page has caused since it was opened
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(self, page: Path) -> None:
        """Load a page, and wait until it has run its scripts."""
        self._events.clear()
        self.console.clear()
        self._call("Page.navigate", url=page.as_uri())
        self._wait_for("Page.loadEventFired")

    def reload(self) -> None:
        self._events.clear()
        self._call("Page.reload")
        self._wait_for("Page.loadEventFired")

    def press(self, *keys: str) -> None:
        """Press keys one after the other, as a person does."""
        for key in keys:
            text = "\r" if key == "Enter" else key if len(key) == 1 else ""
            code = 13 if key == "Enter" else 0
            pressed = {"key": key, "text": text, "windowsVirtualKeyCode": code}
            self._call("Input.dispatchKeyEvent", type="keyDown", **pressed)
            self._call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def tap(self, selector: str) -> None:
        """Touch the middle of an element, as a finger does."""
        middle = self.value_of(
            f"""(() => {{
                const element = document.querySelector({json.dumps(selector)});
                element.scrollIntoView({{ block: "nearest", behavior: "instant" }});
                const box = element.getBoundingClientRect();
                return {{ x: box.x + box.width / 2, y: box.y + box.height / 2 }};
            }})()"""
        )
        self._call("Emulation.setTouchEmulationEnabled", enabled=True)
        self._call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[middle])
        self._call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self._call("Emulation.setTouchEmulationEnabled", enabled=False)

    def value_of(self, expression: str) -> Any:
        """Evaluate JavaScript, as with a person's click behind it."""
        options = {"returnByValue": True, "awaitPromise": True, "userGesture": True}
        result = self._call("Runtime.evaluate", expression=expression, **options)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def save_downloads(self, folder: Path) -> None:
        """Save what is downloaded from now on."""
        self._events.clear()
        self._call(
            "Browser.setDownloadBehavior",
            behavior="allow",
            downloadPath=str(folder),
            eventsEnabled=True,
        )

    def wait_for_download(self) -> None:
        while self._wait_for("Browser.downloadProgress")["state"] != "completed":
            pass

    def resize(self, width: int, is_dark: bool = False) -> None:
        metrics = {"height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self._call("Emulation.setDeviceMetricsOverride", width=width, **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def _call(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if "id" not in answer:  # a small file is downloaded before its click is answered
                self._events.append(answer)
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def _wait_for(self, event: str) -> Any:
        while True:
            answer = self._events.pop(0) if self._events else self._read()
            if answer.get("method") == event:
                return answer["params"]

    def _read(self) -> Any:
        while b"\0" not in self._rest:
            read = self._from_browser.read1(1 << 16)
            assert read, "Chromium has ended"
            self._rest += read
        message, self._rest = self._rest.split(b"\0", 1)
        answer = json.loads(message)
        if answer.get("method") in CONSOLE:
            self.console.append(json.dumps(answer["params"]))
        return answer


@contextmanager
def open_tab(program: str, profile: Path) -> Iterator[Tab]:
    """Start Chromium for a `with`."""
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()
    high_commands = fcntl.fcntl(commands, fcntl.F_DUPFD, HIGH)
    high_answers = fcntl.fcntl(answers, fcntl.F_DUPFD, HIGH)

    def give_pipes() -> None:
        os.dup2(high_commands, 3)
        os.dup2(high_answers, 4)

    browser = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=give_pipes,  # noqa: PLW1509, it calls nothing that takes a lock
        pass_fds=(3, 4),
    )
    for end in (commands, answers, high_commands, high_answers):
        os.close(end)
    tab = Tab(to_browser, from_browser)
    try:
        yield tab
    finally:
        browser.kill()
        browser.wait()
        tab._from_browser.close()
        os.close(to_browser)
