"""PPO on a small game: determinism, resuming, autoreset, and what happens when numbers break."""

import contextlib
import copy
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from device import DEVICE
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st
from states import same

import envgen_nb
from envgen_nb.agent import graphs, on_policy, ppo
from envgen_nb.agent.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from envgen_nb.agent.guards import NotFiniteError, OutOfMemory
from envgen_nb.agent.learner import RandomLearner, generators, learners, make_rollout, tree_map
from envgen_nb.agent.networks import Policy, as_tensors
from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.ppo import gae, ppo_loss
from envgen_nb.agent.presets import get_preset
from envgen_nb.agent.train import Trainer, num_rollouts, play, train
from envgen_nb.game.examples import Orchard

GUIDE = (Path(__file__).parent.parent / "docs" / "guides" / "loss.md").read_text()
SMALL = get_preset("symbols", hidden=(32, 32), num_envs=8, rollout_steps=32, epochs=2, minibatches=2, gae_lambda=0.9,
                   learning_rate=3e-3, clip=0.2)
PIXELS = get_preset("laptop", encoder="nature", channels=(8, 8, 8), hidden=(32,), num_envs=4, rollout_steps=16,
                    epochs=2, minibatches=2)

SQUARES = PIXELS.replace(encoder="squares", channels=(), patch=5, embedding=8, heads=2)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def start(preset=SMALL, seed=0, kind=PPO, **options):
    venv = Orchard(preset.num_envs, seed, obs=preset.obs, **options)
    return kind(preset, venv.single_observation_space, venv.single_action_space, seed), venv


def played(agent, venv, steps=32):
    "A rollout from the very beginning, the episodes in it, and the trainer's view of where to go on."
    rollout = make_rollout(steps, venv.num_envs, venv.single_observation_space)
    episodes, _ = play(agent, venv, venv.reset()[0], {}, rollout)
    return rollout, episodes


@given(T=st.integers(1, 12), N=st.integers(1, 4), gamma=st.floats(0, 1), gae_lambda=st.floats(0, 1),
       seed=st.integers(0, 2**32 - 1), ends=st.floats(0, 0.6))
def test_gae_is_the_naive_double_loop(T, N, gamma, gae_lambda, seed, ends):
    g = np.random.default_rng(seed)
    rewards, values, final = g.normal(size=(T, N)), g.normal(size=(T + 1, N)), g.normal(size=(T, N))
    terminated, truncated = g.random((T, N)) < ends, g.random((T, N)) < ends        # both at once: it terminated
    expected = np.zeros((T, N))
    for n in range(N):
        for t in range(T):
            for k in range(t, T):
                after = 0 if terminated[k, n] else final[k, n] if truncated[k, n] else values[k + 1, n]
                expected[t, n] += (gamma * gae_lambda) ** (k - t) * (rewards[k, n] + gamma * after - values[k, n])
                if terminated[k, n] or truncated[k, n]:
                    break
    found = gae(*map(torch.from_numpy, (rewards, values, terminated, truncated, final)), gamma, gae_lambda)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-9)


def test_a_rollout_holds_what_happened():
    "Observations, actions, rewards and ends belong together; V(final_obs) stands where episodes were cut."
    agent, venv = start(length=6)
    storage, episodes = played(agent, venv)
    after = copy.deepcopy(storage.next_obs)
    last, final_values = agent.bootstrap(storage)
    replay = Orchard(8, length=6)
    obs, _ = replay.reset()
    ends, cuts = 0, 0
    for t in range(32):
        assert all((storage.obs[key][t].numpy() == obs[key]).all() for key in obs)
        with torch.inference_mode():
            logits, values = agent.policy(as_tensors(obs))
        assert torch.equal(values, storage.extras["values"][t])
        chosen = logits.log_softmax(1).gather(1, storage.actions[t][:, None])[:, 0]
        assert torch.allclose(chosen, storage.extras["log_probs"][t])
        obs, rewards, terminated, truncated, infos = replay.step(storage.actions[t].numpy())
        assert (storage.rewards[t].numpy() == rewards).all()
        assert (storage.terminated[t].numpy() == terminated).all()
        assert (storage.truncated[t].numpy() == truncated).all()
        expected = torch.zeros(8)
        if truncated.any():
            with torch.inference_mode():
                expected[truncated] = agent.policy(as_tensors(infos["final_obs"]))[1][truncated]
        torch.testing.assert_close(final_values[t], expected)
        ends, cuts = ends + int((terminated | truncated).sum()), cuts + int(truncated.sum())
    assert all((after[key] == obs[key]).all() for key in obs)
    with torch.inference_mode():
        torch.testing.assert_close(last, agent.policy(as_tensors(obs))[1])
    assert len(episodes) == ends and cuts > 0 and (episodes.lengths == 6).sum() >= cuts
    assert (episodes.returns == episodes.unlocked[:, 0]).all() and storage.obs["grid"].dtype == torch.uint8


