"""Does the representation know which achievement comes next? A linear probe on the features of PPO and of `ad`.

    python benchmarks/next_goal_probe.py                          # 500,000 steps each, one seed, prints a line each
    python benchmarks/next_goal_probe.py --steps 1000000 --seeds 0 1 2 --out benchmarks/next_goal_probe.jsonl

Each agent plays episodes of its own in the original game. Every step before an episode's last achievement is labelled
with the achievement that came next; a linear map from the encoder's features is fitted on some of the episodes and
tried on the others. This is the probe of Moon et al. 2023 (section 5), who report 44.9% for PPO and 73.6% for theirs.
Each agent is also a line of agent_tuning.jsonl.
"""

import argparse

import numpy as np
import torch
from agent_learning import EVALUATION_SEED, fields
from agent_tuning import RESULTS, trained

from envgen_nb.agent.learner import Learner
from envgen_nb.agent.networks import as_tensors
from envgen_nb.game.files import append_jsonl
from envgen_nb.game.simulator import get_simulator, make_vec


@torch.no_grad()
def labelled(agent: Learner, episodes: int, seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    "Of each episode: features of its steps (n, F), and which achievement came next (n,)."
    venv = make_vec("crafter", num_envs=episodes, seed=seed, obs=agent.preset.obs, episodes=1, length=1000)
    generator = torch.Generator().manual_seed(seed)
    (obs, _), carry, before = venv.reset(), agent.start(episodes), np.zeros((episodes, 22), bool)
    features, reached, playing = [], [], []
    while not venv.finished.all():
        playing.append(~venv.finished)
        features.append(agent.policy.encoder(as_tensors(obs), agent.policy.dtype).float())
        actions, carry, _ = agent.act(obs, carry, generator)
        obs, _, _, _, infos = venv.step(actions.numpy())
        unlocked = venv.unlocked
        if "results" in infos:
            unlocked = np.where(infos["_results"][:, None], infos["results"]["unlocked"], unlocked).astype(bool)
        carry = agent.observe_achievements(carry, venv.unlocked)
        reached.append(unlocked & ~before)
        before = unlocked
    venv.close()
    features, reached, found = torch.stack(features), np.stack(reached), []
    for n in range(episodes):
        steps, which = np.nonzero(reached[:, n])
        if len(steps):
            until = steps[-1] + 1
            following = which[np.searchsorted(steps, np.arange(until))]
            found.append((features[:until, n], torch.from_numpy(following)))
    return found


def probe(episodes: list[tuple[torch.Tensor, torch.Tensor]], passes: int = 300) -> dict:
    "Percent right on the last third of the episodes, and that of the best constant; by goal: steps, percent right."
    cut = 2 * len(episodes) // 3
    parts = episodes[:cut], episodes[cut:]
    (x, y), (x_new, y_new) = (tuple(map(torch.cat, zip(*part, strict=True))) for part in parts)
    mean, std = x.mean(0), x.std(0) + 1e-3
    x, x_new = (x - mean) / std, (x_new - mean) / std
    generator = torch.Generator().manual_seed(0)
    linear = torch.nn.Linear(x.shape[1], 22)
    torch.nn.init.zeros_(linear.weight), torch.nn.init.zeros_(linear.bias)
    optimizer = torch.optim.Adam(linear.parameters(), lr=3e-3, weight_decay=1e-4)
    for _ in range(passes):
        rows = torch.randint(len(x), (2048,), generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(linear(x[rows]), y[rows]).backward()
        optimizer.step()
    said = linear(x_new).argmax(1) == y_new
    right = float(said.float().mean())
    by_goal = {name: [int((y_new == k).sum()), round(100 * float(said[y_new == k].float().mean()), 1)]
               for k, name in enumerate(get_simulator("crafter").objectives) if (y_new == k).any()}
    constant = float((y_new == y.mode().values).float().mean())
    return {"right": round(100 * right, 1), "constant": round(100 * constant, 1), "tried_on": len(y_new),
            "by_goal": by_goal}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--preset", default="symbols-long")
    parser.add_argument("--steps", type=int, default=500_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--learners", nargs="+", default=["ppo", "ad"])
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="changes to the preset")
    parser.add_argument("--episodes", type=int, default=150)
    parser.add_argument("--out", help="a file of JSON lines that each agent is added to")
    args = parser.parse_args()
    for seed in args.seeds:
        for learner in args.learners:
            agent, record = trained(args.preset, fields(args.set), seed, args.steps, learner)
            append_jsonl(RESULTS, record)
            found = {name: record[name] for name in ("learner", "preset", "changes", "seed", "steps", "score_policy")}
            found |= probe(labelled(agent, args.episodes, EVALUATION_SEED + 1))
            print(found, flush=True)
            if args.out:
                append_jsonl(args.out, found)


if __name__ == "__main__":
    main()
