"""Designs that were tried, each with one thing changed in a learner, for `agent_tuning.py --learner agent_designs:…`.

    python benchmarks/agent_tuning.py --learner agent_designs:Annealed --preset symbols-long --steps 1961984

`FarRare` and `NoveltyInGame` are trained by `plants.py`. What they led to is in docs/guides/results_human.md.
"""

import dataclasses
import itertools
import math

import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from envgen_nb.agent import ppo
from envgen_nb.agent.attention import VectorFeatures
from envgen_nb.agent.learner import batch_size, tree_index
from envgen_nb.agent.networks import Linear, Policy, ReturnNorm, as_tensors, dense, fan_in_
from envgen_nb.agent.on_policy import PPO, OnPolicyLearner
from envgen_nb.agent.presets import Network
from envgen_nb.extras.rare import Examples, RarePPO

STEPS = 1_961_984       # of a training: what is annealed is annealed over so many


class Annealed(RarePPO):
    "Adam's learning rate falls linearly to a tenth of what it was (to 0: Schulman et al. 2017, Atari)."

    def learn(self, *arguments, **named):
        left = 1 - min(1.0, self.steps / STEPS)
        for group in self.optimizer.param_groups:
            group["lr"] = self.preset.algorithm.learning_rate * (0.1 + 0.9 * left)
        return super().learn(*arguments, **named)


class Farther(RarePPO):
    "The horizon 1 / (1 − γ) grows linearly from that of the preset to 100 steps (François-Lavet et al. 2015)."
    LAST = 100

    def learn(self, *arguments, **named):
        preset, algorithm = self.preset, self.preset.algorithm
        first = 1 / (1 - algorithm.gamma)
        horizon = first + (self.LAST - first) * min(1.0, self.steps / STEPS)
        self.preset = dataclasses.replace(preset, algorithm=dataclasses.replace(algorithm, gamma=1 - 1 / horizon))
        try:
            return super().learn(*arguments, **named)
        finally:
            self.preset = preset


class PerMinibatch(RarePPO):
    "Advantages are normalised in each minibatch, as in CleanRL and stable-baselines3."

    def update(self, minibatch, where):
        found = minibatch["advantages"]
        return super().update(minibatch | {"advantages": (found - found.mean()) / (found.std() + 1e-8)}, where)


class KLStop(RarePPO):
    "The passes over a rollout end when the policy has moved by more than 0.02 (`target_kl` of Spinning Up)."
    TARGET = 0.02

    def learn(self, *arguments, **named):
        self.last = None
        return super().learn(*arguments, **named)

    def update(self, minibatch, where):
        if self.last is not None and float(self.last["approx_kl"]) > self.TARGET:
            return self.last
        self.last = super().update(minibatch, where)
        return self.last


class Undiscounted(RarePPO):
    "What is imitated is not discounted: an example that took long counts as much as one that did not."

    def imitate(self):
        preset, algorithm = self.preset, self.preset.algorithm
        self.preset = dataclasses.replace(preset, algorithm=dataclasses.replace(algorithm, gamma=1.0))
        try:
            return super().imitate()
        finally:
            self.preset = preset


class Far(nn.Module):
    "A second value, of another discount."

    def __init__(self, width: int):
        super().__init__()
        self.value, self.returns = Linear(width, 1), ReturnNorm()

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.orthogonal_(self.value.weight, 0.1, generator=generator)
        nn.init.zeros_(self.value.bias)

    def forward(self, features: Tensor) -> Tensor:
        mean, std = self.returns.mean_std()
        return mean + std * self.value(features).squeeze(-1)


class FarPolicy(Policy):
    "A policy with a second value."

    def between(self, network: Network) -> int:
        self.far = Far(network.hidden[-1])
        return super().between(network)


class FarCritic(RarePPO):
    "A second critic, with a discount of its own; `compute_targets` has to return its `far_returns`, too."
    policy_class = FarPolicy
    GAMMA, LAMBDA = 0.99, 0.9

    @torch.no_grad()
    def far_targets(self, rollout, obs, rewards):
        "Return advantages and returns of the second critic, (T, N)."
        policy, shape = self.policy, rewards.shape
        values = policy.far(policy.features(obs)).view(shape)
        last, final = policy.far(policy.features(as_tensors(rollout.next_obs))), torch.zeros(shape)
        for step, rows, cut, _ in rollout.truncations:
            final[step, rows] = policy.far(policy.features(cut))
        found = ppo.gae(rewards, torch.cat([values, last[None]]), rollout.terminated, rollout.truncated, final,
                        self.GAMMA, self.LAMBDA)
        return found, found + values

    def update(self, minibatch, where):
        self.policy.far.returns.update(minibatch["far_returns"])
        return super().update(minibatch, where)

    def loss(self, features, batch):
        loss, parts = super().loss(features, batch)
        far = self.policy.far
        found = ((far(features) - batch["far_returns"]) / far.returns.mean_std()[1]).square().mean()
        return loss + self.preset.algorithm.value_coef * found, parts | {"far_value_loss": found}


