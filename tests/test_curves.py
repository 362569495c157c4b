"""The guide on curves: its programs, with a real MLflow that keeps its runs in a folder, and without a network."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

MLFLOW = Path(sys.prefix) / "mlflow"            # made by `make test-all`
GUIDE = (Path(__file__).parent.parent / "docs" / "guides" / "curves.md").read_text()
READ = """
history = mlflow.MlflowClient().get_metric_history
found, = mlflow.search_runs(search_all_experiments=True, output_format="list")
assert found.info.run_name == "with-curves" and found.info.status == "FINISHED"
assert found.data.params["num_cycles"] == "1" and found.data.params["designer"] == "rules"
scores = [(one.step, one.value) for one in history(found.info.run_id, "score")]
kept = [event for event in run.events() if event["event"] == "Evaluated"]
assert scores == list(zip((0, 2048), (event["score"] for event in kept), strict=True)), scores
assert "success/collect_wood" in found.data.metrics
assert 0 < history(found.info.run_id, "training/return")[-1].step <= 2048
"""


@pytest.mark.long
@pytest.mark.skipif(not MLFLOW.exists(), reason="make test-all installs MLflow's client")
def test_mlflow_draws_the_curves_of_a_run(tmp_path):
    program = "\n".join(re.findall(r"```python\n(.*?)```", GUIDE, re.S)).replace(
        "cycle_steps=24_576", "cycle_steps=2_048, num_worlds=2, evaluation_runs=1, evaluation_episodes=2, "
        "preset_options={'num_envs': 8, 'rollout_steps': 16, 'minibatches': 2}")
    quiet = {"MLFLOW_TRACKING_URI": str(tmp_path / "mlruns"), "MLFLOW_ALLOW_FILE_STORE": "true",
             "MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONPATH": str(MLFLOW)}
    done = subprocess.run([sys.executable, "-c", program + READ], cwd=tmp_path, env=os.environ | quiet,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
