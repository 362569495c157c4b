"""Every preset's network: what it reads, where its weights come from, and that all of it learns."""

import random
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gymnasium import spaces
from numba.core import caching
from states import same

from envgen_nb.agent import attention, fused
from envgen_nb.agent.attention import Attend
from envgen_nb.agent.networks import Policy, as_tensors, initialise
from envgen_nb.agent.on_policy import PPO
from envgen_nb.agent.presets import PRESETS, Network, Preset, encoders, get_preset
from envgen_nb.agent.train import train
from envgen_nb.cycle.create import trust
from envgen_nb.cycle.run import run_cycles
from envgen_nb.cycle.runs import load_agent, open_run
from envgen_nb.cycle.settings import SettingsError, changed_settings, checked_settings, make_settings
from envgen_nb.game.examples import Orchard

PIXELS = spaces.Box(0, 255, (64, 64, 3), np.uint8)
SYMBOLS = spaces.Dict({"items": spaces.Box(0, 9, (16,), np.uint8), "a.view": spaces.Box(0, 12, (9, 7), np.uint8),
                       "light": spaces.Box(0, 1, (), np.float32), "keys": spaces.Box(0, 14, (9, 7), np.uint8)})
VECTOR = spaces.Box(-1, 1, (24,), np.float32)

NATURE = get_preset("laptop", encoder="nature", channels=(32, 64, 64), hidden=(512,))
ALL = PRESETS | {"nature": NATURE}


def space_of(name):
    return {"symbols": SYMBOLS, "pixels": PIXELS, "vector": VECTOR}[ALL[name].obs]


def a_batch(space, size, seed=0):
    space.seed(seed)
    batch = [space.sample() for _ in range(size)]
    if isinstance(space, spaces.Dict):
        return {name: np.stack([b[name] for b in batch]) for name in space}
    return np.stack(batch)


def make(name, seed=0):
    return Policy(ALL[name].network, space_of(name), spaces.Discrete(17), torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", ALL)
def test_every_weight_learns(name):
    policy = make(name)
    logits, values = policy(as_tensors(a_batch(space_of(name), 4)))
    (logits.square().sum() + values.square().sum()).backward()
    for key, weight in policy.named_parameters():
        assert weight.isfinite().all() and weight.grad.abs().sum() > 0, key


@pytest.mark.parametrize("name", ALL)
def test_an_encoder_can_stand_before_other_heads(name):
    "`envgen bench train` gives it to another trainer's."
    encoder = encoders.find(ALL[name].network.encoder)(space_of(name), ALL[name].network)
    initialise(encoder, torch.Generator().manual_seed(0))
    features = encoder(as_tensors(a_batch(space_of(name), 4)), torch.float32)
    assert features.shape == (4, ALL[name].network.hidden[-1]) and features.isfinite().all()


@pytest.mark.parametrize("name", ALL)
def test_no_global_generator_is_used(name):
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    first = make(name).state_dict()
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    torch.manual_seed(2), np.random.seed(2), random.seed(2)
    assert all(torch.equal(weight, first[key]) for key, weight in make(name).state_dict().items())
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    assert random.getstate() == states[0] and (np.random.get_state()[1] == states[1]).all()
    assert torch.equal(torch.get_rng_state(), states[2])


def test_nothing_is_left_unfilled():
    "Memory that nobody filled would differ between two constructions, or hold absurd numbers."
    for name in ALL:
        for key, weight in make(name).state_dict().items():
            assert weight.isfinite().all() and weight.abs().max() < 10, (name, key)
        assert all(b.isfinite().all() for b in make(name).buffers())


def test_activations_keep_their_size():
    "Fan-in scaling: features of a first policy neither vanish nor explode."
    for name in ALL:
        features = make(name).encoder(as_tensors(a_batch(space_of(name), 16)), torch.float32)
        assert 0.05 < features.square().mean().sqrt() < 20, name


def test_order_of_the_dictionary_does_not_matter():
    batch = as_tensors(a_batch(SYMBOLS, 3))
    turned = spaces.Dict({name: SYMBOLS[name] for name in reversed(list(SYMBOLS))})
    policy = Policy(PRESETS["symbols"].network, turned, spaces.Discrete(17), torch.Generator().manual_seed(0))
    expected = make("symbols")(batch)[0]
    assert torch.equal(policy({name: batch[name] for name in reversed(list(batch))})[0], expected)


def test_only_grids_or_only_vectors():
    for names in (["keys"], ["items"], ["light"]):
        space = spaces.Dict({name: SYMBOLS[name] for name in names})
        policy = Policy(PRESETS["symbols"].network, space, spaces.Discrete(3), torch.Generator().manual_seed(0))
        assert policy(as_tensors(a_batch(space, 2)))[0].shape == (2, 3)


@pytest.mark.parametrize("name, space", [
    ("paper", SYMBOLS), ("symbols", PIXELS), ("symbols", spaces.Dict({})),
    ("paper", spaces.Box(0, 1, (64, 64, 3), np.float32)), ("laptop", spaces.Box(0, 255, (64, 64, 1), np.uint8)),
    ("laptop", spaces.Box(0, 255, (6, 20, 3), np.uint8)), ("symbols", spaces.Discrete(4)),
    ("symbols", spaces.Dict({"volume": spaces.Box(0, 3, (3, 3, 3), np.uint8)})),
    ("symbols", spaces.Dict({"inner": spaces.Dict({"view": spaces.Box(0, 3, (3, 3), np.uint8)})})),
])
def test_unreadable_spaces_are_refused(name, space):
    with pytest.raises(ValueError, match="encoder|symbols|pictures"):
        Policy(get_preset(name).network, space, spaces.Discrete(3), torch.Generator())


def test_pictures_too_small_for_convolutions_are_refused():
    with pytest.raises(ValueError, match="pictures"):
        Policy(NATURE.network, spaces.Box(0, 255, (20, 20, 3), np.uint8), spaces.Discrete(3), torch.Generator())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_forward_and_backward_are_torchs_own(dtype):
    "Beside scaled_dot_product_attention with the bias as a mask, in the same type."
    g = torch.Generator().manual_seed(0)
    cells, queries, bias, weight = (torch.randn(*shape, generator=g) for shape in
                                    ((7, 63, 16), (7, 8, 16), (8, 63), (7, 8, 16)))
    cells, queries, bias = (t.to(kind).requires_grad_() for t, kind in
                            ((cells, dtype), (queries, dtype), (bias, torch.float32)))
    _, seen = Attend.apply(cells, queries, bias)
    plain = F.scaled_dot_product_attention(queries.float(), cells.float(), cells.float(), attn_mask=bias, scale=1.0)
    close = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.03}
    torch.testing.assert_close(seen.float(), plain, **close)
    ours, theirs = (torch.autograd.grad((out.float() * weight).sum(), (cells, queries, bias)) for out in (seen, plain))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.float(), other.float(), rtol=close["rtol"], atol=20 * close["atol"])