class TwoHorizons(FarCritic):
    """Two critics, one with the preset's γ and λ, one that looks a hundred steps ahead; each one's advantages are
    normalised, and the policy follows their sum (near Fedus et al. 2019, hyperbolic discounting)."""

    def compute_targets(self, rollout):
        batch = super().compute_targets(rollout)
        found, returns = self.far_targets(rollout, batch["obs"], rollout.rewards)
        both = batch["advantages"] + self.flatten_batch((found - found.mean()) / (found.std() + 1e-8))
        return batch | {"advantages": (both - both.mean()) / (both.std() + 1e-8),
                        "far_returns": self.flatten_batch(returns)}


class NoveltyInGame(RarePPO):
    "No reward for novelty in designed worlds, where the shares are counted all the same."

    def novelty(self, rollout, fresh):
        return super().novelty(rollout, fresh) * ~rollout.designed


class FarRare(NoveltyInGame, FarCritic):
    """A second critic with a reward of its own, and γ 0.997; the advantages are added, and then normalised.

    Its reward is for objectives that less than every fifth episode of the original game reaches, see `worth`."""
    GAMMA, LAMBDA, COEF, FLOOR, BELOW = 0.997, 0.97, 0.25, 0.05, 0.2

    def worth(self):
        "Return what objectives are worth, (objectives,): (1 / (p + 0.05) − 4) / 4, at least 0."
        rate = self.examples.rate[0]
        return self.COEF * (1 / (rate + self.FLOOR) - 1 / (self.BELOW + self.FLOOR)).clamp(min=0)

    def learn(self, rollout, *arguments, **named):
        fresh = rollout.carry["began"].cpu() != self.began
        self.far_rewards = (self.examples.first(rollout, fresh) * self.worth()).sum(2)
        return super().learn(rollout, *arguments, **named)

    def compute_targets(self, rollout):
        batch = super().compute_targets(rollout)
        found, returns = self.far_targets(rollout, batch["obs"], self.far_rewards)
        both = batch["returns"] - batch["values"] + self.flatten_batch(found)
        return batch | {"advantages": (both - both.mean()) / (both.std() + 1e-8),
                        "far_returns": self.flatten_batch(returns)}


class Remembering(Examples):
    "(1 − p)² + `MORE` · max(0, the highest p so far − p): what is unlearned is worth more than what is new."
    MORE = 4.0

    def rarity(self, rollout, fresh):
        self.best = torch.maximum(getattr(self, "best", self.rate), self.rate)
        worth = (1 - self.rate).square() + self.MORE * (self.best - self.rate)
        return (self.first(rollout, fresh) * worth[rollout.designed.long()]).sum(2)


class Kept(RarePPO):
    """What is unlearned gains worth; with `rarity_coef` 1.

    Stopped after two seeds: the best of `rate`, an average that begins at 0, is too low."""

    def __init__(self, things, objectives, preset, observation_space, *arguments, **named):
        super().__init__(things, objectives, preset, observation_space, *arguments, **named)
        self.examples = Remembering(objectives, preset.num_envs, observation_space)


class Chosen(PPO):
    """PPO that learns from the half of each rollout with the largest |Â|, in minibatches of half the size.

    Where Â is near 0 the gradients of both the policy's and the critic's loss are, too: returns are Â + V."""
    SHARE = 0.5

    def compute_targets(self, rollout):
        batch = super().compute_targets(rollout)
        count = round(self.SHARE * len(batch["actions"]))
        return tree_index(batch, batch["advantages"].abs().topk(count).indices)


