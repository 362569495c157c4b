"""Achievement Distillation: the matching against POT, the minibatches of a phase against their definition."""

import copy

import numpy as np
import ot
import pytest
import torch
import torch.nn.functional as F
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from envgen_nb.agent.learner import tree_index
from envgen_nb.agent.networks import as_tensors
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import Trainer
from envgen_nb.extras.distillation import (
    Distillation,
    Trajectories,
    direction,
    matches,
    partial_transport,
    phase,
    predictions,
)
from envgen_nb.game.simulator import make_vec

SPACE = spaces.Dict({"view": spaces.Box(0, 3, (3, 3), np.uint8), "bag": spaces.Box(0, 9, (4,), np.uint8)})
TINY = get_preset("symbols", hidden=(16, 16), embedding=4, heads=2, num_envs=4, rollout_steps=8, minibatches=2,
                  bf16=False, phase_epochs=2)


@given(m=st.integers(1, 22), n=st.integers(1, 22), width=st.integers(2, 8), seed=st.integers(0, 2**32 - 1))
def test_the_transport_is_that_of_pot(m, n, width, seed):
    g = np.random.default_rng(seed)
    one, two = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (g.normal(size=(k, width)) for k in (m, n)))
    costs = 1 - one @ two.T
    expected = ot.partial.entropic_partial_wasserstein(np.ones(m), np.ones(n), costs, reg=0.05, numItermax=100)
    plan = partial_transport(costs)
    np.testing.assert_allclose(plan, expected, rtol=1e-9, atol=1e-12)
    assert plan.sum() == pytest.approx(min(m, n))


def played(learner, lengths=(9, 7, 12), goals=((1, 4), (), (0, 3, 9)), seed=0):
    "Made-up whole episodes."
    g = torch.Generator().manual_seed(seed)
    rows, width = sum(lengths), 16
    ends = np.cumsum(lengths).tolist()
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    obs = {"view": torch.randint(0, 4, (rows, 3, 3), generator=g).byte(),
           "bag": torch.randint(0, 10, (rows, 4), generator=g).byte()}
    rows_of_goals = [torch.tensor(steps, dtype=torch.int64) + a for (a, _), steps in zip(spans, goals, strict=True)]
    return Trajectories(obs, torch.randint(0, 5, (rows,), generator=g), torch.randn(rows, width, generator=g),
                        torch.randn(rows, generator=g), spans, rows_of_goals, torch.zeros(rows, 3, dtype=torch.bool))


def encode(learner, data, rows):
    return learner.policy.encode({name: value[rows] for name, value in data.obs.items()})


def drawn(count, together, g):
    "Which episodes share a minibatch."
    return [sorted(part.tolist()) for part in torch.randperm(count, generator=g).split(together)]


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def agree(learner, data, logits, values, rows):
    "What is said of these rows is what the policy says."
    expected = learner.policy({"obs": {name: value[rows] for name, value in data.obs.items()},
                               "memory": data.memory[rows]})
    close(logits, expected[0]), close(values, expected[1])


