"""The four backbones: shapes, sizes, taps, inputs they refuse, and that they learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sscf.errors import ConfigError, InputError
from sscf.nn import BACKBONES, CNNTransformer, build, tap_output
from sscf.nn.cnn_bilstm import PairMax
from sscf.nn.lgsleepnet import _generalised_mean, _orthogonal, _positions


def conv(i: int, o: int, k: int, bias: bool = False) -> int:
    return i * o * k + o * bias


def norm(c: int) -> int:
    return 2 * c


def linear(i: int, o: int, bias: bool = True) -> int:
    return i * o + o * bias


def lstm(i: int, h: int) -> int:
    return 4 * h * (i + h + 2)


def encoder_layer(d: int, ff: int) -> int:
    return 4 * linear(d, d) + linear(d, ff) + linear(ff, d) + 2 * norm(d)


BILSTM = conv(32, 64, 5) + conv(64, 64, 5) + norm(32) + 2 * norm(64) + 2 * lstm(64, 48) + 2 * lstm(96, 48)
BRANCHES = [conv(2, 64, k, True) + conv(64, 128, i, True) + 2 * conv(128, 128, i, True) for k, i in ((50, 8), (400, 6))]

# name, input, classes, parameters by hand, feature size, tap shapes
TABLE = [
    ("cnn_bilstm", (2, 3, 128), 4, conv(3, 32, 9) + BILSTM + linear(96, 48) + linear(48, 4), 96,
     {"stage1": (2, 32, 64), "stage2": (2, 64, 32), "stage3": (2, 64, 16)}),
    ("cnn_bilstm", (2, 1, 1000), 3, conv(1, 32, 9) + BILSTM + linear(96, 48) + linear(48, 3), 96,
     {"stage1": (2, 32, 250), "stage2": (2, 64, 125), "stage3": (2, 64, 62)}),
    ("cnn_transformer", (1, 20, 2, 3000), 5,
     conv(2, 64, 49) + conv(64, 128, 9) + conv(128, 256, 9) + conv(256, 512, 9) + norm(64 + 128 + 256 + 512)
     + 20 * 512 + encoder_layer(512, 512) + norm(512) + linear(512, 5), 512,
     {"act1": (20, 64, 500), "pool1": (20, 64, 250)}),
    ("sleepeegnet", (1, 20, 2, 3000), 5,
     sum(BRANCHES) + 2 * lstm(3328, 128) + 2 * lstm(256, 128) + lstm(256 + 64, 256) + lstm(256, 256)
     + linear(256, 256, False) + linear(512, 64, False) + linear(64, 5), 64,
     {"small1": (20, 64, 500), "large1": (20, 64, 60)}),
    ("lgsleepnet", (1, 20, 2, 3000), 5,
     conv(2, 64, 50) + conv(64, 64, 16) + conv(64, 128, 8) + conv(128, 256, 4) + norm(64 + 64 + 128 + 256)
     + conv(2, 100, 100, True) + 100 + 2 * encoder_layer(100, 400) + linear(100, 256) + 2 * linear(256, 256)
     + linear(256, 128) + linear(128, 5), 128,
     {"local1": (20, 64, 1001), "local2": (20, 64, 502)}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape", "classes", "parameters", "dim", "taps"), TABLE)
def test_shapes_and_sizes(name, shape, classes, parameters, dim, taps):
    model = build(name, in_channels=shape[-2], length=shape[-1], n_classes=classes).eval()
    x = torch.randn(shape)
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert model.taps == tuple(taps)
    assert model.feature_dim == dim
    with torch.no_grad():
        z = model.features(x)
        assert z.shape == (*shape[:-2], dim)
        assert model.classify(z).shape == (*shape[:-2], classes)
        torch.testing.assert_close(model(x), model.classify(z))
        for tap, expected in taps.items():
            assert tap_output(model, tap, x).shape == expected
    assert model.last_linear.out_features == classes
    assert model.last_linear is [m for m in model.modules() if isinstance(m, nn.Linear)][-1]


def test_every_backbone_is_in_the_table():
    assert {row[0] for row in TABLE} == set(BACKBONES)


def test_learns(small):
    """Two kinds of windows, slow and fast waves: every backbone tells them apart before long."""
    model = small.model()
    y = small.labels() % 2
    t = torch.arange(small.shape[-1]) / small.shape[-1]
    waves = torch.stack([torch.sin(2 * np.pi * 4 * t), torch.sin(2 * np.pi * 15 * t)])
    x = waves[y].unsqueeze(-2) + 0.1 * small.input()
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    torch.manual_seed(0)
    for _ in range(150):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimiser.step()
        if loss < 0.05:
            break
    assert loss < 0.05


def test_every_parameter_gets_a_gradient(small):
    model = small.model()
    # A random direction: the sum of a normalised output would have no gradient.
    (model(small.input()) * torch.randn(small.classes)).sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


@pytest.mark.parametrize("name", ["cnn_bilstm", "cnn_transformer", "lgsleepnet"])
def test_takes_other_lengths_later(name):
    model = build(name, in_channels=1, length=400, n_classes=3).eval()
    lead = (2, 3) if model.sequence else (2,)
    for length in (model.min_length, 311, 700):
        assert model(torch.randn(*lead, 1, length)).shape == (*lead, 3)


@pytest.mark.parametrize(("channels", "length"), [(1, 401), (3, 997), (9, 512)])
@pytest.mark.parametrize("name", BACKBONES)
def test_any_channels_and_length(name, channels, length):
    model = build(name, in_channels=channels, length=length, n_classes=2)
    lead = (2, 2) if model.sequence else (2,)
    assert model(torch.randn(*lead, channels, length)).isfinite().all()


@pytest.mark.parametrize("name", ["cnn_transformer", "sleepeegnet", "lgsleepnet"])
@pytest.mark.parametrize("steps", [1, 7, 20])
def test_any_sequence_length(name, steps):
    model = build(name, in_channels=1, length=400, n_classes=3)
    assert model(torch.randn(2, steps, 1, 400)).shape == (2, steps, 3)


@pytest.mark.parametrize(("name", "context"), [("cnn_transformer", True), ("sleepeegnet", True), ("lgsleepnet", False)])
def test_context(name, context):
    """Does what is said of one epoch depend on another? In LG-SleepNet it must not, in the others it must."""
    model = build(name, in_channels=1, length=400, n_classes=3).eval()
    x = torch.randn(1, 4, 1, 400)
    changed = x.clone()
    changed[:, 3] = torch.randn(1, 400)
    with torch.no_grad():
        same = torch.allclose(model(x)[:, 0], model(changed)[:, 0], atol=1e-6)
    assert same is not context


def test_positions_are_learned():
    """Without its positions the Transformer could not tell the order of epochs."""
    model = build("cnn_transformer", in_channels=1, length=400, n_classes=3, width=8).eval()
    x = torch.randn(1, 4, 1, 400)
    with torch.no_grad():
        assert not torch.allclose(model(x).flip(1), model(x.flip(1)), atol=1e-5)
        model.get_parameter("positions").zero_()
        torch.testing.assert_close(model(x).flip(1), model(x.flip(1)))


@pytest.mark.parametrize("length", [2, 9, 64, 125])
def test_pair_max_is_max_pool(length):
    x = torch.randn(3, 4, length, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(3, 4, length // 2, dtype=torch.float64)
    results = []
    for pool in (PairMax(), nn.MaxPool1d(2)):
        y = pool(x)
        (gradient,) = torch.autograd.grad((y * direction).sum(), x)
        results.append((y, gradient))
    torch.testing.assert_close(results[0], results[1])


def test_relu_after_pool_is_relu_before_pool():
    stage = build("cnn_bilstm", in_channels=3, length=64, n_classes=2).at("stage1").eval()
    x = torch.randn(5, 3, 64)
    normed = stage.get_submodule("norm")(stage.get_submodule("conv")(x))
    expected = F.max_pool1d(F.relu(normed), 2)
    torch.testing.assert_close(stage(x), expected)


def test_lgsleepnet_parts_against_numpy():
    rng = np.random.default_rng(0)
    maps, vector = rng.normal(size=(2, 6, 5)), rng.normal(size=(2, 6))
    rest = _orthogonal(torch.tensor(maps), torch.tensor(vector)).numpy()
    along = np.einsum("bdl,bd->bl", maps, vector) / (vector**2).sum(1, keepdims=True)
    np.testing.assert_allclose(rest, maps - along[:, None] * vector[:, :, None])
    np.testing.assert_allclose(np.einsum("bdl,bd->bl", rest, vector), 0, atol=1e-12)
    expected = (np.maximum(maps, 1e-6) ** 3).mean(-1) ** (1 / 3)
    np.testing.assert_allclose(_generalised_mean(torch.tensor(maps)).numpy(), expected)
    positions = _positions(31, torch.zeros(1, 100)).numpy()
    np.testing.assert_allclose(positions[7, 4], np.sin(7 / 10000 ** (4 / 100)), rtol=1e-5)
    np.testing.assert_allclose(positions[7, 5], np.cos(7 / 10000 ** (4 / 100)), rtol=1e-5)


def test_lstm_steps_are_bounded():
    for length in (128, 500, 1000, 5000):
        model = build("cnn_bilstm", in_channels=1, length=length, n_classes=2)
        assert 8 <= tap_output(model, "stage3", torch.randn(2, 1, length)).shape[-1] <= 64


# What a user can get wrong


@pytest.mark.parametrize("name", BACKBONES)
def test_refuses_wrong_rank(name):
    model = build(name, in_channels=2, length=400, n_classes=3)
    wrong = (4, 2, 400) if model.sequence else (4, 1, 2, 400)
    axes = r"\(B, S, C, T\)" if model.sequence else r"\(B, C, T\)"
    with pytest.raises(InputError, match=rf"takes {axes}, not a tensor of shape \({', '.join(map(str, wrong))}\)"):
        model(torch.randn(wrong))


@pytest.mark.parametrize("name", BACKBONES)
def test_refuses_wrong_channels(name):
    model = build(name, in_channels=2, length=400, n_classes=3)
    lead = (1, 1) if model.sequence else (1,)
    with pytest.raises(InputError, match="built for 2 channels, the input has 5"):
        model(torch.randn(*lead, 5, 400))


@pytest.mark.parametrize("name", BACKBONES)
def test_refuses_short_windows(name):
    model = build(name, in_channels=1, length=400, n_classes=3)
    least = model.min_length
    lead = (1, 1) if model.sequence else (1,)
    with pytest.raises(InputError, match=f"at least {least} samples, these have {least - 1}"):
        model(torch.randn(*lead, 1, least - 1))
    with pytest.raises(InputError, match=r"at least .* these have 7"):
        build(name, in_channels=1, length=7, n_classes=3)


def test_refuses_other_length_where_it_is_fixed():
    model = build("sleepeegnet", in_channels=1, length=600, n_classes=3)
    with pytest.raises(InputError, match="built for windows of 600 samples, these have 900"):
        model(torch.randn(1, 1, 1, 900))


def test_refuses_too_long_sequences():
    model = build("cnn_transformer", in_channels=1, length=100, n_classes=3, max_sequence=4)
    assert isinstance(model, CNNTransformer)
    with pytest.raises(InputError, match=r"at most 4 .* these have 5"):
        model(torch.randn(1, 5, 1, 100))


def test_build_names_what_there_is():
    with pytest.raises(ConfigError, match=r"no backbone 'resnet'; there are: cnn_bilstm, cnn_transformer"):
        build("resnet", in_channels=1, length=100, n_classes=2)
    with pytest.raises(ConfigError, match="'cnn_bilstm' has no option 'depth'; it has: width, hidden, stride, dropout"):
        build("cnn_bilstm", in_channels=1, length=100, n_classes=2, depth=4)


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("cnn_bilstm", {"width": "wide"}, r"width = 'wide': must be an integer of at least 1"),
        ("cnn_bilstm", {"hidden": 0}, r"hidden = 0: must be an integer of at least 1"),
        ("cnn_bilstm", {"stride": -1}, r"stride = -1: must be an integer of at least 1"),
        ("cnn_bilstm", {"dropout": 1.5}, r"dropout = 1.5: must be a number from 0 to below 1"),
        ("cnn_transformer", {"max_sequence": 0}, r"max_sequence = 0: must be an integer of at least 1"),
        ("cnn_transformer", {"heads": 7}, r"cannot be built: embed_dim must be divisible by num_heads"),
    ],
)
def test_build_refuses_options_that_cannot_be(name: str, option: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"backbone '{name}'.*{message}"):
        build(name, in_channels=1, length=3000, n_classes=2, **option)