def answers_and_gradients(policy, batch, dtype):
    features = policy.encoder(batch, dtype).float()
    weights = torch.linspace(-1, 1, features.numel()).view_as(features)
    return [features.detach(), *torch.autograd.grad((features * weights).mean(), list(policy.encoder.parameters()))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 40])
def test_the_compiled_kernel_is_what_torch_computes_step_by_step(dtype, size, monkeypatch):
    policy, batch = make("symbols"), as_tensors(a_batch(SYMBOLS, size))
    compiled = answers_and_gradients(policy, batch, dtype)
    monkeypatch.setattr(attention, "LANES", 0)                          # no cell has so many numbers
    steps, judge = (answers_and_gradients(policy, batch, kind) for kind in (dtype, torch.float32))
    for ours, theirs, true in zip(compiled, steps, judge, strict=True):
        error, error_of_steps = (float((found - true).norm() / (true.norm() + 1e-9)) for found in (ours, theirs))
        assert error < 1e-5 if dtype == torch.float32 else error < max(0.01, 1.5 * error_of_steps)


def test_sizes_that_the_kernel_is_not_made_for_are_computed_in_torch():
    for overrides in ({"embedding": 24}, {"heads": 6}):
        policy = Policy(get_preset("symbols", **overrides).network, SYMBOLS, spaces.Discrete(17), torch.Generator())
        logits, values = policy(as_tensors(a_batch(SYMBOLS, 4)))
        (logits.square().sum() + values.square().sum()).backward()
        assert all(weight.grad.abs().sum() > 0 for weight in policy.parameters())


def test_the_kernel_is_compiled_anew_where_there_is_no_folder_for_its_code(monkeypatch):
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    assert fused._compiled(np_sum)(np.arange(4.0)) == 6


def np_sum(xs):
    total = 0.0
    for x in xs:
        total += x
    return total


def test_copies_in_half_the_bits_are_never_old():
    "Adam's fused step changes weights without raising torch's version counters: copies must not rely on them."
    policy, batch = make("symbols"), as_tensors(a_batch(SYMBOLS, 4))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.1, fused=True)
    before = policy(batch)[0]
    before.square().sum().backward()
    optimizer.step()
    with torch.inference_mode():
        assert torch.equal(policy(batch)[0], make_copy(policy)(batch)[0]) and not torch.equal(policy(batch)[0], before)


def make_copy(policy):
    twin = make("symbols", seed=5)
    twin.load_state_dict(policy.state_dict())
    return twin


