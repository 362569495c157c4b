"""The benchmark for designers: its protocol stays, its records are by it, and replies are enough to play one."""
import hashlib
import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from envgen_nb.experiment import benchmark
from envgen_nb.experiment.file import OWN_FOLDER, ExperimentError
from envgen_nb.extras.cli import main

FROZEN = {"benchmark-1": "8291f39a0cb4df659c15021e041d01771d4c014389b346f87cb1ea88fbd19ad4"}


def test_the_protocol_is_frozen():
    """Another protocol has another name, and its own records. Comments and questions may change."""
    found = tomllib.loads(benchmark.protocol().text)
    for name in ("question", "measures"):
        del found[name]
    text = json.dumps(found, sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest() == FROZEN[found["name"]], "give the protocol a new number"


def test_records_of_the_kit():
    for path in sorted(benchmark.RECORDS.glob("*.jsonl")):
        record = benchmark.read_record(path)
        assert record.designer == path.stem and not benchmark.problems(record), path.name


def test_a_hostile_record_is_data(tmp_path):
    """Names of files outside the folder are left out; what is no record is one message."""
    run = {"seed": 600, "summary": {"settings": {"seed": 600}}, "maps": {},
           "replies": {"../../out.md": 0, "cycle-1/reply.md": 0}}
    head = {"benchmark": benchmark.protocol().name, "designer": "mine", "about": "", "texts": ["a reply"]}
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, [head, run])))
    record = benchmark.read_record(path)
    assert list(record.runs[600]["replies"]) == ["cycle-1/reply.md"]
    assert any("damaged" in text for text in benchmark.problems(record))
    for wrong in ({"texts": []}, {"texts": None}):
        path.write_text("\n".join(map(json.dumps, [head | wrong, run])))
        with pytest.raises(ExperimentError, match="is no record of the benchmark"):
            benchmark.read_record(path)
    path.write_text("no JSON\n")
    with pytest.raises(ExperimentError):
        benchmark.read_record(path)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """The protocol with little to do."""
    folder = tmp_path_factory.mktemp("tiny")
    for name in ("worlds", "recordings"):
        shutil.copytree(OWN_FOLDER / name, folder / name)
    text = (OWN_FOLDER / "benchmark.toml").read_text()
    for before, after in ((r"490_000", "4096"), (r"evaluation_episodes = \d+", "evaluation_episodes = 2"),
                          (r"seeds = .*", "seeds = [600, 601]"), (r"num_cycles = 4", "num_cycles = 2"),
                          (r"(\[settings\].*)", r"\1\npreset_options = {num_envs = 16, rollout_steps = 32, "
                                                r"minibatches = 2}")):
        text = re.sub(before, after, text)
    (folder / "benchmark.toml").write_text(text)
    return folder


@pytest.mark.long
def test_from_a_designer_to_a_record_and_back(tiny, tmp_path, monkeypatch, capsys):
    """Played, submitted, and played again from its replies alone with the same results; the end is on its own maps."""
    monkeypatch.setattr(benchmark, "PROTOCOL", str(tiny / "benchmark.toml"))
    monkeypatch.setattr(benchmark, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(benchmark, "SHORT", 1)
    monkeypatch.chdir(tmp_path)
    anchors = ["experiment", str(tiny / "benchmark.toml"), "--folder", "anchors", "--jobs", "2"]
    assert main([*anchors, "--arms", "random", "hand", "--seeds", "600"]) == 0
    assert main(["benchmark", "submit", "anchors", "--out", "records"]) == 0
    assert {path.stem for path in (tmp_path / "records").iterdir()} == {"random", "hand"}

    assert main(["benchmark", "rules", "-p", "bottleneck", "true", "--name", "mine", "--folder", "mine"]) == 0
    said = capsys.readouterr().out
    assert "1 runs to do" in said and all(f"| `{name}`" in said for name in ("random", "hand", "mine"))
    assert main(["benchmark", "submit", "mine", "--about", "rules that name a bottleneck"]) == 0
    record = benchmark.read_record(tmp_path / "mine" / "mine.jsonl")
    assert record.about and not benchmark.problems(record)
    maps = record.runs[600]["maps"]
    assert maps["cycle-0"] == maps["cycle-1"] != maps["cycle-2"]

    assert main(["benchmark", str(tmp_path / "mine" / "mine.jsonl"), "--name", "again", "--folder", "again"]) == 0
    again = json.loads((tmp_path / "again" / "again" / "seed-600.json").read_text())
    assert again["settings"]["designer"] == "replay"
    assert all(again[name] == record.runs[600]["summary"][name] for name in ("scores", "returns", "curve", "success"))
    files = json.dumps({"files": str(tmp_path / "mine" / "mine" / "seed-{seed}")})
    assert main(["benchmark", "replay", "-p", "bottleneck", "true", "-p", "designer_options", files,
                 "--name", "repeated", "--folder", "repeated"]) == 0
    assert json.loads((tmp_path / "repeated" / "repeated" / "seed-600.json").read_text())["scores"] == again["scores"]

    assert main(["benchmark", "rules", "-p", "num_cycles", "8", "--name", "longer"]) == 2
    assert "num_cycles is fixed by the protocol" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "mine" / "mine" / "seed-600" / "cycle-2")
    assert main(["benchmark", "submit", "mine"]) == 1
    assert "the reply of cycle 2 is missing" in capsys.readouterr().out