def test_every_episode_is_counted_and_none_is_fine():
    agent, venv = start()
    reports = []
    train(agent, venv, 8 * SMALL.batch, callback=reports.append)
    assert sum(len(r.episodes) for r in reports) == (venv.episode - 1).sum() > 50
    agent, venv = start(length=10**6)
    venv.step = lambda actions, step=venv.step: step(np.zeros_like(actions))        # nobody ever moves
    train(agent, venv, SMALL.batch, callback=reports.append)
    assert len(reports[-1].episodes) == 0 and reports[-1].episodes.unlocked.shape == (0, 0)
    assert all(np.isfinite(value) for value in reports[-1].metrics.values())


@pytest.mark.parametrize("preset", [SMALL, PIXELS, SQUARES], ids=["symbols", "pixels", "squares"])
def test_same_seed_same_weights_and_no_global_randomness(preset):
    states = []
    for noise in (1, 2):
        random.seed(noise), np.random.seed(noise), torch.manual_seed(noise)
        before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
        agent, venv = start(preset, seed=5)
        train(agent, venv, 3 * preset.batch)
        states.append(agent.state_dict())
        assert random.getstate() == before[0] and (np.random.get_state()[1] == before[1]).all()
        assert torch.equal(torch.get_rng_state(), before[2])
    assert same(*states)
    other, venv = start(preset, seed=6)
    train(other, venv, 3 * preset.batch)
    assert not same(states[0]["policy"], other.state_dict()["policy"])


@pytest.mark.parametrize("preset", [SMALL, PIXELS], ids=["symbols", "pixels"])
def test_stopped_anywhere_and_rebuilt_it_goes_on_the_same(preset, tmp_path):
    straight, venv = start(preset)
    end = train(straight, venv, 5 * preset.batch).obs
    for stop in range(1, 5):
        trainer = Trainer(*start(preset))
        for report in trainer.run(5 * preset.batch):
            if report.rollout == stop:
                save_checkpoint(tmp_path / "at.pt", trainer.state_dict())
            if report.rollout == stop + 1:                            # the kill comes a rollout later
                break
        rebuilt = Trainer(*start(preset))
        rebuilt.load_state_dict(load_checkpoint(tmp_path / "at.pt"))
        list(rebuilt.run((5 - stop) * preset.batch))
        assert same(rebuilt.learner.state_dict(), straight.state_dict()), stop
        reached = rebuilt.obs
        assert all((reached[k] == end[k]).all() for k in end) if isinstance(end, dict) else (reached == end).all()


def test_a_state_is_a_copy():
    agent, venv = start()
    train(agent, venv, SMALL.batch)
    state = agent.state_dict()
    kept = copy.deepcopy(state)
    twins = [start()[0] for _ in range(2)]
    for twin in twins:
        twin.load_state_dict(state)
    train(agent, venv, SMALL.batch)
    train(twins[0], start()[1], SMALL.batch)
    assert same(state, kept) and same(twins[1].state_dict(), kept)


