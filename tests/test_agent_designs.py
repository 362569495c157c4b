"""The designs of benchmarks/agent_designs.py compute what their texts say: published results rest on them."""

import agent_designs as designs
import pytest
import torch
from states import same

from envgen_nb.agent import ppo
from envgen_nb.agent.learner import learners, make_rollout
from envgen_nb.agent.networks import as_tensors, initialise
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import Trainer
from envgen_nb.game.simulator import get_simulator

CRAFTER = get_simulator("crafter")
SMALL = get_preset("symbols", hidden=(16, 16), num_envs=4, rollout_steps=20, epochs=1, minibatches=2, bf16=False)


def start(name, preset=SMALL):
    learners.take(f"agent_designs:{name}")
    venv = CRAFTER.make_vec(num_envs=4, seed=0, obs=preset.obs, length=60)
    learner = learners.find(f"agent_designs:{name}").for_game(CRAFTER, preset)(
        preset, venv.single_observation_space, venv.single_action_space, 0)
    return Trainer(learner, venv)


@pytest.mark.parametrize("name", ["Annealed", "PerMinibatch", "KLStop", "TwoHorizons", "FarRare", "TwoHot",
                                  "PQN"])
def test_a_stopped_training_goes_on_with_the_same_bits(name):
    straight, stopped = start(name), start(name)
    for _ in range(4):
        straight.rollout()
    for _ in range(2):
        stopped.rollout()
    rebuilt = start(name)
    rebuilt.load_state_dict(stopped.state_dict())
    for _ in range(2):
        rebuilt.rollout()
    assert same(straight.state_dict(), rebuilt.state_dict())
    assert not same(straight.learner.policy.state_dict(), start(name).learner.policy.state_dict())


def test_two_hot_bins():
    "The targets have the mean symlog(R), and the gradient is that of the cross-entropy: π − targets."
    bins, returns = designs.Bins(8), torch.tensor([-3.0, 0.0, 0.2, 1.7, 12.0])
    places = bins.places()
    target = torch.zeros(5, len(places), dtype=torch.float64)
    for row, value in zip(target, returns.tolist(), strict=True):
        at = (abs(torch.tensor(value)).log1p() * (1 if value > 0 else -1) - places[0]) / (places[1] - places[0])
        row[int(at)], row[int(at) + 1] = 1 - at % 1, at % 1
    assert torch.allclose((target @ places.double()).float(), returns.sign() * returns.abs().log1p(), atol=1e-5)
    features = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    torch.nn.init.normal_(bins.logits.weight, std=0.3, generator=torch.Generator().manual_seed(1))
    torch.nn.init.zeros_(bins.logits.bias)
    bins.loss(features, returns).backward()
    expected = (bins.logits(features).softmax(-1).double() - target).T @ features.double() / 5
    assert torch.allclose(bins.logits.weight.grad.double(), expected, atol=1e-5)
    sure = torch.full((1, len(places)), -1e4)
    sure[0, 40] = 0
    with torch.no_grad():
        bins.logits.weight.zero_()
        bins.logits.bias.copy_(sure[0])
    assert bins(features)[0].item() == pytest.approx(float(places[40].expm1()))


def test_the_loss_of_q():
    "Its gradient for the output of the action is 2 (q − R) / (σ B), and 0 for the others."
    learner = start("PQN").learner
    features = torch.randn(6, 16, generator=torch.Generator().manual_seed(0))
    batch = {"actions": torch.tensor([0, 3, 3, 5, 16, 1]), "returns": torch.linspace(-1, 2, 6)}
    learner.policy.returns.update(torch.tensor([0.0, 4.0]))
    mean, std = learner.policy.returns.mean_std()
    outputs = learner.policy.actor(features).detach()
    learner.loss(features, batch)[0].backward()
    chosen = torch.nn.functional.one_hot(batch["actions"], outputs.shape[1])
    q = mean + std * outputs
    gradient = chosen * 2 * (q - batch["returns"][:, None]) / (std * 6)
    assert torch.allclose(learner.policy.actor.bias.grad, gradient.sum(0), atol=1e-5)