class Plain(nn.Module):
    """An encoder without attention: what is on each cell adds a row of weights, one for each cell and thing, and two
    dense layers follow. `--set encoder='"agent_designs:Plain"'`."""

    def __init__(self, space: spaces.Dict, network: Network):
        super().__init__()
        self.grids = sorted(name for name in space if len(space[name].shape) == 2)
        self.vectors = sorted(name for name in space if len(space[name].shape) < 2)
        self.numbers = VectorFeatures([space[name] for name in self.vectors])
        cells, width = math.prod(space[self.grids[0]].shape), network.hidden[0]
        things = [int(space[name].high.max()) + 1 for name in self.grids]
        starts = list(itertools.accumulate((cells * n for n in things), initial=0))
        self.sizes = list(zip(starts[:-1], things, strict=True))
        self.bag = nn.Parameter(torch.empty(starts[-1], width))
        self.cells, self.numbers_map = cells, Linear(self.numbers.features, width)
        self.norm = nn.LayerNorm(width)
        self.dense = dense(width, network.hidden[1:], network.layer_norm, math.sqrt(2), math.sqrt(2))

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.bag, std=(len(self.grids) * self.cells) ** -0.5, generator=generator)
        fan_in_(self.numbers_map, 1.0, generator)

    def forward(self, obs: dict[str, Tensor], dtype: torch.dtype) -> Tensor:
        rows = []
        for name, (start, things) in zip(self.grids, self.sizes, strict=True):
            places = start + torch.arange(self.cells, device=self.bag.device, dtype=torch.int32) * things
            rows.append(obs[name].flatten(1).int() + places)
        numbers = self.numbers([obs[name] for name in self.vectors], len(rows[0]), dtype)
        hidden = F.embedding_bag(torch.cat(rows, 1), self.bag, mode="sum") + self.numbers_map(numbers).float()
        return self.dense(F.relu(self.norm(hidden)).to(dtype))


class Bins(nn.Module):
    "Logits of numbers that are evenly spaced in symlog, and the number that they expect; at first it is 0."

    def __init__(self, width: int, count: int = 63, limit: float = 3.5):      # symexp(3.5) is 32
        super().__init__()
        self.logits, self.limit = Linear(width, count), limit

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.zeros_(self.logits.weight)
        nn.init.zeros_(self.logits.bias)

    def places(self) -> Tensor:
        return torch.linspace(-self.limit, self.limit, self.logits.out_features, device=self.logits.weight.device)

    def forward(self, features: Tensor) -> Tensor:
        numbers = self.places().sign() * self.places().abs().expm1()
        return (self.logits(features).softmax(-1) * numbers).sum(-1)

    def loss(self, features: Tensor, returns: Tensor) -> Tensor:
        "The cross-entropy between the logits and the two bins beside each return."
        places = self.places()
        at = (returns.sign() * returns.abs().log1p()).clamp(-self.limit, self.limit)
        position = (at - places[0]) / (places[1] - places[0])
        low = position.floor().clamp(max=len(places) - 2).long()
        share = position - low
        log_p = self.logits(features).log_softmax(-1)
        beside = [log_p.gather(-1, (low + k)[..., None])[..., 0] for k in (0, 1)]
        return -((1 - share) * beside[0] + share * beside[1]).mean()


class BinsPolicy(Policy):
    "A policy whose value is that of `Bins`."

    def between(self, network: Network) -> int:
        self.bins = Bins(network.hidden[-1])
        return super().between(network)

    def heads(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(features), self.bins(features)


class TwoHot(RarePPO):
    "The critic is a distribution over numbers that are evenly spaced in symlog, two-hot (Hafner et al. 2023)."
    policy_class = BinsPolicy

    def loss(self, features: Tensor, batch: dict) -> tuple[Tensor, dict[str, Tensor]]:
        algorithm, returns = self.preset.algorithm, batch["returns"]
        loss, parts = ppo.ppo_loss(self.policy.actor(features), returns, batch, algorithm)        # but for the critic's
        value_loss = self.policy.bins.loss(features, returns)
        return loss + algorithm.value_coef * value_loss, parts | {"value_loss": value_loss}


class QPolicy(Policy):
    "The actor's outputs are Q(s, a); the value is the largest."

    def heads(self, features: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = self.returns.mean_std()
        q = mean + std * self.actor(features)
        return q, q.max(-1).values


class PQN(OnPolicyLearner):
    """Q(λ) without a replay buffer or a target network (Gallici et al. 2024): actions are ε-greedy, ε falls from 1 to
    0.005 in the first fifth of the training, and what is learned is the λ-return, with the largest Q as the value."""
    policy_class = QPolicy

    @torch.inference_mode()
    def act(self, obs, carry=None, generator=None):
        q, values, carry = self.answer(as_tensors(obs, self.device), carry or self.start(batch_size(obs)))
        draw = torch.rand(2, len(q), generator=generator or self.act_generator)
        share = max(0.005, 1 - (1 - 0.005) * self.steps / (STEPS / 5))
        actions = torch.where(draw[0] < share, (draw[1] * q.shape[1]).long(), q.argmax(1).cpu())
        return actions, carry, {"log_probs": torch.zeros(len(q)), "values": values}

    def loss(self, features: Tensor, batch: dict) -> tuple[Tensor, dict[str, Tensor]]:
        q = self.policy.heads(features)[0].gather(-1, batch["actions"][:, None])[:, 0]
        loss = ((q - batch["returns"]) / self.policy.returns.mean_std()[1]).square().mean()
        return loss, {"value_loss": loss.detach()}
