"""How fast the trainer is on this machine, beside the one that a user would otherwise pick: `envgen bench train`.

    python benchmarks/speed_train.py            # some minutes
    python benchmarks/speed_train.py --quick    # about a minute, and less exact
    python benchmarks/speed_train.py --json     # one JSON object instead of a table

The other one is stable-baselines3's PPO on the unmodified `crafter` package (https://stable-baselines3.readthedocs.io).
Both train the same network with the same hyperparameters on the same observations, one after the other in the same
process. What differs is the trainer and the simulator, which is the point. (That a game of the engine is the package's
game, byte by byte, is shown elsewhere.)
"""


import argparse
import contextlib
import io
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from speed_sim import stock_env

from envgen_nb.agent.networks import has_bf16, initialise
from envgen_nb.agent.presets import Preset, encoders, get_preset
from envgen_nb.cycle.create import create_run
from envgen_nb.cycle.events import Evaluated
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.settings import make_settings
from envgen_nb.extras.check import training_speed
from envgen_nb.game.files import machine
from envgen_nb.simulators.crafter.reference import ACTIONS
from envgen_nb.simulators.crafter.spaces import observation_space
from envgen_nb.simulators.crafter.symbols import symbols

# The reference: the package's environment with the face of gymnasium, with its own pictures or with symbols taken
# from it.

class StockCrafter(gymnasium.Env):
    "The unmodified `crafter` package as a gymnasium environment."

    def __init__(self, obs: str, seed: int):
        self._game = stock_env(seed)
        self._symbols = obs == "symbols"
        self.observation_space, self.action_space = observation_space(obs), spaces.Discrete(len(ACTIONS))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        picture = self._game.reset()
        return (symbols(self._game) if self._symbols else picture), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        picture, reward, over, _ = self._game.step(int(action))
        return (symbols(self._game) if self._symbols else picture), float(reward), over, False, {}


# stable-baselines3 is wanted for nothing else, so it is imported here and nowhere else. Its PPO gets our encoder as
# a features extractor. It turns pictures into (3, H, W); our encoder gets them as they were.

def _sb3(preset: Preset, device: str) -> Any:
    "A PPO of stable-baselines3 with the preset's network and numbers, on the package; `ImportError` says what to do."
    try:
        with contextlib.redirect_stderr(io.StringIO()):           # where old gym is installed, it complains there
            from stable_baselines3 import PPO
            from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
            from stable_baselines3.common.vec_env import DummyVecEnv
    except ImportError:
        raise ImportError("the reference needs stable-baselines3: pip install 'envgen_nb[bench]'") from None

    class Encoder(BaseFeaturesExtractor):
        def __init__(self, space: spaces.Space):
            super().__init__(space, preset.network.hidden[-1])
            self.encoder = encoders.find(preset.network.encoder)(observation_space(preset.obs), preset.network)
            initialise(self.encoder, torch.Generator().manual_seed(0))

        def forward(self, obs: Any) -> torch.Tensor:
            return self.encoder(obs if isinstance(obs, dict) else obs.permute(0, 2, 3, 1), torch.float32)

    venv = DummyVecEnv([lambda i=i: StockCrafter(preset.obs, seed=i) for i in range(preset.num_envs)])
    ours = preset.algorithm
    return PPO(
        "MultiInputPolicy" if preset.obs == "symbols" else "CnnPolicy", venv, learning_rate=ours.learning_rate,
        n_steps=ours.rollout_steps, batch_size=ours.batch // ours.minibatches, n_epochs=ours.epochs,
        gamma=ours.gamma, gae_lambda=ours.gae_lambda, clip_range=ours.clip, ent_coef=ours.entropy_coef,
        vf_coef=ours.value_coef, max_grad_norm=ours.max_grad_norm, device=device, seed=0,
        policy_kwargs={"features_extractor_class": Encoder, "net_arch": [], "normalize_images": False})


def reference_speed(
    preset: Preset,
    rollouts: int,       # to measure
    warm: bool,          # whether one more goes before them, to warm up
    device: str = "cpu",
) -> float:              # environment steps per second
    "The speed of stable-baselines3's PPO on the package, with as many threads as torch takes by itself."
    before = torch.get_num_threads()
    torch.set_num_threads(_DEFAULT_THREADS)
    try:
        model = _sb3(preset, device)
        model.learn(preset.batch if warm else 0)          # the first worlds are made here, and not timed
        begun = time.perf_counter()
        model.learn(rollouts * preset.batch, reset_num_timesteps=False)
        return rollouts * preset.batch / (time.perf_counter() - begun)
    finally:
        torch.set_num_threads(before)


_DEFAULT_THREADS = torch.get_num_threads()