def test_two_horizons():
    "The advantages of two discounts, each normalised, are added; the second critic learns its own returns."
    trainer = start("TwoHorizons")
    for _ in range(2):
        trainer.rollout()
    learner, rollout = trainer.learner, trainer.kept
    batch = learner.compute_targets(rollout)
    with torch.no_grad():
        near = super(designs.TwoHorizons, learner).compute_targets(rollout)["advantages"]
        values, last = (learner.policy.far(learner.policy.features(obs)) for obs in (
            batch["obs"], as_tensors(rollout.next_obs)))
        final = torch.zeros(20, 4)
        for step, rows, obs, _ in rollout.truncations:
            final[step, rows] = learner.policy.far(learner.policy.features(obs))
        values = torch.cat([values.view(20, 4), last[None]])
        far = ppo.gae(rollout.rewards, values, rollout.terminated, rollout.truncated, final, 0.99, 0.9)
    total = near + ((far - far.mean()) / far.std()).flatten()
    assert torch.allclose(batch["advantages"], (total - total.mean()) / total.std(), atol=1e-4)
    assert torch.allclose(batch["far_returns"], (far + values[:-1]).flatten(), atol=1e-5)
    features = learner.policy.features(batch["obs"]).detach()
    _, parts = learner.loss(features, batch)
    parts["far_value_loss"].backward()
    found, std = learner.policy.far(features).detach(), learner.policy.far.returns.mean_std()[1]
    expected = (2 * (found - batch["far_returns"]) / std / len(found)).sum()
    assert float(learner.policy.far.value.bias.grad) == pytest.approx(float(expected), rel=1e-3)


def test_what_is_hardly_ever_reached_is_discounted_less():
    "Rewards 0.25 (1 / (p + 0.05) − 4) for what is first reached, in a critic of its own; A + A_far is normalised."
    trainer = start("FarRare")
    for _ in range(2):
        trainer.rollout()
    learner, rollout = trainer.learner, trainer.kept
    learner.examples.rate = torch.linspace(0, 1, 44).view(2, 22)
    learner.examples.achieved[:] = False
    learner.began[:] = rollout.carry["began"]                           # each row goes on with its episode
    seen = []
    learner.compute_targets, found = lambda rollout: seen.append(learner.far_rewards) or found(rollout), (
        learner.compute_targets)
    learner.learn(rollout)
    over, worth = rollout.terminated | rollout.truncated, (0.25 / (torch.linspace(0, 1, 44)[:22] + 0.05) - 1).clamp(0)
    before, expected = torch.zeros(4, 22, dtype=torch.bool), torch.zeros(20, 4)
    for t in range(20):
        expected[t] = ((rollout.unlocked[t] & ~before) * worth).sum(1)
        before = rollout.unlocked[t] & ~over[t][:, None]
    assert torch.allclose(seen[0], expected, atol=1e-5) and expected.any()
    batch, near = found(rollout), super(designs.FarRare, learner).compute_targets(rollout)
    with torch.no_grad():
        far = batch["far_returns"] - learner.policy.far(learner.policy.features(batch["obs"]))
    total = near["returns"] - near["values"] + far
    assert torch.allclose(batch["advantages"], (total - total.mean()) / total.std(), atol=1e-4)


def test_novelty_in_the_game_alone():
    trainer = start("NoveltyInGame")
    trainer.rollout()
    learner, rollout = trainer.learner, trainer.kept
    rollout.extras["designed"] = torch.arange(4).expand(20, 4) > 1
    learner.pairs.share[:] = 0
    found = learner.novelty(rollout, torch.ones(4, dtype=torch.bool))
    assert found[:, :2].any() and not found[:, 2:].any()


def test_an_encoder_without_attention():
    "A linear map of what is on each cell, one-hot, and of the numbers; rows of what is not there have no gradient."
    space = CRAFTER.make_vec(num_envs=1, obs="symbols").single_observation_space
    encoder = designs.Plain(space, SMALL.network)
    initialise(encoder, torch.Generator().manual_seed(0))
    for parameter in (*encoder.numbers_map.parameters(), *encoder.dense.parameters()):
        torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(1))
    obs = make_rollout(1, 3, space).obs
    obs = {name: value[0] + (torch.arange(3).view(-1, *[1] * (value.dim() - 2)) % 2).to(value.dtype)
           for name, value in obs.items()}
    found = encoder(obs, torch.float32)
    hot = torch.zeros(3, len(encoder.bag))
    for name, (begin, things) in zip(encoder.grids, encoder.sizes, strict=True):
        places = begin + torch.arange(encoder.cells) * things + obs[name].flatten(1).long()
        hot.scatter_(1, places, 1.0)
    numbers = encoder.numbers([obs[name] for name in encoder.vectors], 3, torch.float32)
    hidden = hot @ encoder.bag + encoder.numbers_map(numbers)
    assert torch.allclose(found, encoder.dense(encoder.norm(hidden).relu()), atol=1e-5)
    found.square().sum().backward()
    assert torch.equal(encoder.bag.grad.abs().sum(1) > 0, hot.sum(0) > 0)
