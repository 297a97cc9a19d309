import json
from dataclasses import fields

import numpy as np

from genpr.evaluation.options import LabelOptions


def test_every_option_of_score_is_passed_to_the_api(genpr, folders, tmp_path, monkeypatch):
    seen = {}

    def record(real, fake, choices, **_):
        given = {each.name: getattr(choices[0], each.name) for each in fields(choices[0])}
        seen.update(given, sides=(real, fake), protocols=tuple(each.protocol for each in choices))
        raise KeyboardInterrupt

    monkeypatch.setattr("genpr.evaluation.evaluator.score_with", record)
    folder, statistics = str(tmp_path), str(tmp_path / "s.npz")
    np.savez(statistics, mu=np.zeros(2), sigma=np.eye(2))
    expected = {
        "protocols": ("prdc", "genpr"),
        "metrics": ["recall", "density"],
        "k": 4,
        "ties": "strict",
        "extractor": "gabor",
        "max_images": 9,
        "seed": 5,
        "device": "cpu",
        "batch_size": 3,
        "workers": 2,
        "weights": folder,
        "offline": True,
        "cache": False,
        "cache_dir": folder,
        "on_bad": "skip",
        "max_bad": 0.05,
        "max_pixels": 1000,
        "prepare": "resize:9",
        "value_range": "0:4095",
        "bands": "3,2,1",
        "max_memory": "8GiB",
        "intervals": False,
        "control": False,
        "held_out": None,
        "reference_statistics": statistics,
        "labels": LabelOptions(fake_labels="folders"),
        **dict.fromkeys(
            ("real_groups", "fake_groups")
        ),  # which go without labels: tests/evaluation/test_groups.py
    }
    arguments = (
        "--protocol prdc --protocol genpr --metrics recall,density --k 4 --ties strict --extractor gabor "
        "--max-images 9 --seed 5 --device cpu --batch-size 3 --workers 2 --offline --no-cache --on-bad skip --max-bad 5% "
        f"--no-intervals --no-control --labels --fake-labels folders --reference-statistics {statistics} --max-pixels 1000 --prepare resize:9 --value-range 0:4095 --bands 3,2,1 --max-memory 8GiB --weights {folder} --cache-dir {folder}"
    )
    assert genpr("score", *folders, *arguments.split())[0] == 130
    assert seen.pop("sides") == tuple(map(str, folders))
    assert seen == expected | {"protocol": "prdc", "progress": None}


def test_thresholds_apply_to_every_protocol(genpr, tmp_path):
    line, shifted = tmp_path / "line.npy", tmp_path / "shifted.npy"
    np.save(line, np.arange(20.0)[:, None])
    np.save(shifted, np.arange(20.0)[:, None] + 18.0)
    arguments = ("--protocol", "genpr", "--protocol", "prdc", "--metrics", "recall")
    record = json.loads(genpr("score", line, shifted, *arguments, "--json")[1])
    values = {each["protocol"]: each["metrics"]["recall"]["value"] for each in record["results"]}
    assert values["prdc"] != values["genpr"]
    middle = sum(values.values()) / 2
    low = min(values, key=values.get)
    for order in ((0, 1, 2, 3), (2, 3, 0, 1)):
        protocols = [arguments[i] for i in order]
        gate = ("--metrics", "recall", "--fail-under", f"recall={middle}")
        code, out, err = genpr("score", line, shifted, *protocols, *gate)
        assert code == 5
        assert err.count("missed:") == 1
        assert f"missed: recall is {values[low]:.4f} under {low}" in err
        assert "protocol genpr" in out
        assert "protocol prdc" in out