def test_states_that_do_not_fit_change_nothing():
    agent, venv = start()
    state = agent.state_dict()
    wrong = [{}, None, [], {"preset": 3}, state | {"more": 1}, {k: v for k, v in state.items() if k != "steps"},
             start(get_preset("symbols", num_envs=8))[0].state_dict(), start(PIXELS)[0].state_dict(),
             state | {"preset": state["preset"] | {"name": "another"}},
             state | {"policy": state["policy"] | {"actor.bias": torch.zeros(6)}},
             state | {"policy": {k: v for k, v in state["policy"].items() if k != "actor.bias"}},
             state | {"policy": None}, state | {"optimizer": {}}, state | {"act_generator": torch.zeros(3)},
             state | {"steps": "many"}]
    train(agent, venv, SMALL.batch)
    before = agent.state_dict()
    for broken in wrong:
        with pytest.raises(CheckpointError):
            agent.load_state_dict(broken)
        assert same(agent.state_dict(), before)
    foreign = copy.deepcopy(before)
    foreign["optimizer"]["state"][0]["exp_avg"] = torch.zeros(2, 2)
    with pytest.raises(CheckpointError, match=r"optimizer.state.0.exp_avg is \(2, 2\) there and \(64, 2\) here"):
        agent.load_state_dict(foreign)


def break_rewards(venv, agent):
    venv.step = lambda actions, step=venv.step: (lambda o, r, *rest: (o, r * np.nan, *rest))(*step(actions))


def break_values(venv, agent):
    agent.policy.critic.bias.data.fill_(float("inf"))


def break_logits(venv, agent):
    agent.policy.actor.bias.data.fill_(float("nan"))


def break_gradient(venv, agent):
    agent.policy.encoder.cells[0].embedding.register_hook(lambda grad: grad * float("nan"))


def break_loss(venv, agent):
    agent.policy.returns.mean_std = lambda: (torch.tensor(0.0), torch.tensor(0.0))


@pytest.mark.parametrize("cause, named", [
    (break_rewards, "rewards"), (break_values, "returns"), (break_logits, "logits"), (break_loss, "loss"),
    (break_gradient, r"gradient of encoder\.cells\.0\.embedding")])
def test_not_finite_is_named_and_never_reaches_the_weights(cause, named):
    agent, venv = start()
    train(agent, venv, SMALL.batch)
    cause(venv, agent)
    before = agent.state_dict()
    with pytest.raises(NotFiniteError, match=f"{named}.* not finite"):
        train(agent, venv, SMALL.batch)
    after = agent.state_dict()
    assert all(torch.equal(weight.nan_to_num(), after["policy"][key].nan_to_num())
               for key, weight in before["policy"].items())
    assert same(before["optimizer"], after["optimizer"]) and before["steps"] == after["steps"]


@pytest.mark.parametrize("preset", [SMALL, PIXELS, SQUARES], ids=["symbols", "convolutions", "squares"])
def test_an_update_is_what_plain_torch_would_do(preset):
    "backward, clip_grad_norm_ and Adam as the book has them: no microbatches, nothing fused."
    preset = preset.replace(bf16=False, epochs=1)
    (agent, venv), (plain, _) = start(preset), start(preset)
    s, _ = played(agent, venv, preset.algorithm.rollout_steps)
    last, final_values = agent.bootstrap(s)
    values = s.extras["values"]
    advantages = gae(s.rewards, torch.cat([values, last[None]]), s.terminated, s.truncated, final_values,
                     preset.algorithm.gamma, preset.algorithm.gae_lambda)
    flat = {"actions": s.actions, "log_probs": s.extras["log_probs"], "returns": advantages + values,
            "advantages": (advantages - advantages.mean()) / (advantages.std() + 1e-8)}
    flat = {name: value.flatten() for name, value in flat.items()}
    adam = torch.optim.Adam(plain.policy.parameters(), lr=preset.algorithm.learning_rate, foreach=False)
    for rows in torch.randperm(preset.batch, generator=plain.shuffle_generator).chunk(preset.algorithm.minibatches):
        batch = {name: value[rows] for name, value in flat.items()}
        batch["obs"] = ({k: v.flatten(0, 1)[rows] for k, v in s.obs.items()} if isinstance(s.obs, dict)
                        else s.obs.flatten(0, 1)[rows])
        plain.policy.returns.update(batch["returns"])
        adam.zero_grad()
        scale = plain.policy.returns.mean_std()[1]
        ppo_loss(*plain.policy(batch["obs"]), batch, preset.algorithm, scale)[0].backward()
        torch.nn.utils.clip_grad_norm_(plain.policy.parameters(), preset.algorithm.max_grad_norm)
        adam.step()
    agent.learn(s)
    before = start(preset)[0].policy.state_dict()
    for (name, ours), theirs in zip(agent.policy.named_parameters(), plain.policy.parameters(), strict=True):
        assert not torch.equal(ours, before[name]), name
        off, moved = (ours - theirs).abs(), (theirs - before[name]).abs()
        assert off.mean() < 0.02 * moved.mean() + 1e-7, name       # Adam divides by what may be almost nothing


