"""The training report: complete, bounded in size, and safe with any names."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.pages import HOSTILE, Page
from tests.reports import SECTIONS, data_set, evaluation_of, make_history, make_report

from train_pytorch_model.evaluation.time_budget import TimeBudget
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.inputs.unreadable_images import UnreadableImage
from train_pytorch_model.reports.training_report import (
    MAX_BALANCE,
    MAX_ENDS,
    MAX_EPOCH_ROWS,
    MAX_UNREADABLE_IMAGES,
    Report,
    balance_of,
    render_report,
)

CHARTS = ("Loss", "Accuracy", "Learning rate", "Images per second")


def page_of(report: Report) -> Page:
    """The report, rendered and parsed."""
    return Page(render_report(report))


OVERFIT = [
    record | {"Train error": 0.1, "Top 1 accuracy": 0.6}
    for record in make_history((1.2, 0.7, 0.4, 0.5))
]


def training_of(*counts: int) -> ImageDirectory:
    """A training dataset with these numbers of images per category."""
    return data_set("Training dataset", "training", counts)


def test_every_section_is_present_and_every_link_leads_to_one() -> None:
    page = page_of(make_report())
    assert page.unclosed == []
    assert [section["id"] for section in page.all("section")] == list(SECTIONS)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {str(link["href"]) for link in page.all("a")} <= {f"#{name}" for name in SECTIONS}
    labels = [str(svg["aria-label"]) for svg in page.all("svg")]
    assert labels[:4] == [f"{title} by epoch" for title in CHARTS]
    assert all(image["alt"] for image in page.all("img"))


def test_a_report_loads_no_external_resources() -> None:
    page = page_of(make_report())
    sources = [
        str(value)
        for _, attributes in page.elements
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "data", "action", "xlink:href")
    ]
    assert all(source.startswith(("#", "data:image/")) for source in sources)
    assert not {"link", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.elements}


def test_a_report_states_the_settings_and_results() -> None:
    page = page_of(make_report())
    for text in (
        *("Training report: resnet18", "3 categories", "1 May 2026, 12:00 UTC"),
        *("Best epoch 3 of 4; lowest validation loss", "Accuracy ", "of 60 images"),
        "Training was input-bound: 33% of its time was spent waiting for images.",
        *(
            "Training batches 1 min 20 s 52.6%",
            "Waiting for images 40 s 26.3%",
            "Validation 20 s 13.2%",
        ),
        *("Other 12 s 7.9%", "Total 2 min 32 s 100%"),
        *("Model resnet18", "Steps 10 per epoch", "Batch size 16", "Warmup step number 0"),
        *("Image size 32, 48", "Horizontal flip yes", "Label smoothing 0", "Freeze backbone no"),
        *("Python 3.11.7", "Untrained model 0000", "None: every image could be read"),
    ):
        assert text in page.text
    assert "python -m train_pytorch_model train \\\n    --epochs 4" in "".join(
        page.html.partition("<pre")[2]
        .partition(">")[2]
        .partition("</pre>")[0]
        .replace("<bdi>", "")
        .replace("</bdi>", "")
    )


def test_curves_are_drawn_as_static_svg() -> None:
    page = page_of(make_report())
    paths = [path["d"] for path in page.all("path") if "d" in path]
    assert (
        len(paths) == 7
    )  # training and validation loss and accuracy, learning rate, speed; answers
    assert all(str(path).startswith("M") and str(path).count("L") == 3 for path in paths[:6])
    titles = page.texts("title")
    assert "Epoch 3: validation 0.4" in titles
    assert "Epoch 4: training 87.5%" in titles


def test_a_run_of_one_epoch_has_a_report() -> None:
    page = page_of(make_report(losses=(0.7,)))
    assert page.unclosed == []
    assert "Epoch 1: validation 0.7" in page.texts("title")
    assert len([path for path in page.all("path") if "d" in path]) == 1  # of the answers
    assert "nan" not in page.html.lower().replace("nanos", "")


def test_epochs_without_a_finite_loss_are_gaps_with_a_note() -> None:
    page = page_of(make_report(losses=(math.nan, 0.9, math.inf, 0.5, 0.4)))
    assert "The validation loss was not finite in 2 of 5 epochs." in page.text
    assert "Best epoch 5 of 5" in page.text
    numbers = [value for svg in page.all("circle") for value in (svg["cx"], svg["cy"])]
    numbers += [value for line in page.all("line") for value in (line["x1"], line["y1"])]
    assert all(math.isfinite(float(str(number))) for number in numbers)
    assert not [
        path
        for path in page.all("path")
        if "nan" in str(path.get("d")) or "inf" in str(path.get("d"))
    ]
    assert len([title for title in page.texts("title") if ": validation 0." in title]) == 3


def test_imbalanced_categories_are_noted_with_the_option_to_balance_them() -> None:
    said = "The largest category has 10 times as many training images as the smallest."
    page = page_of(
        make_report(advice=[f"{said} `init-model --balance-classes` compensates for that."])
    )
    assert said in page.text
    assert "init-model --balance-classes" in page.texts("code")
    assert "`" not in page.text


@pytest.mark.parametrize("count", [len(HOSTILE), 40])
def test_names_are_escaped(count: int) -> None:
    names = [
        *HOSTILE,
        *(f"{index}{HOSTILE[index % len(HOSTILE)]}" for index in range(count - len(HOSTILE))),
    ]
    plain = [f"category {index}" for index in range(count)]

    def page(categories: Sequence[str], name: str) -> Page:
        return page_of(
            make_report(
                categories,
                unreadable_images=[UnreadableImage("Training dataset", name, name, name)],
                ignored={name: 2},
                command=["python -m train_pytorch_model train", f"--training-dataset '{name}'"],
                training=data_set("Training dataset", name, range(count), {name: 3}),
            )
        )

    hostile = page(names, HOSTILE[0])
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in page(plain, "plain").elements]
    assert not [
        name for _, attributes in hostile.elements for name in attributes if name.startswith("on")
    ]
    turned = page(names, HOSTILE[6])
    assert not [
        text
        for tag in ("td", "th", "b", "p", "span", "pre", "code", "dd")
        for text in turned.texts(tag)
        if "\u202e" in text
    ]


def test_a_name_that_is_not_valid_unicode_is_escaped() -> None:
    html = render_report(make_report(("a\udcff", "b", "c")))
    assert "a\\udcff" in html
    html.encode("utf-8")


def test_a_report_of_a_thousand_categories_and_epochs_stays_small() -> None:
    names = [f"category {index:04}" for index in range(1000)]
    losses = [1 + 1 / (epoch + 1) for epoch in range(3000)]
    unreadable_images = [
        UnreadableImage("Training dataset", f"{index}.png", "a", "no image")
        for index in range(5000)
    ]
    html = render_report(
        make_report(names, 50_000, losses, mistakes=24, unreadable_images=unreadable_images)
    )
    assert len(html) < 3_000_000
    page = Page(html)
    assert page.html.count("no image</bdi>") == MAX_UNREADABLE_IMAGES
    assert (
        "5,000 images could not be read and are left out; bad_images.csv, next to this page, has"
        " all." in page.text
    )
    assert (
        f"The last {MAX_EPOCH_ROWS} epochs; metrics.jsonl, next to this page, has all." in page.text
    )
    assert "980 categories in between" in page.text
    assert "Images per category by rank" in [svg["aria-label"] for svg in page.all("svg")]
    assert "Heat map of 1000 true by 1000 predicted categories" in page.html


def test_the_table_of_categories_has_their_training_images() -> None:
    page = page_of(make_report(training=training_of(17, 18, 1234)))
    (table,) = [table for table in page.all("table") if table.get("id") == "per-class"]
    assert "sortable" in str(table["class"])
    assert "Training images" in page.texts("button")
    assert "1,234" in page.texts("td")


def test_a_report_of_fit_has_the_first_table_with_what_was_not_used() -> None:
    training = replace(
        training_of(17, 18, 1234), origin="column 'species' of labels.csv", notes=("a.csv is odd.",)
    )
    test = data_set("Test dataset", "test", (2, 3, 45))
    categories = ("blue", "green", "red")
    text = page_of(
        make_report(training=training, test_images=replace(test, categories=categories))
    ).text
    assert "Categories from column 'species' of labels.csv." in text
    assert "A.csv is odd." in text
    assert "Test images" in text
    assert "Test images" not in page_of(make_report()).text


def test_problems_in_the_data_are_listed() -> None:
    unreadable = [UnreadableImage("Validation dataset", "red/1.png", "red", "it is truncated")]
    page = page_of(
        make_report(
            unreadable_images=unreadable,
            training=data_set(
                "Training dataset", "training", [0, 5, 9], {"files of another kind (.txt)": 3}
            ),
        )
    )
    for text in (
        "1 category has no images in the training dataset: blue .",
        "Skipped in the training dataset: files of another kind (.txt) : 3.",
        "1 image could not be read and is left out.",
        "red/1.png red Validation dataset it is truncated",
    ):
        assert text in page.text
    assert "None: every image could be read" not in page.text


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        (
            {"look_alikes": "2 of 5 validation images look alike."},
            "2 of 5 validation images look alike.",
        ),
        ({"stopped": "Stopped early: 3 epochs in a row."}, "Stopped early: 3 epochs in a row."),
        (
            {"losses": (1.0, 0.5)},
            "The best epoch is the last, and the validation loss was still falling:",
        ),
        ({"rollbacks": 1}, "The loss was not finite 1 time: training rolled back"),
        ({"rollbacks": 2}, "The loss was not finite 2 times: training rolled back"),
        ({"advice": ["Few images. `init-model`"]}, "Few images. init-model"),
        (
            {"history": OVERFIT},
            "its accuracy was 90% on the training images, but 60% on the validation images.",
        ),
        (
            {"validation": data_set("Validation dataset", "validation", [9, 10, 0])},
            "2 of 3 categories have fewer than 10 validation images",
        ),
    ],
)
def test_notes_appear_only_when_they_apply(changes: dict[str, object], note: str) -> None:
    assert note in page_of(make_report(**changes)).text  # type: ignore[arg-type]
    assert note not in page_of(make_report(training=training_of(20, 21, 22))).text


def test_a_good_model_needs_no_advice() -> None:
    good = replace(evaluation_of(3, 60), balanced_accuracy=0.95)
    assert "Few images." not in page_of(make_report(advice=["Few images."], evaluation=good)).text


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        ({"label_smoothing": 0.1}, "label smoothing"),
        ({"cutmix": 0.5}, "CutMix"),
        ({"balance_classes": True}, "class balancing"),
        ({"label_smoothing": 0.1, "balance_classes": True}, "label smoothing and class balancing"),
    ],
)
def test_a_training_loss_that_differs_from_the_validation_loss_is_noted(
    changes: dict[str, Any], told: str | None
) -> None:
    report = make_report()
    text = page_of(replace(report, recipe=replace(report.recipe, **changes))).text
    assert (f"The recipe has {told}, so the training loss is a different function" in text) == (
        told is not None
    )
    assert ("to the end." in text) == (told is not None)


def test_few_categories_are_all_listed_ordered_by_their_images() -> None:
    balance = balance_of(np.array([5, 20, 10]), np.array([1, 40, 0]), ("a", "b", "c"))
    assert balance["rows"] == [("b", 20, 40), ("c", 10, 0), ("a", 5, 1)]
    assert balance["most"] == 40
    assert (balance["smallest"], balance["largest"], balance["rest"], balance["profile"]) == (
        5,
        20,
        0,
        None,
    )


def test_only_the_largest_and_smallest_of_many_categories_are_listed() -> None:
    count = MAX_BALANCE + 1
    balance = balance_of(
        np.arange(count), np.ones(count, int), [str(index) for index in range(count)]
    )
    shown = [training for _, training, _ in balance["rows"]]
    assert shown == list(range(count - 1, count - 1 - MAX_ENDS, -1))
    assert [training for _, training, _ in balance["last_rows"]] == list(
        range(MAX_ENDS - 1, -1, -1)
    )
    assert balance["rest"] == count - 2 * MAX_ENDS
    assert balance["smallest"] == 1
    assert balance["profile"] is not None


def test_a_budget_of_zero_seconds_is_rendered() -> None:
    page = page_of(make_report(budget=TimeBudget(0.0, 0.0, 0.0, 0.0)))
    assert "Training was compute-bound: 0% of its time was spent waiting for images." in page.text


def test_a_test_has_the_first_word_and_a_link() -> None:
    tested = page_of(make_report(test=evaluation_of(3, 500)))
    (first, *_) = [text for text in tested.texts("p") if text.strip()]
    assert " of 500" in first
    assert "evaluation/evaluation.html" in [link["href"] for link in tested.all("a")]
    assert "All that follows is about the 60 validation images" in tested.text
    assert "for an unbiased estimate" not in tested.text

    untested = page_of(make_report())
    assert "evaluation/evaluation.html" not in [link["href"] for link in untested.all("a")]
    assert "for an unbiased estimate, run evaluate on images that played no part" in untested.text
