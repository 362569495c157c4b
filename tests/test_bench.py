"""The benchmark's command, as programs read it. (What it measures is not tested: no test asserts a time.)"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import speed_sim
import speed_train

from envgen_nb.extras import cli
from envgen_nb.extras.check import training_speed
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


def test_rows_and_parts_of_the_simulators():
    """In windows too short to be worth anything but to see that it works."""
    row = speed_sim.crafter_row("symbols", 8, 1, speed_sim.stock_crafter(0.05), 0.02)
    assert row["ratio"] > 1 and row["cpu_steps_per_s"] > 0 and row["slow_step_us"] >= row["step_us"]
    assert {"simulator", "engine", "obs", "num_envs", "num_threads", "steps_per_s", "stock_steps_per_s"} < set(row)
    for measure in speed_sim.heist_rows(quick=True)[:1]:
        row = measure()
        assert 0 < row["ratio"] and 0 < row["step_us"] <= row["slow_step_us"]
    for part in speed_sim.crafter_parts(0.01):
        assert part["ratio"] > 1


def test_what_the_trainer_is_timed_with():
    for preset, *_ in speed_train.train_presets().values():
        short = speed_train.quarter(preset)
        assert preset.batch == 4096 == 4 * short.batch and short.num_envs <= 32
        assert short.batch // short.algorithm.minibatches == preset.batch // preset.algorithm.minibatches
    env = speed_train.StockCrafter("symbols", seed=3)
    assert env.reset()[0] in env.observation_space and env.step(0)[0] in env.observation_space


@pytest.mark.long
def test_the_split_of_training_and_of_a_run():
    _, split, threads = training_speed(speed_train.get_preset("symbols"), 0.2)
    assert set(split) == {"simulate", "act", "learn"} and 0.8 < sum(split.values()) <= 1.01 and threads >= 1
    assert abs(sum(speed_train.run_split(4_096)["split"].values()) - 1) < 0.01


def test_an_installed_package_says_where_the_benchmarks_are(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(cli, "PACKAGE", tmp_path / "site-packages" / "envgen_nb")
    assert cli.main(["bench", "sim"]) == 2 and "envgen bench sim" in capsys.readouterr().err