@pytest.mark.parametrize("preset", [SMALL, PIXELS, SQUARES], ids=["symbols", "convolutions", "squares"])
def test_a_run_learns_what_the_chapter_shows(preset):
    "`train` of the chapter and the learner \"ppo\" take the same bits through an update, in one microbatch."
    learner, venv = start(preset.replace(microbatches=1), kind=learners.find("ppo"), length=6)
    train(learner, venv, preset.batch)
    venv = Orchard(preset.num_envs, 0, obs=preset.obs, length=6)
    policy = Policy(preset.network, venv.single_observation_space, venv.single_action_space, generators(0, 1)[0])
    before = copy.deepcopy(policy.state_dict())
    ppo.train(venv, policy, preset.algorithm, rollouts=1, seed=0)
    assert same(dict(learner.policy.state_dict()), dict(policy.state_dict())) and not same(before, policy.state_dict())


class Entropic(PPO):
    def loss(self, features, batch):
        loss, parts = super().loss(features, batch)
        return loss - 0.1 * parts["entropy"], parts | {"more": 0.1 * parts["entropy"]}


def test_a_changed_loss_changes_what_a_run_learns(monkeypatch):
    "A subclass's, and that of the chapter itself; threads and the recorded path included."
    assert envgen_nb.PPO is learners.find("ppo") is PPO

    def learned(kind=PPO, recorded=False):
        agent, venv = start(SMALL.replace(microbatches=1), kind=kind)
        agent.speed_up(2)
        agent.recorded = on_policy.record(agent) if recorded else None
        train(agent, venv, SMALL.batch)
        return agent.state_dict()["policy"]

    monkeypatch.setattr(graphs, "record", lambda work, device: (lambda again: (again, again.outputs))(Again(work)))
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    usual = learned()
    assert same(usual, learned(recorded=True)) and not same(usual, learned(Entropic))
    assert same(learned(Entropic), learned(Entropic, recorded=True))

    def entropic(logits, values, batch, *others):
        loss, parts = ppo_loss(logits, values, batch, *others)
        return loss - 0.1 * parts["entropy"], parts

    monkeypatch.setattr(ppo, "ppo_loss", entropic)
    assert same(learned(), learned(recorded=True)) and not same(usual, learned())


def test_the_learner_of_the_guide():
    "Its loss is logged, its optimiser followed."
    block, shared = re.search(r"```python\n(.*?)```", GUIDE, re.DOTALL)[1], {"__name__": "my_kit"}
    exec(compile(block, "loss.md", "exec"), shared)
    assert len(block.split("class Calm")[1].splitlines()) < 15
    reports, (agent, venv) = [], start(kind=shared["Calm"])
    train(agent, venv, 2 * SMALL.batch, callback=reports.append)
    assert isinstance(agent.optimizer, torch.optim.AdamW) and all(r.metrics["logits"] > 0 for r in reports)
    other = start(kind=shared["Calm"])[0]
    other.load_state_dict(agent.state_dict())
    assert same(other.state_dict(), agent.state_dict())


class Swept(PPO):
    def make_optimizer(self):
        return torch.optim.SGD(self.policy.parameters(), lr=0.01, momentum=0.9)


