"""Pages in a real browser: they open without a word on its console, and fit screens of three widths."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.programs.conftest import Trained
from tests.reports import make_report
from train_pytorch_model.report_page import render_report

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--enable-logging=stderr"),
    "--allow-file-access-from-files",  # the frames below can be measured
)
WIDTHS = (1200, 800, 400)
PARTS = [
    "numbers",
    "curves",
    "confusion",
    "categories",
    "mistakes",
    "calibration",
    "data",
    "time",
    "plan",
    "again",
]

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

PROBE = """<!doctype html><meta charset="utf-8">
%s
<script>
addEventListener("load", () => {
  const found = [...document.querySelectorAll("iframe")].map((frame) => {
    const page = frame.contentDocument;
    const sections = [...page.querySelectorAll("section")];
    const names = () => [...page.querySelectorAll("#per-class tbody tr th")].map((cell) => cell.textContent);
    const [button] = [...page.querySelectorAll("#per-class button")];
    const before = names();
    button.click();
    const ascending = names();
    button.click();
    const filter = page.querySelector("input[type=search]");
    let left = null;
    if (filter) {
      filter.value = ascending[0];
      filter.dispatchEvent(new Event("input"));
      left = [...page.querySelectorAll("#per-class tbody tr")].filter((row) => !row.hidden).length;
    }
    const map = page.getElementById("map");
    if (map) map.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown" }));
    return {
      overflow: page.documentElement.scrollWidth - frame.clientWidth,
      parts: sections.filter((part) => part.getBoundingClientRect().height > 40).map((part) => part.id),
      charts: [...page.querySelectorAll(".lines svg")].map((svg) => svg.getBoundingClientRect().width),
      before, ascending, descending: names(), left,
      reading: map ? page.getElementById("map-reading").textContent : null,
      unlabelled: [...page.querySelectorAll("[tabindex='0'], svg, img")].filter(
        (one) => !one.getAttribute("aria-label") && !one.getAttribute("alt")).length,
    };
  });
  const record = Object.assign(document.createElement("pre"), { id: "found" });
  record.textContent = JSON.stringify(found);
  document.body.append(record);
});
</script>
"""


def look(page: Path, tmp_path: Path) -> list[dict[str, Any]]:
    """What a browser makes of a page in frames of three widths; its console must stay empty."""
    frames = "".join(
        f'<iframe src="{page.as_uri()}" style="width:{width}px;height:900px;border:0"></iframe>'
        for width in WIDTHS
    )
    probe = tmp_path / "probe.html"
    probe.write_text(PROBE % frames, encoding="utf-8")
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", probe.as_uri()]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert re.findall(r".*CONSOLE.*", ended.stderr) == []
    found = re.search(r'<pre id="found">(.*?)</pre>', ended.stdout, re.DOTALL)
    assert found is not None, ended.stdout[-2000:]
    frames_found: list[dict[str, Any]] = json.loads(unescape(found[1]))
    return frames_found


def check_layout(frames: list[dict[str, Any]], num_charts: int) -> None:
    """All parts, in their order, nothing wider than the screen, nothing without a name."""
    assert len(frames) == len(WIDTHS)
    for width, frame in zip(WIDTHS, frames, strict=True):
        assert frame["parts"] == PARTS
        assert frame["overflow"] <= 0, f"{frame['overflow']} px too wide at {width}"
        assert len(frame["charts"]) == num_charts
        assert all(250 < chart <= width for chart in frame["charts"])
        assert frame["unlabelled"] == 0


def test_the_report_of_a_training_opens_at_every_width(trained: Trained, tmp_path: Path) -> None:
    frames = look(trained.output / "report.html", tmp_path)
    check_layout(frames, 4)
    for frame in frames:
        assert sorted(frame["before"]) == frame["ascending"] == ["blue", "green", "red"]
        assert frame["descending"] == ["red", "green", "blue"]


@pytest.mark.parametrize("count", [100, 1000])
def test_many_categories_are_found_sorted_and_read(count: int, tmp_path: Path) -> None:
    names = [f"category {index}" for index in range(count)]
    page = tmp_path / "report.html"
    page.write_text(render_report(make_report(names, 10 * count)), encoding="utf-8")
    frames = look(page, tmp_path)
    check_layout(frames, 5)
    for frame in frames:
        assert frame["ascending"] == names  # numbers in names count as numbers
        assert frame["descending"] == names[::-1]
        assert frame["left"] == sum(names[0] in name for name in names)
        assert frame["reading"].startswith("True category 1, predicted category 0: ")


def test_a_wide_matrix_of_long_names_scrolls_by_itself(tmp_path: Path) -> None:
    names = [f"{'a-very-long-name-without-a-space' * 3} {index}" for index in range(20)]
    page = tmp_path / "report.html"
    page.write_text(render_report(make_report(names, 400)), encoding="utf-8")
    check_layout(look(page, tmp_path), 4)
