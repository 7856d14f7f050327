"""Pages in a real browser: nothing on its console, and a layout that fits three widths."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.programs.chromium import Tab
from tests.programs.conftest import Trained
from tests.reports import SECTIONS, make_report
from train_pytorch_model.inputs.unreadable_images import UnreadableImage
from train_pytorch_model.reports.gallery import Card, Fact, Gallery
from train_pytorch_model.reports.training_report import render_report

WIDTHS = (1400, 800, 360)

PROBE = """<!doctype html><meta charset="utf-8">
%s
<script>
// "rgb(20, 24, 31)", "rgba(0, 0, 0, 0)" or "color(srgb 0.5 0.6 0.7)" as [red, green, blue, alpha],
// 0 to 1.
const parse = (color) => {
  const numbers = color.match(/[\\d.]+/g).map(Number);
  const scale = color.startsWith("color") ? 1 : 255;
  return [...numbers.slice(0, 3).map((value) => value / scale), numbers[3] ?? 1];
};
const luminance = (color) => parse(color).slice(0, 3)
  .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
  .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
const contrast = (one, other) => {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
};
// Possible backgrounds of an element: its own colour or its nearest opaque ancestor's, and those
// of bars.
const behind = (element, view) => {
  const bars = (view.getComputedStyle(element).backgroundImage.match(/rgb\\([^)]*\\)/g) || []);
  for (let at = element; at; at = at.parentElement) {
    const color = view.getComputedStyle(at).backgroundColor;
    if (parse(color)[3] === 1) return [color, ...bars];
  }
  return ["rgb(255, 255, 255)", ...bars];
};
// The stripes of .gap are beside its word, not behind it.
const faint = (page, view) => [...page.querySelectorAll("body *:not(script, .unseen, .gap)")]
  .filter((one) => [...one.childNodes]
    .some((node) => node.nodeType === 3 && node.textContent.trim()))
  .filter((one) => one.getClientRects().length)
  .filter((one) => {
    const style = view.getComputedStyle(one);
    const color = one instanceof view.SVGElement ? style.fill : style.color;
    return behind(one, view).some((color_) => contrast(color, color_) < 4.5);
  })
  .map((one) => one.outerHTML.slice(0, 80));
const reached = (page) => [...page.querySelectorAll("button, a, summary, input, [tabindex='0']")]
  .filter((one) => { one.focus(); return page.activeElement !== one; })
  .map((one) => one.outerHTML.slice(0, 80));

addEventListener("load", () => {
  const found = [...document.querySelectorAll("iframe")].map((frame) => {
    const page = frame.contentDocument;
    for (const closed of page.querySelectorAll("details")) closed.open = true;
    const sections = [...page.querySelectorAll("section")];
    const names = () => [...page.querySelectorAll("#per-class tbody tr th")]
      .map((cell) => cell.textContent);
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
      cut: [...page.querySelectorAll("#confusion .scroll")]
        .filter((part) => part.scrollWidth > part.clientWidth)
        .map((part) => part.getAttribute("aria-label")),
      broken: [...page.querySelectorAll(".gallery bdi")].flatMap((name) => [...name.childNodes])
        .filter((node) => node.nodeType === 3 && !node.textContent.includes(" "))
        .filter((node) => {
          const range = page.createRange();
          range.selectNodeContents(node);
          return new Set([...range.getClientRects()].map((line) => line.top)).size > 1;
        }).map((node) => node.textContent),
      overflow: page.documentElement.scrollWidth - frame.clientWidth,
      parts: sections
        .filter((part) => part.getBoundingClientRect().height > 40)
        .map((part) => part.id),
      charts: [...page.querySelectorAll(".lines svg")]
        .map((svg) => svg.getBoundingClientRect().width),
      before, ascending, descending: names(), left,
      reading: map ? page.getElementById("map-reading").textContent : null,
      unlabelled: [...page.querySelectorAll("[tabindex='0'], svg, img")].filter(
        (one) => !one.getAttribute("aria-label") && !one.getAttribute("alt")).length,
      faint: faint(page, frame.contentWindow),
      unreached: reached(page),
    };
  });
  const record = Object.assign(document.createElement("pre"), { id: "found" });
  record.textContent = JSON.stringify(found);
  document.body.append(record);
});
</script>
"""


def look(tab: Tab, page: Path, tmp_path: Path, is_dark: bool = False) -> list[dict[str, Any]]:
    """Measurements of a page in frames of three widths; the browser's console must stay empty."""
    frames = "".join(
        f'<iframe src="{page.as_uri()}" style="width:{width}px;height:900px;border:0"></iframe>'
        for width in WIDTHS
    )
    probe = tmp_path / "probe.html"
    probe.write_text(PROBE % frames, encoding="utf-8")
    tab.resize(max(WIDTHS), is_dark)
    tab.open(probe)
    assert tab.console == []
    found: list[dict[str, Any]] = json.loads(
        tab.value_of("document.getElementById('found').textContent")
    )
    return found