def test_an_optimiser_of_ones_own(tmp_path):
    "It is followed, saved and read again, and numbers that break down do not reach the weights, as with Adam."
    trainer = train(*start(kind=Swept), 3 * SMALL.batch)
    save_checkpoint(tmp_path / "at.pt", trainer.state_dict())
    other = Trainer(*start(kind=Swept))
    other.load_state_dict(load_checkpoint(tmp_path / "at.pt"))
    trainer.rollout(), other.rollout()
    assert same(trainer.learner.state_dict(), other.learner.state_dict())
    assert "momentum_buffer" in trainer.learner.state_dict()["optimizer"]["state"][0]
    with pytest.raises(CheckpointError, match="optimizer"):
        start()[0].load_state_dict(trainer.learner.state_dict())
    before, venv = trainer.learner.state_dict(), trainer.venv
    break_rewards(venv, trainer.learner)
    with pytest.raises(NotFiniteError, match="rewards"):
        trainer.rollout()
    assert same(before["policy"], trainer.learner.state_dict()["policy"])


def test_a_random_learner_goes_round_the_same_loop(tmp_path):
    trainer = Trainer(*start(kind=RandomLearner))
    reports = list(trainer.run(4 * SMALL.batch))
    assert [r.steps for r in reports] == [SMALL.batch * n for n in (1, 2, 3, 4)] and reports[0].metrics == {}
    save_checkpoint(tmp_path / "at.pt", trainer.state_dict())
    other = Trainer(*start(kind=RandomLearner))
    other.load_state_dict(load_checkpoint(tmp_path / "at.pt"))
    (one,), (two,) = trainer.run(SMALL.batch), other.run(SMALL.batch)
    assert (one.episodes.lengths == two.episodes.lengths).all() and one.steps == two.steps


def test_the_number_of_threads_changes_nothing():
    states = []
    for threads in (1, 2, 3):
        agent, venv = start(SMALL.replace(microbatches=3))
        assert agent.speed_up(threads) == threads
        train(agent, venv, 3 * SMALL.batch)
        states.append(agent.state_dict())
    assert same(states[0], states[1]) and same(states[0], states[2])


class Again:
    "A stand-in for a recording on a GPU: the same work on the same memory, its results where they were before."

    def __init__(self, work):
        self.work, self.outputs = work, work()

    def replay(self):
        for old, new in zip(tensors(self.outputs), tensors(self.work()), strict=True):
            old.copy_(new)


def tensors(found):
    "All tensors of nested tuples, lists and dictionaries."
    if isinstance(found, torch.Tensor):
        return [found]
    return [leaf for part in (found.values() if isinstance(found, dict) else found) for leaf in tensors(part)]


@pytest.mark.parametrize("preset", [SMALL, PIXELS, SQUARES], ids=["symbols", "convolutions", "squares"])
def test_learning_with_recorded_functions_is_the_same(preset, monkeypatch):
    "What a GPU records may be told nothing but its inputs, and what it returns is written over by the next call."
    preset, states = preset.replace(microbatches=1), []
    monkeypatch.setattr(graphs, "record", lambda work, device: (lambda again: (again, again.outputs))(Again(work)))
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    for recorded in (False, True):
        (agent, venv), told = start(preset), []
        agent.recorded = on_policy.record(agent) if recorded else None
        train(agent, venv, 4 * preset.batch, callback=lambda report, told=told: told.append(report.metrics))
        states.append([agent.state_dict(), told])
    assert isinstance(agent.recorded[0], graphs.Captured) and same(*states)


def test_out_of_memory_says_what_to_lower():
    agent, venv = start()
    agent.preset = agent.preset.replace(rollout_steps=10**12)
    with pytest.raises(OutOfMemory, match="preset 'symbols'.*Lower num_envs or rollout_steps"):
        train(agent, venv, 100)


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "cuda:-1", "cpu:0"])
def test_devices_that_are_not_there_are_refused(device):
    venv = Orchard(8)
    with pytest.raises(ValueError, match="device: "):
        PPO(SMALL, venv.single_observation_space, venv.single_action_space, 0, device=device)