@pytest.mark.parametrize("overrides", [
    {"learning_rate": "fast"}, {"num_envs": 0}, {"num_envs": 8.0}, {"clip": -0.2}, {"gae_lambda": 1.1},
    {"encoder": "transformer"}, {"encoder": "squares"}, {"heads": 0}, {"embedding": 1},
    {"channels": (8,)}, {"microbatches": 0}, {"hidden": (256, 0)}, {"hidden": "256"}, {"layer_norm": 1}, {"speed": 3},
])
def test_wrong_settings_are_refused(overrides):
    with pytest.raises(ValueError, match="preset"):
        get_preset("symbols", **overrides)


GUIDE = (Path(__file__).parent.parent / "docs" / "guides" / "network.md").read_text()
WRONG = '''
class Plain(nn.Module):
    def __init__(self, space, network):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(25, network.hidden[-1]))

    def forward(self, obs, dtype):
        return self.layers(obs["grid"].float())


class Narrow(Plain):
    def initialise(self, generator):
        nn.init.orthogonal_(self.layers[1].weight, generator=generator)
        nn.init.zeros_(self.layers[1].bias)

    def forward(self, obs, dtype):
        return self.layers(obs["grid"].float())[:, :7]


class Half(Plain):
    def initialise(self, generator):
        nn.init.orthogonal_(self.layers[1].weight, generator=generator)
'''
OWN = dict(num_envs=8, rollout_steps=16, minibatches=2, hidden=(32, 24))


@pytest.fixture
def my_kit(tmp_path, monkeypatch):
    "The guide's encoders, and some that forget their weights, in a file `my_kit.py`."
    (tmp_path / "my_kit.py").write_text("\n".join(re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)) + WRONG)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(encoders, "written", set())
    yield
    sys.modules.pop("my_kit", None)


def learned(encoder, seed=0, **changes):
    preset, venv = get_preset("symbols", encoder=encoder, **OWN | changes), Orchard(8)
    assert preset.obs == "symbols"
    learner = PPO(preset, venv.single_observation_space, venv.single_action_space, seed)
    learner.speed_up(2)
    return train(learner, venv, 2 * preset.batch).learner


@pytest.mark.parametrize("name", ["my_kit:Flat", "my_kit:Small"])
def test_an_encoder_of_ones_own_learns_and_follows_from_the_seed(name, my_kit):
    states = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        states.append(learned(name).state_dict())
    assert same(*states) and not same(states[0]["policy"], learned(name, seed=1).state_dict()["policy"])
    assert states[0]["preset"]["network"]["encoder"] == name


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("name, which", [("my_kit:Plain", r"encoder\.layers\.1\.weight \(of a Linear\)"),
                                         ("my_kit:Half", r"encoder\.layers\.1\.bias \(of a Linear\)")])
def test_weights_that_were_not_initialised_are_refused_by_name(name, which, bf16, my_kit):
    with pytest.raises(ValueError, match=f"network: {which} was not initialised.*initialise"):
        learned(name, bf16=bf16)


def test_an_encoder_of_another_width_is_named(my_kit):
    with pytest.raises(ValueError, match=r"encoder my_kit:Narrow returns features of shape \(8, 7\).*\(B, 24\)"):
        learned("my_kit:Narrow")


def test_a_run_with_an_encoder_of_ones_own(my_kit, tmp_path):
    "Whole cycles, and the agent that came of it; only a person's word imports the class."
    options = {name: list(value) if isinstance(value, tuple) else value for name, value in OWN.items()}
    run = open_run(tmp_path / "run", preset_options=options | {"encoder": "my_kit:Flat"}, designer="fixed",
                   num_cycles=1, num_worlds=2, cycle_steps=512, final_steps=0, evaluation_runs=1,
                   evaluation_episodes=2, threads=1)
    for _ in run_cycles(run.path):
        pass
    assert type(load_agent(run).policy.encoder).__name__ == "Flat"
    encoders.written.clear()                                # another process that has only been given the folder
    settings = checked_settings(run.settings.model_dump())
    assert settings.agent_preset.obs == "symbols"
    for use in (lambda: load_agent(run), lambda: changed_settings(settings, seed=4),
                lambda: changed_settings(settings, preset_options=settings.preset_options | {"gamma": 0.9})):
        with pytest.raises(ValueError, match="the encoder my_kit:Flat is a class that only the run's folder names"):
            use()
    trust(run.path)
    assert type(load_agent(run).policy.encoder).__name__ == "Flat"


def test_an_encoder_that_cannot_be_is_refused(my_kit):
    for encoder, said in [("my_kit:Other", "the encoder my_kit:Other cannot be imported"),
                          ("circles", "encoder must be one of"), ("my_kit:torch", "my_kit:torch is no class")]:
        with pytest.raises(SettingsError, match=said):
            make_settings(preset_options={"encoder": encoder})
    with pytest.raises(ValueError, match="takes the place of another one"):
        _ = Preset("mine", Network("my_kit:Flat", hidden=(8,)), get_preset("symbols").algorithm).obs