@pytest.mark.parametrize("most", [512, 4])
@pytest.mark.parametrize("together", [1, 2])
def test_the_loss_of_prediction_is_its_definition(most, together):
    "Step by step, each with an encoding of its own; in parts, too, if an episode is longer than a minibatch."
    learner = Distillation(TINY.replace(phase_episodes=together), SPACE, spaces.Discrete(5), seed=0)
    learner.most_steps = most
    data, count = played(learner), 0
    g = torch.Generator().manual_seed(7)
    learner.phase_generator.manual_seed(7)
    minibatches = predictions(learner, data, [0, 2])
    for group in drawn(2, together, g):
        spans = [data.spans[2 * i] for i in group]
        steps = torch.cat([torch.arange(a, b) for a, b in spans])
        partners = torch.cat([a + torch.randperm(b - a, generator=g) for a, b in spans])
        for chosen in torch.randperm(len(steps), generator=g).split(most * together):
            loss, logits, values, rows = next(minibatches)
            losses = []
            for t, partner in zip(steps[chosen].tolist(), partners[chosen].tolist(), strict=True):
                (_, end), goals = next((span, data.goals[k].tolist()) for k, span in enumerate(data.spans)
                                       if span[0] <= t < span[1])
                later = [goal for goal in goals if goal >= t]
                if later:
                    before, after = encode(learner, data, [later[0]]), encode(learner, data, [later[0] + 1])
                else:
                    before, after = encode(learner, data, [end - 1]), torch.zeros(1, 16)
                anchor = direction(before, after).detach()
                said = [learner.next_goal(encode(learner, data, [row]), data.actions[[row]], data.memory[[row]])
                        for row in (t, partner)]
                told = torch.stack([(anchor * one).sum(1) / 0.1 for one in said], 1)
                losses.append(F.cross_entropy(told, torch.zeros(1, dtype=torch.int64)))
            close(loss, torch.stack(losses).mean())
            twice = [*steps[chosen].tolist(), *partners[chosen].tolist()]    # each of them counts alike
            assert sorted(twice) == sorted(rows.tolist() * (len(twice) // len(rows)))
            agree(learner, data, logits, values, rows)
            count += 1
    assert next(minibatches, None) is None and count >= 2 // together


@pytest.mark.parametrize("most", [512, 4])
@pytest.mark.parametrize("together", [1, 2])
def test_the_loss_of_matching_is_its_definition(most, together):
    "Match by match, each with encodings of its own."
    learner = Distillation(TINY.replace(phase_episodes=together), SPACE, spaces.Discrete(5), seed=0)
    learner.most_steps, learner.most_others = most, 2
    data, some, count = played(learner, (9, 7, 12, 10), ((1, 4), (), (0, 3, 9), (2, 5))), [0, 2, 3], 0
    g = torch.Generator().manual_seed(7)
    learner.phase_generator.manual_seed(7)

    def nu(goal):
        return direction(encode(learner, data, [goal]), encode(learner, data, [goal + 1]))[0]

    minibatches = matches(learner, data, some)
    for group in drawn(3, together, g):
        rest = [k for i, k in enumerate(some) if i not in group]
        others = [rest[j] for j in torch.randperm(len(rest), generator=g)[:2].tolist()]
        found, counts = [], []
        for i in group:
            mine = [nu(goal) for goal in data.goals[some[i]].tolist()]
            for k in others:
                theirs = [nu(goal).detach() for goal in data.goals[k].tolist()]
                costs = np.array([[1 - float(a.detach() @ b) for b in theirs] for a in mine])
                plan = ot.partial.entropic_partial_wasserstein(np.ones(len(mine)), np.ones(len(theirs)), costs,
                                                               reg=0.05, numItermax=100)
                pairs = np.argwhere(plan > 0.5).tolist()
                wrong = torch.randint(len(theirs), (len(pairs),), generator=g).tolist()
                found += [(mine[a], theirs[b], theirs[c]) for (a, b), c in zip(pairs, wrong, strict=True)]
                counts.append((i, len(pairs)))
        steps = []
        for i in group:
            start, end = data.spans[some[i]]
            steps.append(start + torch.randint(end - start, (sum(n for j, n in counts if j == i),), generator=g))
        steps = torch.cat(steps)
        for chosen in torch.randperm(len(found), generator=g).split(most * together):
            loss, logits, values, rows = next(minibatches)
            told = torch.stack([torch.stack([anchor @ positive, anchor @ negative]) / 0.1
                                for anchor, positive, negative in (found[k] for k in chosen.tolist())])
            expected = F.cross_entropy(told, torch.zeros(len(chosen), dtype=torch.int64))
            close(loss, expected)
            weights = list(learner.policy.encoder.parameters())
            for one, other in zip(*(torch.autograd.grad(value, weights, retain_graph=True, allow_unused=True)
                                    for value in (loss, expected)), strict=True):
                assert (one is None) == (other is None)
                if one is not None:
                    close(one, other)
            assert torch.equal(rows, steps[chosen])
            agree(learner, data, logits, values, rows)
            count += 1
    assert next(minibatches, None) is None and count >= 2


def test_a_phase_learns_to_predict_and_to_match_and_keeps_the_policy():
    "The losses fall, and the policy moves less than the features do."
    learner = Distillation(TINY.replace(phase_learning_rate=3e-3, phase_epochs=30), SPACE, spaces.Discrete(5), seed=0)
    learner.policy.returns.update(torch.randn(100))
    data = played(learner)
    with torch.no_grad():
        before = learner.policy({"obs": data.obs, "memory": data.memory})[0].log_softmax(1)
        features = learner.policy.encode(data.obs)
    first = phase(Distillation(TINY, SPACE, spaces.Discrete(5), seed=0), data)
    report = phase(learner, data)
    assert report["predict_loss"] < 0.8 * first["predict_loss"] and report["episodes_in_phase"] == 3
    with torch.no_grad():
        after = learner.policy({"obs": data.obs, "memory": data.memory})[0].log_softmax(1)
        moved = (learner.policy.encode(data.obs) - features).norm() / features.norm()
    assert float((after.exp() * (after - before)).sum(1).mean()) < 0.02 and float(moved) > 0.1


def test_what_breaks_in_a_phase_is_named_and_reaches_no_weight():
    learner = Distillation(TINY, SPACE, spaces.Discrete(5), seed=0)
    data = played(learner)
    data.returns[3] = float("nan")
    with pytest.raises(FloatingPointError, match="of a phase not finite"):
        phase(learner, data)
    assert all(torch.isfinite(weight).all() for weight in learner.policy.state_dict().values())


def test_what_is_achieved_in_the_last_step_of_a_rollout_is_remembered_with_one_set_of_weights():
    "Both ends of its direction are encoded before the weights change, as those of all other achievements are."
    preset = TINY.replace(num_envs=16, learning_rate=0.01, phase_rollouts=4)
    venv, found = make_vec("crafter", num_envs=16, seed=0, obs="symbols", num_threads=1), 0
    learner = Distillation(preset, venv.single_observation_space, venv.single_action_space, seed=0)
    trainer = Trainer(learner, venv)
    for _ in range(40):
        policy, played = copy.deepcopy(learner.policy), trainer.kept
        trainer.rollout()
        going = ~(played.terminated | played.truncated)[-2:].any(0)
        new = going & (played.unlocked[-1] & ~played.unlocked[-2]).any(1)
        with torch.no_grad():
            before, after = (policy.encode(as_tensors(obs, "cpu")) for obs in (tree_index(played.obs, -1), trainer.obs))
        trainer.rollout()
        close(played.extras["memory"][0][new], direction(before, after)[new])
        found += int(new.sum())
    assert found >= 5