def test_environments_that_do_not_fit_are_refused():
    agent, _ = start()
    with pytest.raises(ValueError, match="num_envs=8"):
        train(agent, Orchard(4), 100)
    venv = Orchard(8)
    venv.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    with pytest.raises(ValueError, match="SAME_STEP"):
        train(agent, venv, 100)


@settings(deadline=None)
@given(steps=st.integers(0, 10**7))
def test_steps_are_rounded_to_the_nearest_rollout(steps):
    rollouts = num_rollouts(steps, SMALL)
    assert rollouts >= 1 and (rollouts == 1 or abs(rollouts * SMALL.batch - steps) <= SMALL.batch / 2)


def test_the_callback_stops_and_sees_it_all():
    agent, venv = start()
    reports = []
    train(agent, venv, 100 * SMALL.batch, callback=lambda r: reports.append(r) or r.rollout == 3)
    assert [(r.rollout, r.steps) for r in reports] == [(i, i * SMALL.batch) for i in (1, 2, 3)]
    assert set(reports[0].metrics) == {"policy_loss", "value_loss", "entropy", "approx_kl", "clipfrac", "grad_norm",
                                       "explained_variance"}
    assert set(reports[0].seconds) == {"simulate", "act", "learn"}
    assert all(isinstance(value, float) for r in reports for value in (*r.metrics.values(), *r.seconds.values()))


def test_first_minibatch_is_on_policy():
    "Before any step of Adam the ratio is 1: no divergence, nothing clipped, and the gradient is the policy gradient's."
    agent, venv = start()
    storage, _ = played(agent, venv)
    batch = {"obs": {k: v.flatten(0, 1) for k, v in storage.obs.items()}, "actions": storage.actions.flatten(),
             "log_probs": storage.extras["log_probs"].flatten(), "advantages": storage.rewards.flatten() - 0.1,
             "returns": storage.rewards.flatten()}
    _, parts = ppo_loss(*agent.policy(batch["obs"]), batch, SMALL.algorithm)
    assert abs(parts["approx_kl"]) < 1e-6 and parts["clipfrac"] == 0
    torch.testing.assert_close(parts["policy_loss"], -batch["advantages"].mean())
    assert abs(parts["entropy"] - np.log(5)) < 0.01


PIXELS = get_preset("laptop", encoder="nature", channels=(8, 16, 16), hidden=(64,), num_envs=8, minibatches=4,
                    rollout_steps=64, gae_lambda=0.9, learning_rate=2e-3)


@pytest.mark.parametrize("preset, within, reaches", [
    pytest.param(SMALL, 100_000, 0.9, id="symbols", marks=pytest.mark.long),
    pytest.param(PIXELS, 75_000, 0.55, id="pixels", marks=pytest.mark.long)])
def test_it_learns_the_small_game(preset, within, reaches):
    "How soon depends on the rounding, and so on the processor: seeds take from 20,000 to 60,000 steps."
    agent, venv = start(preset)
    reports = []

    def rate(part):
        return np.concatenate([r.episodes.unlocked for r in part]).mean(0)[0]

    def there(report):
        reports.append(report)
        return len(reports) > 14 and rate(reports[-10:]) > reaches

    train(agent, venv, within, callback=there)
    assert rate(reports[:4]) < 0.45 and rate(reports[-10:]) > reaches, (rate(reports[:4]), rate(reports[-10:]))


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CONVOLUTIONS = get_preset("paper", channels=(8, 8, 8), hidden=(32,), num_envs=4, rollout_steps=16, epochs=2,
                          minibatches=2)
EVERY = pytest.mark.parametrize(
    "preset", [SMALL, SMALL.replace(prediction_coef=1.0), SQUARES, CONVOLUTIONS,
               get_preset("paper", num_envs=8, rollout_steps=32, minibatches=2)],
    ids=["symbols", "prediction", "squares", "convolutions", "paper"])


def on_gpu(preset, seed=0):
    venv = Orchard(preset.num_envs, obs=preset.obs)
    return PPO(preset, venv.single_observation_space, venv.single_action_space, seed, device="cuda"), venv