def check_layout(frames: list[dict[str, Any]], num_charts: int) -> None:
    """Check that all sections are in order, none too wide, unlabelled, faint or unfocusable."""
    assert len(frames) == len(WIDTHS)
    for width, frame in zip(WIDTHS, frames, strict=True):
        assert [part for part in frame["parts"] if part in SECTIONS] == list(SECTIONS)
        assert frame["overflow"] <= 0, f"{frame['overflow']} px too wide at {width}"
        assert len(frame["charts"]) == num_charts
        assert all(220 < chart <= width for chart in frame["charts"])
        assert frame["unlabelled"] == 0
        assert frame["faint"] == []
        assert frame["unreached"] == []


def test_the_training_report_fits_every_width(tab: Tab, trained: Trained, tmp_path: Path) -> None:
    frames = look(tab, trained.output / "report.html", tmp_path)
    check_layout(frames, 5)
    for frame in frames:
        assert sorted(frame["before"]) == frame["ascending"] == ["blue", "green", "red"]
        assert frame["descending"] == ["red", "green", "blue"]


def test_pages_are_readable_in_dark_mode(tab: Tab, trained: Trained, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    everything = make_report(
        stopped="Stopped early.",
        unreadable_images=[UnreadableImage("Training dataset", "a", "b", "c")],
    )
    page.write_text(render_report(everything), encoding="utf-8")
    for each in (page, trained.output / "report.html"):
        check_layout(look(tab, each, tmp_path, is_dark=True), 5)


@pytest.mark.parametrize("count", [100, 1000])
def test_many_categories_can_be_sorted_filtered_and_read(
    tab: Tab, count: int, tmp_path: Path
) -> None:
    names = [f"category {index}" for index in range(count)]
    page = tmp_path / "report.html"
    page.write_text(render_report(make_report(names, 10 * count)), encoding="utf-8")
    frames = look(tab, page, tmp_path)
    check_layout(frames, 6)
    for frame in frames:
        assert frame["ascending"] == names  # numbers in names sort numerically
        assert frame["descending"] == names[::-1]
        assert frame["left"] == sum(names[0] in name for name in names)
        assert frame["reading"].startswith("True category 1, predicted category 0: ")


def test_the_confusion_matrix_is_not_clipped_on_wide_screens(tab: Tab, tmp_path: Path) -> None:
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    page = tmp_path / "report.html"
    page.write_text(render_report(make_report(names, 400)), encoding="utf-8")
    wide, middle, _ = look(tab, page, tmp_path)
    assert wide["cut"] == middle["cut"] == []


def test_a_wide_confusion_matrix_does_not_widen_the_page(tab: Tab, tmp_path: Path) -> None:
    names = [f"{'a-very-long-name-without-a-space' * 3} {index}" for index in range(20)]
    page = tmp_path / "report.html"
    page.write_text(render_report(make_report(names, 400)), encoding="utf-8")
    check_layout(look(tab, page, tmp_path), 5)


def test_names_under_pictures_are_not_broken_inside_words(tab: Tab, tmp_path: Path) -> None:
    files = [
        "golden_retriever/PXL_20230514_173211042-PORTRAIT_edited.jpg",
        f"pug/{'0123456789abcdef' * 4}.jpg",
    ]
    cards = [Card([""], [Fact("true", "Cavalier_King_Charles_spaniel")], [file]) for file in files]
    page = tmp_path / "report.html"
    report = make_report(galleries=[Gallery("mistakes", "Mistakes", "", cards)])
    page.write_text(render_report(report), encoding="utf-8")
    frames = look(tab, page, tmp_path)
    check_layout(frames, 5)
    assert [frame["broken"] for frame in frames] == [[], [], []]
