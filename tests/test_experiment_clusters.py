"""Experiments on a Ray cluster of two nodes, one of which is lost, and in the queue of a real Slurm."""
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envgen_nb.experiment.file import parse_experiment
from envgen_nb.experiment.folder import ExperimentFolder, open_experiment
from envgen_nb.experiment.places import make_place
from envgen_nb.experiment.schedule import run_experiment
from envgen_nb.game.files import read_jsonl

FILE = """name = "small"
baseline = "plain"
seeds = [0, 1]
[settings]
num_cycles = 1
num_worlds = 2
cycle_steps = {steps}
final_steps = 0
evaluation_runs = 1
evaluation_episodes = 2
learner = "random"
preset_options = {{num_envs = 8, rollout_steps = 16, minibatches = 2}}
[arms.plain]
designer = "none"
[arms.rules]
"""


def make(folder: Path, steps: int = 1024) -> ExperimentFolder:
    return open_experiment(parse_experiment(FILE.format(steps=steps), folder), folder / "out")


@pytest.fixture
def ray(monkeypatch):
    """Two nodes of one core each, both of this machine."""
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.second = cluster.add_node(num_cpus=1)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.long
def test_a_ray_cluster_that_loses_a_node(tmp_path, ray):
    folder, changes, lost = make(tmp_path, 200_000), [], False
    for change in run_experiment(folder, make_place("ray")):
        changes += [change] if change else []
        going = [state for state in folder.states() if state.state == "running" and state.done]
        if not lost and len(going) == 2:                          # one on each node
            ray.remove_node(ray.second, allow_graceful=False)
            lost = True
    assert lost and [state.state for state in folder.states()] == ["done"] * 4, changes
    failed = [change for change in changes if change.what == "failed"]
    assert len(failed) == 1 and [c.what for c in changes if c.what == "resumed"] == ["resumed"], changes
    reference = make(tmp_path / "local", 200_000)
    for _ in run_experiment(reference, make_place("local", 2)):
        pass
    assert [folder.measured(name) for name in folder.experiment.measures] == [
        reference.measured(name) for name in folder.experiment.measures]


SLURM_CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobRequeue=1
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A Slurm of one node, this machine; installed from Debian's packages where that may be done."""
    pytest.importorskip("submitit")
    if shutil.which("slurmctld") is None or shutil.which("munged") is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            pytest.skip("Slurm is not installed, and only root of a Debian machine may install it")
        for words in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", "slurmctld", "slurmd",
                                          "slurm-client", "munge"]):
            done = subprocess.run(["apt-get", *words], capture_output=True, text=True,
                                  env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"})
            if done.returncode:
                pytest.skip(f"Slurm cannot be installed: {done.stderr.strip()[-200:]}")
    host = subprocess.run(["hostname", "-s"], capture_output=True, text=True, check=True).stdout.strip()
    conf = tmp_path / "slurm.conf"
    conf.write_text(SLURM_CONF.format(host=host, folder=tmp_path, cores=os.cpu_count()))
    for name in ("state", "spool"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("SLURM_CONF", str(conf))
    subprocess.run(["mkdir", "-p", "/run/munge"], check=True)
    subprocess.run(["chown", "munge:", "/run/munge"], check=True)
    munge = subprocess.Popen(["runuser", "-u", "munge", "--", "munged", "--foreground"])
    daemons = [munge]
    try:
        time.sleep(2)
        daemons += [subprocess.Popen(["slurmctld", "-D"]), subprocess.Popen(["slurmd", "-D", "-N", host])]
        for _ in range(60):
            told = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True)
            if told.stdout.strip() == "idle":
                break
            time.sleep(1)
        else:
            pytest.skip(f"Slurm does not start here: {told.stdout}{told.stderr}")
        yield tmp_path
    finally:
        if len(daemons) > 1:                         # what still runs would outlive them
            subprocess.run(["scancel", f"--user={os.getuid()}"])
            for _ in range(60):
                if not subprocess.run(["squeue", "--noheader"], capture_output=True, text=True).stdout.strip():
                    break
                time.sleep(0.5)
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(30)


@pytest.mark.long
def test_the_queue_of_a_real_slurm(tmp_path, slurm, monkeypatch):
    """One array; a job that is warned of its time limit goes back into the queue, and goes on where it was."""
    monkeypatch.setenv("MY_SERVER_KEY", "sk-very-secret")
    folder, changes, warned = make(tmp_path / "experiment", 300_000), [], 0
    for change in run_experiment(folder, make_place("slurm", 2), [("plain", 0), ("rules", 0)]):
        changes += [change] if change else []
        if not warned and (done := folder.state("plain", 0).done):              # Slurm: its time is almost over
            job = sh("squeue", "--noheader", "--states=R", "--format=%A %K").split("\n")[0].split()
            warned = {0: "plain", 1: "rules"}[int(job[1])], done
            sh("scancel", "--signal=USR2", job[0])
    logs = [path.read_text() for path in folder.path.glob("*/*.log")] + [
        path.read_text() for path in (folder.path / "slurm").glob("*log*")]
    assert [state.state for state in folder.states()] == ["done"] * 2 + ["waiting"] * 2, (changes, logs)
    assert sorted(change.what for change in changes) == ["done"] * 2 + ["started"] * 2          # nothing has failed
    events = read_jsonl(folder.run(warned[0], 0) / "events.jsonl")
    assert [event["resumed"] for event in events if event["event"] == "Started"] == [False, True]
    scripts = list((folder.path / "slurm").glob("*_submission.sh"))
    assert len({script.resolve() for script in scripts}) == 1 and sys.executable in scripts[0].read_text()  # one array
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 50 and not any(b"sk-very-secret" in content(path) for path in files)


def content(path: Path) -> bytes:
    """Of a file; nothing if Slurm, whose daemons are still there, has deleted it meanwhile."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def sh(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