def close(ours, theirs, most):
    "All gradients together, by their length."
    far = sum((a.double().cpu() - b.double().cpu()).square().sum() for a, b in zip(ours, theirs, strict=True))
    return (far / sum(b.double().square().sum().cpu() for b in theirs)).sqrt() < most


@gpu
@EVERY
def test_a_gpu_finds_the_gradient_that_a_cpu_finds(preset, monkeypatch):
    "In float32, of what was played; and in bfloat16 almost the same."
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    agent, venv = start(preset.replace(bf16=False))
    batch = agent.compute_targets(played(agent, venv, preset.algorithm.rollout_steps)[0])
    expected, parts = agent.gradients(batch)
    moved = tree_map(lambda value: value.cuda(), batch)
    for bf16, most in ((False, 1e-4), (True, 0.15)):
        twin, _ = on_gpu(preset.replace(bf16=bf16))
        found, others = twin.gradients(moved)
        assert close(found, expected, most)
        assert all(abs(float(others[name]) - float(parts[name])) < most for name in parts)


@gpu
@EVERY
def test_recorded_functions_find_the_same_on_a_gpu(preset):
    "For other inputs than those they were recorded with, and after the weights have changed."
    agent, venv = on_gpu(preset)
    assert agent.recorded is None
    train(agent, venv, 3 * preset.batch)
    answer, find = agent.recorded
    rollout = make_rollout(preset.algorithm.rollout_steps, venv.num_envs, venv.single_observation_space, "cuda")
    play(agent, venv, venv.reset()[0], {}, rollout)
    batch = agent.compute_targets(rollout)
    del batch["values"]
    rows = preset.batch // preset.algorithm.minibatches
    for k in range(preset.algorithm.minibatches):
        minibatch = tree_map(lambda value, k=k: value[k * rows:(k + 1) * rows], batch)
        found = find(minibatch)
        assert close(found[0], agent.gradients(minibatch)[0], 1e-2 if preset.network.bf16 else 1e-4)
    obs = tree_map(lambda value: value[:preset.num_envs], batch["obs"])
    with torch.no_grad():
        for ours, theirs in zip(answer(obs), agent.policy(obs), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-3)


@gpu
@EVERY
def test_an_agent_from_a_gpu_is_the_same_on_a_cpu(preset, tmp_path):
    agent, venv = on_gpu(preset)
    train(agent, venv, 2 * preset.batch)
    save_checkpoint(tmp_path / "gpu.pt", agent.state_dict())
    for twin in (on_gpu(preset, 1)[0], start(preset, 1)[0]):
        twin.load_state_dict(load_checkpoint(tmp_path / "gpu.pt"))
        ours, theirs = agent.policy.state_dict(), twin.policy.state_dict()
        assert all(torch.equal(ours[name].cpu(), theirs[name].cpu()) for name in ours)
        train(twin, Orchard(preset.num_envs, obs=preset.obs), preset.batch)


@gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs ENVGEN_TEST_DEVICE=cuda: the same bits are asked for")
@EVERY
def test_a_gpu_goes_on_with_the_same_bits(preset, tmp_path):
    agent, venv = on_gpu(preset)
    trainer = train(agent, venv, 3 * preset.batch)
    save_checkpoint(tmp_path / "gpu.pt", trainer.state_dict())
    twin = Trainer(*on_gpu(preset, 1))
    twin.load_state_dict(load_checkpoint(tmp_path / "gpu.pt"))
    for _ in range(3):
        trainer.rollout()
        twin.rollout()
    assert same(trainer.state_dict(), twin.state_dict())


@gpu
def test_numbers_that_break_down_are_found_on_a_gpu():
    "The weights are those from before."
    agent, venv = on_gpu(SMALL)
    train(agent, venv, 2 * SMALL.batch)
    before, step = copy.deepcopy(agent.policy.state_dict()), venv.step
    venv.step = lambda actions: (lambda obs, rewards, *rest: (obs, rewards * float("nan"), *rest))(*step(actions))
    with pytest.raises(NotFiniteError, match="rewards not finite"):
        train(agent, venv, SMALL.batch)
    assert same(before, agent.policy.state_dict())
