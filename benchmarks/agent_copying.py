"""How fast does a network learn to read pictures? It learns to act as an agent does that reads them as numbers.

    python benchmarks/agent_copying.py                                   # `laptop` as it is: about three minutes
    python benchmarks/agent_copying.py --set learning_rate=7e-4
    python benchmarks/agent_copying.py --contrast 1                      # see `Patches` in `agent.attention`

Two agents that see symbols are trained, for 400,000 and 1,000,000 steps. They play, and a picture is kept of each step.
The network learns what they would do and what they expect from the pictures of some environments, and is asked about
others. Trainings from rewards differ so much by luck that ten of each could not tell two settings apart; here two show
a large difference. It is one in how fast pictures are read; what is then learned, `benchmarks/agent_tuning.py` says.
"""

import argparse
import contextlib

import torch
from agent_learning import fields, learn
from torch import Tensor

from envgen_nb.agent.guards import keep_memory
from envgen_nb.agent.networks import Policy, as_tensors
from envgen_nb.agent.presets import Preset, get_preset
from envgen_nb.game.simulator import make_vec

ENVS, STEPS, ASKED = 64, 1600, 6             # environments, steps in each, and how many of them are kept to ask about
BATCH, UPDATES = 512, (80, 160, 320)         # examples per step of Adam; the steps after which is asked

Examples = tuple[Tensor, Tensor, Tensor]     # pictures, log-probabilities of the actions, expected returns


def examples(seed: int, steps: int) -> Examples:
    "What an agent sees, would do and expects after so many steps of training: each (STEPS, ENVS, …)."
    agent, _ = learn(get_preset("symbols"), seed, steps)
    symbols, pixels = (make_vec("crafter", num_envs=ENVS, seed=1_000_000 + seed, obs=kind)
                       for kind in ("symbols", "pixels"))
    known, seen, generator, found = symbols.reset()[0], pixels.reset()[0], torch.Generator().manual_seed(seed), []
    for _ in range(STEPS):
        with torch.inference_mode():
            logits, value = agent.policy(as_tensors(known))
        found.append((torch.from_numpy(seen.copy()), logits.log_softmax(1), value))
        actions = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0].numpy()
        known, seen = symbols.step(actions)[0], pixels.step(actions)[0]              # the same worlds, step by step
    symbols.close(), pixels.close()
    return tuple(torch.stack(each) for each in zip(*found, strict=True))


def misses(policy: Policy, pictures: Tensor, would: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    "KL divergence of its actions from those, in nats, and the part of the values' variance that it does not explain."
    logits, values = policy(pictures)
    kl = (would.exp() * (would - logits.log_softmax(1))).sum(1).mean()
    return kl, ((values - expected) / policy.returns.mean_std()[1]).square().mean()


def copy(preset: Preset, seed: int, learned: Examples, asked: Examples) -> list[tuple[float, float]]:
    "What a new network misses after each of UPDATES."
    generator = torch.Generator().manual_seed(seed)
    with contextlib.closing(make_vec("crafter", num_envs=1, obs=preset.obs)) as venv:
        policy = Policy(preset.network, venv.single_observation_space, venv.single_action_space, generator)
    policy.returns.update(learned[2])
    adam, found = torch.optim.Adam(policy.parameters(), lr=preset.algorithm.learning_rate, eps=1e-5), []
    order = torch.randperm(len(learned[0]), generator=generator)
    for update, rows in enumerate(order.split(BATCH)[:UPDATES[-1]], 1):
        kl, unexplained = misses(policy, *(x[rows] for x in learned))
        adam.zero_grad()
        (kl + preset.algorithm.value_coef * unexplained).backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), preset.algorithm.max_grad_norm)
        adam.step()
        if update in UPDATES:
            with torch.inference_mode():
                parts = zip(*(x.split(BATCH) for x in asked), strict=True)
                found.append(torch.tensor([misses(policy, *part) for part in parts]).mean(0).tolist())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="laptop")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="changes to the preset")
    parser.add_argument("--contrast", type=float, help="what deviations from a square's mean colour are multiplied by")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    args = parser.parse_args()
    contrast = {} if args.contrast is None else {"contrast": args.contrast}
    preset = get_preset(args.preset, **fields(args.set) | contrast)
    torch.set_num_threads(1)             # two settings can be looked at side by side
    keep_memory()
    found = list(zip(examples(0, 400_000), examples(1, 1_000_000), strict=True))
    learned = tuple(torch.cat([x[:, ASKED:].flatten(0, 1) for x in both]) for both in found)
    asked = tuple(torch.cat([x[::10, :ASKED].flatten(0, 1) for x in both]) for both in found)
    print(f"{len(learned[0]):,} examples to learn from, {len(asked[0]):,} to be asked about")
    print("missed after so many updates: nats of the actions, and part of the values' variance")
    print("seed" + "".join(f"{n:16,}" for n in UPDATES))
    for seed in args.seeds:
        missed = copy(preset, seed, learned, asked)
        print(f"{seed:4}" + "".join(f"{kl:9.3f} {value:6.3f}" for kl, value in missed), flush=True)


if __name__ == "__main__":
    main()
