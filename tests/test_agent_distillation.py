"""Achievement Distillation: the matching against POT, the minibatches of a phase against their definition."""

import numpy as np
import ot
import pytest
import torch
import torch.nn.functional as F
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from envgen_nb.agent.distillation import Distillation, Trajectories, direction, partial_transport, phase, predictions
from envgen_nb.agent.presets import get_preset

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


@pytest.mark.parametrize("most", [512, 4])
def test_the_loss_of_prediction_is_its_definition(most):
    "Step by step, each with an encoding of its own; in parts, too, if an episode is longer than a minibatch."
    learner = Distillation(TINY, SPACE, spaces.Discrete(5), seed=0)
    learner.most_steps = most
    data = played(learner)
    g = torch.Generator().manual_seed(7)
    learner.phase_generator.manual_seed(7)
    found = list(predictions(learner, data, [0, 2]))
    count = 0
    for i in torch.randperm(2, generator=g).tolist():
        (start, end), goals = data.spans[2 * i], data.goals[2 * i].tolist()
        partners = start + torch.randperm(end - start, generator=g)
        for chosen in torch.randperm(end - start, generator=g).split(most):
            losses = []
            for t in chosen.tolist():
                later = [goal for goal in goals if goal >= start + t]
                if later:
                    before, after = encode(learner, data, [later[0]]), encode(learner, data, [later[0] + 1])
                else:
                    before, after = encode(learner, data, [end - 1]), torch.zeros(1, 16)
                anchor = direction(before, after).detach()
                said = [learner.next_goal(encode(learner, data, [row]), data.actions[[row]], data.memory[[row]])
                        for row in (start + t, int(partners[t]))]
                logits = torch.stack([(anchor * one).sum(1) / 0.1 for one in said], 1)
                losses.append(F.cross_entropy(logits, torch.zeros(1, dtype=torch.int64)))
            loss, logits, values, rows = found[count]
            torch.testing.assert_close(loss, torch.stack(losses).mean(), rtol=1e-4, atol=1e-5)
            assert rows.tolist() == [*(start + chosen).tolist(), *partners[chosen].tolist()]
            expected = learner.policy({"obs": {name: value[rows] for name, value in data.obs.items()},
                                       "memory": data.memory[rows]})
            torch.testing.assert_close(logits, expected[0], rtol=1e-4, atol=1e-5)
            count += 1
    assert count == len(found) and values.shape == rows.shape


def test_a_phase_learns_to_predict_and_to_match_and_keeps_the_policy():
    "The losses fall, and the policy moves less than the features do."
    learner = Distillation(TINY.but(phase_learning_rate=3e-3, phase_epochs=30), SPACE, spaces.Discrete(5), seed=0)
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
