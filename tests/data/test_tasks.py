from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from sscf.data.datasets import DATASETS
from sscf.data.store import Domain, write_domain
from sscf.data.tasks import TASKS, Task, get_task
from sscf.errors import ConfigError


def domain(path: Path, labels: list[str], classes: list[str] | None = None, **more: object) -> Domain:
    classes = classes or list(dict.fromkeys(labels))
    x = np.arange(len(labels) * 10, dtype=float).reshape(-1, 1, 10)
    return Domain.open(write_domain(path, x, labels, ["s"] * len(labels), classes, 10, **more))  # type: ignore[arg-type]


def test_labels_that_are_classes_map_to_themselves(tmp_path: Path) -> None:
    view = get_task("ecg").view(domain(tmp_path / "d", ["other", "normal", "af", "af"]))
    assert [view.classes[i] for i in view.y] == ["other", "normal", "af", "af"]
    assert view.counts == {"normal": 1, "af": 2, "other": 1}
    assert (view.dropped, view.missing) == ({}, ())


def test_what_a_task_drops_is_counted_and_rows_lead_back_to_the_store(tmp_path: Path) -> None:
    d = domain(tmp_path / "d", ["walking", "jumping", "sitting", "jumping", "upstairs", "lying"])
    view = get_task("har").view(d)
    assert view.index.tolist() == [0, 2, 4]
    assert [view.classes[i] for i in view.y] == ["walking", "sitting", "stairs"]
    assert view.dropped == {"label 'jumping' is not in task har": 2, "label 'lying' is not in task har": 1}
    assert view.missing == ("standing",)
    np.testing.assert_array_equal(view.read([2, 0]), d.windows[[4, 0]])


def test_one_store_serves_several_tasks(tmp_path: Path) -> None:
    d = domain(tmp_path / "d", ["sitting", "standing", "downstairs", "jogging"])
    assert [get_task("har3").classes[i] for i in get_task("har3").view(d).y] == ["still", "still", "stairs"]
    assert [get_task("har6").classes[i] for i in get_task("har6").view(d).y] == [
        *("sitting", "standing", "downstairs", "jogging")
    ]
    assert get_task("har3").view(d).fingerprint != get_task("har").view(d).fingerprint


def test_sleep_merges_the_two_depths_and_never_relabels(tmp_path: Path) -> None:
    view = get_task("sleep").view(domain(tmp_path / "d", ["W", "N3", "N4", "movement", "unscored", "REM"]))
    assert [view.classes[i] for i in view.y] == ["W", "N3", "N3", "REM"]
    assert sum(view.dropped.values()) == 2


def test_runs_end_at_gaps_dropped_windows_and_recordings(tmp_path: Path) -> None:
    labels = ["W", "W", "movement", "W", "W", "W", "N2", "N2"]
    d = domain(
        tmp_path / "d",
        labels,
        recordings=[0, 0, 0, 0, 0, 1, 1, 1],
        positions=[0, 10, 20, 30, 50, 60, 70, 80],
    )
    assert get_task("sleep").view(d).runs() == [(0, 2), (2, 3), (3, 4), (4, 7)]


def test_the_manifests_map_beats_the_general_one_and_the_tasks_own_beats_both(tmp_path: Path) -> None:
    d = domain(tmp_path / "d", ["walking", "wlk"])
    d.manifest["tasks"] = {"har": {"wlk": "walking", "walking": None}}
    assert get_task("har").view(d).index.tolist() == [1]
    own = Task("har", get_task("har").classes, {"d": {"walking": "stairs", "wlk": None}})
    assert [own.classes[i] for i in own.view(d).y] == ["stairs"]


def test_a_domain_without_any_class_says_how_to_map_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"labels are x, y.*\[maps.d\]"):
        get_task("ecg").view(domain(tmp_path / "d", ["x", "y"]))
    bad = Task("t", ("a", "b"), {"*": {"x": "c"}})
    with pytest.raises(ConfigError, match="leads to 'c'; the classes are a, b"):
        bad.view(domain(tmp_path / "d", ["x", "y"]))


def test_a_label_the_domain_does_not_have_is_misspelt(tmp_path: Path) -> None:
    d = domain(tmp_path / "d", ["walk", "sit"])
    task = Task("t", ("a", "b"), {"d": {"walk": "a", "sitt": "b"}})
    with pytest.raises(ConfigError, match=r"'t': the map of 'd' names 'sitt', which is none of its labels: "):
        task.view(d)
    everywhere = Task("t", ("a", "b"), {"*": {"walk": "a", "sitt": "b"}})  # labels of other domains may stand here
    assert everywhere.view(d).counts == {"a": 1, "b": 0}


def test_the_documented_task_names_labels_of_its_data_sets(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "extend.md").read_text()
    (block,) = [block for block in re.findall(r"```toml\n(.*?)```", text, re.S) if "[maps." in block]
    (tmp_path / "t.toml").write_text(block)
    for name, labels in get_task(tmp_path / "t.toml").maps.items():
        assert set(labels) <= set(DATASETS[name].labels)


def test_a_task_from_toml(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text(
        'name = "motion"\nclasses = ["moving", "resting"]\n'
        '[maps."*"]\nwalking = "moving"\nsitting = "resting"\nlying = false\n'
    )
    task = get_task(file)
    view = task.view(domain(tmp_path / "d", ["walking", "lying", "sitting"]))
    assert [task.classes[i] for i in view.y] == ["moving", "resting"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"\nclasses = ["a", "b"]\nbackbones = "y"', "unknown key 'backbones'; known here: name, classes"),
        ('name = "x"', "key 'classes' is missing"),
        ('name = "x"\nclasses = ["a"]', "classes = .'a'.: "),
        ('name = "x"\nclasses = ["a", "a"]', "named twice"),
        ('name = "x"\nclasses = ["a", "b"]\n[maps.d]\nz = "c"', "maps.d.z = 'c': must be one of 'a', 'b', false"),
        ('name = "x"\nclasses = ["a", "b"]\nsequence = 0', "sequence = 0"),
        ("name = ", "not valid TOML"),
    ],
)
def test_a_wrong_task_file_is_explained(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        get_task(tmp_path / "t.toml")


def test_unknown_task() -> None:
    with pytest.raises(ConfigError, match="there are sleep, ecg, har, har3, har6"):
        get_task("eeg")


@pytest.mark.parametrize("name", list(DATASETS))
def test_maps_of_the_data_sets_name_own_labels_and_classes_of_tasks(name: str) -> None:
    dataset = DATASETS[name]
    assert dataset.name == name
    assert dataset.task in dataset.tasks
    for task, labels in dataset.tasks.items():
        assert set(labels) <= set(dataset.labels), task
        assert {to for to in labels.values() if to} <= set(TASKS[task].classes), task
        if task == dataset.task:
            assert set(labels) == set(dataset.labels), "every own label is decided upon"
    for text in (dataset.title, dataset.citation, dataset.licence, dataset.access, dataset.channels):
        assert text