# What is measured: the presets `symbols` and `laptop` as they are; and pixels with the network of Mnih et al.
# (2015), 8 environments of 512 steps, 3 passes in minibatches of 512, in float32 and, where the processor has
# instructions for it, in bfloat16. The reference always computes in float32; it is timed with the same network and
# the same numbers as ours, `laptop`'s only in the long form. Where there is a GPU, the preset `paper` is timed on
# it too.

def train_presets() -> dict[str, tuple[Preset, str, str]]:
    "What is measured: a preset, the name of the one that is the reference's, and a device, by name."
    nature = {"encoder": "nature", "channels": (32, 64, 64), "hidden": (512,), "patch": 0, "embedding": 0, "heads": 0,
              "num_envs": 8, "rollout_steps": 512, "epochs": 3, "minibatches": 8, "learning_rate": 3e-4}
    found = {"symbols": (get_preset("symbols"), "symbols", "cpu"), "laptop": (get_preset("laptop"), "laptop", "cpu"),
             "nature, float32": (get_preset("laptop", **nature, bf16=False), "nature", "cpu")}
    if has_bf16("cpu"):
        found["nature, bfloat16"] = (get_preset("laptop", **nature, bf16=True), "nature", "cpu")
    if torch.cuda.is_available():
        found["paper"] = (get_preset("paper"), "paper", "cuda")
    return found


# The short form times rollouts of a quarter of the size, so that a slow hour does not make it a long one. Where
# rollouts are long, both sides are timed like that. Where games are many, as in `symbols`, only the reference is,
# and with 32 of them: it needs a twentieth of a second to make each new world. We need next to none, and fewer
# games would slow ours down, which chooses all their actions in one batch.

def quarter(preset: Preset) -> Preset:
    "A quarter of each rollout, in minibatches of the same size; of at most 32 games, whose first worlds take long."
    num_envs = min(preset.num_envs, 32)
    return preset.replace(num_envs=num_envs, rollout_steps=preset.batch // 4 // num_envs,
                      minibatches=preset.algorithm.minibatches // 4)


# A whole run does more than train: it writes logs and measures the agent at its start and after each cycle. It
# keeps the seconds of each, so they need only be added up.

def run_split(
    steps: int,     # of training
) -> dict:          # {"preset", "steps_per_s", "split": {…}}
    "Where the time of a whole run goes, from its own records: one cycle with designed worlds, measured as usual."
    with tempfile.TemporaryDirectory() as folder:
        run = create_run(make_settings(num_cycles=1, cycle_steps=steps, final_steps=0), Path(folder) / "run")
        seconds = Counter()
        for event in run_cycles(run.path):
            if isinstance(event, Evaluated):
                seconds["evaluate"] += event.seconds
        for record in run.metrics("cycle-1"):
            seconds.update(record["seconds"])
    order, total = ("simulate", "act", "learn", "log", "evaluate"), sum(seconds.values())
    return {"preset": run.settings.preset, "steps_per_s": round(record["step"] / total),
            "split": {kind: round(seconds[kind] / total, 3) for kind in order}}


# The table: each row is printed as soon as it is measured. `envgen bench train` prints them, and with `--json` what is
# returned.

def bench_train(
    quick: bool = False,                                # short, and less exact
    tell: Callable[[str], None] = lambda line: None,    # is given each line of the table when it is there
) -> dict:                                              # {"machine": …, "rows": […], "run": {…}}
    "Time this trainer beside stable-baselines3's PPO, and a whole run; `ImportError` without that package."
    tell(f"{'network':18} {'threads':>7} {'steps/s':>9} {'simulate':>9} {'act':>6} {'learn':>6} {'reference':>10} "
         f"{'ratio':>7}")
    rows, references = [], {}
    for name, (preset, kind, device) in train_presets().items():
        if quick and kind == "laptop":
            continue
        short = quarter(preset) if quick else preset
        ours = short if short.num_envs == preset.num_envs else preset       # fewer would slow ours down
        speed, split, threads = training_speed(ours, 3.0 if quick else 20.0, device)
        if kind not in references:
            references[kind] = reference_speed(short, 1 if quick else 3, not quick, device)
        rows.append({"preset": name, "device": device, "threads": threads, "steps_per_s": round(speed), "split": split,
                     "reference_steps_per_s": round(references[kind]), "ratio": round(speed / references[kind], 1)})
        tell(f"{name:18} {threads:7} {speed:9,.0f} {split['simulate']:9.0%} {split['act']:6.0%} {split['learn']:6.0%} "
             f"{references[kind]:10,.0f} {rows[-1]['ratio']:6.1f} ×")
    run = run_split(40_000 if quick else 240_000)
    tell(f"a run with {run['preset']}: {run['steps_per_s']:,} steps/s, "
         + ", ".join(f"{kind} {share:.0%}" for kind, share in run["split"].items()))
    return {"machine": machine(), "rows": rows, "run": run}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="less than a minute, and less exact")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    args = parser.parse_args()
    if args.json:
        print(json.dumps(bench_train(args.quick)))
    else:
        bench_train(args.quick, lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
