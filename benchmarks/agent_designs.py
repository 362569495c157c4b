"""Two designs that should bring a learner without designed worlds further in Crafter. Tried, and not part of the kit.

    python benchmarks/agent_tuning.py --learner agent_designs:Novelty --steps 1960000 --seeds 910 911 912 913 914
    python benchmarks/agent_tuning.py --learner agent_designs:Imitation --steps 1960000 --seeds 910 911 912 913 914

What limits the score of plain PPO at 1.96M steps are objectives that are reached in less than one episode in a
hundred: table and furnace are built apart, each where its own reward can be had (docs/guides/results.md). So `Novelty`
rewards things that are seldom together, and `Imitation` goes on learning from the few times when something rare was
achieved. Both are PPO as it is, with a few lines before or after what it learns from a rollout.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from envgen_nb.agent.fast import FastPPO
from envgen_nb.agent.learner import Rollout, at, each, generators, nobody
from envgen_nb.crafter.reference import ITEMS, MATERIALS, VIEW

BODY = 4                                        # of `ITEMS`, the first: health, food, drink, energy
CENTRE = VIEW[0] // 2, VIEW[1] // 2             # where the player stands in its view
EPISODES = 500                                  # about so many episodes are averaged over


def things(obs: dict[str, Tensor]) -> Tensor:
    "What is in the bag, and which materials are next to the player, (…, F) bool."
    x, y = CENTRE
    near = obs["material"][..., x - 1:x + 2, y - 1:y + 2].flatten(-2).long()
    return torch.cat([obs["inventory"][..., BODY:] > 0, F.one_hot(near, len(MATERIALS)).amax(-2) > 0], -1)


def shares(old: Tensor, episodes: Tensor) -> Tensor:
    "In which share of the latest episodes each thing happened, (P,), after so many more of them, (E, P) bool."
    kept = (1 - 1 / EPISODES) ** len(episodes)
    return kept * old + (1 - kept) * episodes.float().mean(0) if len(episodes) else old


class Novelty(FastPPO):
    """A reward for each pair of things that is together for the first time in an episode, the rarer the higher.

    It is `BONUS` × (1 − share)², with the share of the latest episodes in which the pair was together. As with counts
    of states (Bellemare et al. 2016, https://arxiv.org/abs/1606.01868), what is known is worth nothing; pairs instead
    of states, as no two views are the same.
    """
    BONUS = 0.1

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        first, second = torch.triu_indices(*2 * [len(ITEMS) - BODY + len(MATERIALS)], 1)
        self.pairs, self.share, self.met = (first, second), torch.zeros(len(first)), None

    def learn(self, rollout: Rollout, check: Callable[[], None] = nobody) -> dict[str, float]:
        first, second = self.pairs
        after = each(lambda value: torch.as_tensor(value, device=self.device)[None], rollout.next_obs)
        seen = things({name: torch.cat([value, after[name]]) for name, value in rollout.obs.items()})
        together = seen[..., first] & seen[..., second]                  # (T + 1, N, P)
        over, given = rollout.terminated | rollout.truncated, 0.0
        if self.met is None:
            self.met = together[0]
        for t in range(len(over)):
            new = together[t + 1] & ~self.met & ~over[t][:, None]
            bonus = self.BONUS * (new * (1 - self.share).square()).sum(1)
            self.share = shares(self.share, self.met[over[t]])
            self.met = torch.where(over[t][:, None], together[t + 1], self.met | together[t + 1])
            rollout.rewards[t] += bonus
            given += float(bonus.mean())
        return super().learn(rollout, check) | {"bonus": given / len(over)}


class Imitation(FastPPO):
    """After each rollout `STEPS` of Adam on how rare objectives were achieved before: self-imitation (Oh et al. 2018,
    https://arxiv.org/abs/1806.05635), as often for each objective.

    Of each objective that is achieved in less than `RARE` of the latest episodes the last `KEPT` times are kept, each
    with at most `LENGTH` steps before it. An action there is made more probable by as much as what followed was more
    than what is expected now, (R − V)₊, in standard deviations of the returns and at most 1.
    """
    RARE, KEPT, LENGTH, ROWS = 0.3, 64, 32, 1024
    STEPS = 1                                             # of Adam

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self.before: list[dict[str, Any]] = []            # the rollouts before, of which the last steps are needed
        self.achieved = self.reached = None               # (N, objectives) in the running episodes; (objectives,)
        self.kept: dict[int, deque] = {}
        *_, self.choice = generators(int(self.act_generator.initial_seed()), 4)

    def learn(self, rollout: Rollout, check: Callable[[], None] = nobody) -> dict[str, float]:
        found = super().learn(rollout, check)
        self.remember(rollout)
        return found | [self.imitate() for _ in range(self.STEPS)][-1]

    def remember(self, rollout: Rollout) -> None:
        "Keep how rare objectives were achieved in this rollout."
        over = rollout.terminated | rollout.truncated
        if self.reached is None:
            self.reached = torch.zeros(rollout.unlocked.shape[2])
            self.achieved = torch.zeros(rollout.unlocked.shape[1:], dtype=torch.bool)
        now = {"obs": each(Tensor.clone, rollout.obs), "actions": rollout.actions.clone(),
               "rewards": rollout.rewards.clone(), "over": over, "values": rollout.extras["values"].clone()}
        window = [*self.before, now]
        joined = {name: torch.cat([part[name] for part in window]) for name in ("actions", "rewards", "over", "values")}
        joined["obs"] = {name: torch.cat([part["obs"][name] for part in window]) for name in now["obs"]}
        start, gamma = len(joined["actions"]) - len(over), self.preset.algorithm.gamma
        for t in range(len(over)):
            new = rollout.unlocked[t] & ~self.achieved & (self.reached < self.RARE)
            for n, objective in new.nonzero().tolist():
                last = start + t                          # of the joined steps; back to where the episode began
                ends = joined["over"][:last, n].nonzero()
                begin = max(last + 1 - self.LENGTH, int(ends[-1]) + 1 if len(ends) else 0)
                steps, value = slice(begin, last + 1), 0.0
                if not joined["over"][last, n] and last + 1 < len(joined["values"]):
                    value = float(joined["values"][last + 1, n])
                returns = torch.zeros(last + 1 - begin)
                for k in reversed(range(len(returns))):
                    returns[k] = value = float(joined["rewards"][begin + k, n]) + gamma * value
                self.kept.setdefault(objective, deque(maxlen=self.KEPT)).append(
                    (each(Tensor.clone, at(joined["obs"], (steps, n))), joined["actions"][steps, n].clone(), returns))
            self.reached = shares(self.reached, rollout.unlocked[t][over[t]])
            self.achieved = rollout.unlocked[t] & ~over[t][:, None]
        self.before = window[-math.ceil(self.LENGTH / len(over)):]

    def imitate(self) -> dict[str, float]:
        "One step of Adam."
        rare = [kept for objective, kept in self.kept.items() if self.reached[objective] < self.RARE]
        if not rare:
            return {"imitated": 0.0}
        rows: list[Any] = []
        for k in torch.randint(len(rare), (self.ROWS // self.LENGTH,), generator=self.choice).tolist():
            rows.append(rare[k][int(torch.randint(len(rare[k]), (), generator=self.choice))])
        obs = {name: torch.cat([row[0][name] for row in rows]) for name in rows[0][0]}
        actions, returns = (torch.cat([row[k] for row in rows]) for k in (1, 2))
        parameters = list(self.policy.learned.values())
        with self.policy.settled():
            logits, values = self.policy(obs)
            better = ((returns - values) / self.policy.returns.mean_std()[1]).clamp(0, 1)
            loss = -(logits.log_softmax(-1).gather(-1, actions[:, None])[:, 0] * better.detach()).mean()
            loss = loss + 0.5 * self.preset.algorithm.value_coef * better.square().mean()
            gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = torch.empty_like(parameter).copy_(gradient)
        torch.nn.utils.clip_grad_norm_(parameters, self.preset.algorithm.max_grad_norm)
        self.optimizer.step()
        return {"imitated": float(better.detach().mean())}


class Imitation4(Imitation):
    "The same with four steps after each rollout; there are twelve of PPO."
    STEPS = 4


class Both(Novelty, Imitation):
    "What is seldom together is rewarded, and what was rare is imitated."
