"""The benchmark's command, as programs read it. (What it measures is not tested: no test asserts a time.)"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from envgen_nb.simulators.heist.game import procgen_package


def bench(what: str) -> dict:
    done = subprocess.run([Path(sys.executable).parent / "envgen", "bench", what, "--quick", "--json"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"system", "processor", "cores", "versions"} <= set(found["machine"])
    return found


@pytest.mark.long
def test_bench_sim_prints_one_json_object():
    found = bench("sim")
    kinds = {(row["obs"], row["num_envs"], row["num_threads"]) for row in found["rows"]}
    assert {("pixels", 64, 1), ("symbols", 64, 1), ("symbols, noise=False", 64, 1)} <= kinds
    for row in found["rows"]:
        assert row["engine"] == {"crafter": "fast", "heist": "procgen"}[row["simulator"]]
        assert 0 < row["step_us"] <= row["slow_step_us"] and min(row["steps_per_s"], row["stock_steps_per_s"]) > 0
        if row["simulator"] == "crafter":
            assert abs(row["ratio"] - row["steps_per_s"] / row["stock_steps_per_s"]) < 0.01 * row["ratio"]
            assert row["cpu_steps_per_s"] > 0
    heist = {row["obs"] for row in found["rows"] if row["simulator"] == "heist"}
    assert heist == ({"pixels", "9 tiles, 2 locks"} if procgen_package() else set())
    assert [part["part"] for part in found["parts"]] == ["new world", "reset", "picture by day", "picture at night"]
    assert all(part["microseconds"] < part["stock_microseconds"] for part in found["parts"])
    assert found["starts"]["cached"] > 0


@pytest.mark.long
def test_bench_train_prints_one_json_object():
    found = bench("train")
    rows = {row["preset"]: row for row in found["rows"]}
    assert {"symbols", "nature, float32"} <= set(rows) <= {"symbols", "nature, float32", "nature, bfloat16", "paper"}
    for row in rows.values():
        assert row["device"] == ("cuda" if row["preset"] == "paper" else "cpu") and row["threads"] >= 1
        assert set(row["split"]) == {"simulate", "act", "learn"}
        assert 0.5 < sum(row["split"].values()) < 1.05
        ours, theirs = row["steps_per_s"], row["reference_steps_per_s"]                        # all rounded
        assert (ours - 0.5) / (theirs + 0.5) - 0.05 <= row["ratio"] <= (ours + 0.5) / (theirs - 0.5) + 0.05
    assert set(found["run"]["split"]) == {"simulate", "act", "learn", "log", "evaluate"}
    assert abs(sum(found["run"]["split"].values()) - 1) < 0.01
