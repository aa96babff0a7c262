"""Inserting at a tap, reading a tap, and wrapping a stranger's encoder."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sscf
from sscf.errors import ConfigError, InputError
from sscf.nn import Backbone, Tapped, build, find, insert, tap_output, wrap


class Affine(nn.Module):
    """x -> scale * x + shift; not commutative, so the order of two of them shows."""

    def __init__(self, scale: float, shift: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))
        self.shift = nn.Parameter(torch.tensor(shift))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x + self.shift


class NeverRun(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pytest.fail("this should not run")


class Stranger(nn.Module):
    """A residual encoder by somebody else."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv1d(2, 8, 7, padding=3)
        self.layers = nn.ModuleDict({"one": nn.Conv1d(8, 8, 3, padding=1), "two": nn.Conv1d(8, 8, 3, padding=1)})
        self.fc = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        x = x + F.relu(self.layers["one"](x))
        x = x + F.relu(self.layers["two"](x))
        return self.fc(x.mean(-1))


def calibration(model: nn.Module, tap: str, x: Tensor, k: int = 2) -> sscf.SpectralCalibration:
    with torch.no_grad():
        power = sscf.welch_power(tap_output(model, tap, x), frame=8, hop=4, center=True)
    return sscf.SpectralCalibration(sscf.Anchors.fit(power, k=k, frame=8, hop=4))


def reference(model: nn.Module, module: nn.Module, x: Tensor) -> Tensor:
    """What a forward hook on a full pass sees."""
    seen: list[Tensor] = []
    hook = module.register_forward_hook(lambda _m, _i, output: seen.append(output))
    model(x)
    hook.remove()
    return seen[0]


def test_tap_output_is_what_a_hook_sees(small):
    model, x = small.model().eval(), small.input()
    for tap in model.taps:
        expected = reference(model, model.get_submodule(tap), x)
        assert torch.equal(tap_output(model, tap, x), expected)
        assert not model.get_submodule(tap)._forward_hooks


def test_tap_output_does_not_run_the_rest():
    model = build("cnn_bilstm", in_channels=3, length=64, n_classes=2)
    model.stage2 = NeverRun()
    assert tap_output(model, "stage1", torch.randn(2, 3, 64)).shape == (2, 32, 32)


def test_tap_output_before_and_after_what_is_inserted(small):
    model, x = small.model().eval(), small.input()
    tap = model.taps[0]
    before = tap_output(model, tap, x)
    insert(model, tap, Affine(2.0, 1.0))
    insert(model, tap, Affine(3.0, 0.0))
    assert torch.equal(tap_output(model, tap, x), before)
    torch.testing.assert_close(tap_output(model, tap, x, inserted=True), 3 * (2 * before + 1))


def test_insert_changes_the_features(small):
    for tap in small.model().taps:
        model, x = small.model().eval(), small.input()
        plain = model(x)
        assert insert(model, tap, nn.Identity()) is model
        assert torch.equal(model(x), plain)
        insert(model, tap, Affine(0.5, 1.0))
        assert not torch.allclose(model(x), plain)
        assert isinstance(model.at(tap), Tapped)


def test_calibration_trains_at_every_tap(small):
    for tap in small.model().taps:
        model, x, y = small.model(), small.input(), small.labels()
        layer = calibration(model, tap, x)
        insert(model, tap, layer)
        assert find(model, sscf.SpectralCalibration) == [layer]
        shallow = next(p for p in model.parameters() if p.dim() > 1)
        before = copy.deepcopy(dict(model.named_parameters()))
        optimiser = torch.optim.Adam(model.parameters(), 3e-3)
        torch.manual_seed(0)
        losses = []
        for _ in range(80):
            optimiser.zero_grad()
            loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
            loss.backward()
            assert shallow.grad is not None
            assert shallow.grad.abs().sum() > 0
            optimiser.step()
            losses.append(loss.item())
            if losses[-1] < 0.8 * losses[0]:
                break
        assert losses[-1] < 0.8 * losses[0], tap
        assert all(not torch.equal(p, before[name]) for name, p in model.named_parameters())
        assert torch.equal(layer.power, layer.anchors.power)


def test_calibrated_map_reaches_the_next_layer(small):
    model, x = small.model().eval(), small.input()
    tap = model.taps[0]
    layer = calibration(model, tap, x)
    expected = layer(tap_output(model, tap, x))
    insert(model, tap, layer)
    torch.testing.assert_close(tap_output(model, tap, x, inserted=True), expected)
    assert expected.mean(-1).abs().max() < 1e-4  # the calibration removes the mean


def test_copies_and_states(small):
    model, x = small.model(), small.input()
    insert(model, model.taps[0], Affine(0.5, 1.0))
    model(x)  # moves the running statistics of the norms
    model.eval()
    twin = copy.deepcopy(model)
    assert torch.equal(twin(x), model(x))
    with torch.no_grad():
        find(twin, Affine)[0].scale.fill_(9.0)
    assert not torch.equal(twin(x), model(x))

    other = insert(small.model(seed=5), model.taps[0], Affine(0.0, 0.0)).eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))


def test_names_inside_a_tap_are_still_found():
    model = Stranger()
    insert(model, "layers", nn.Identity())
    insert(model, "layers.one", Affine(1.0, 0.0))
    assert isinstance(model.get_submodule("layers"), Tapped)
    assert isinstance(model.get_submodule("layers.inner.one"), Tapped)


def test_unknown_tap_lists_the_taps(small):
    model = small.model()
    for call in (
        model.at,
        lambda tap: insert(model, tap, nn.Identity()),
        lambda tap: tap_output(model, tap, small.input()),
    ):
        with pytest.raises(ConfigError, match=f"no tap 'conv9'; its taps are: {', '.join(model.taps)}"):
            call("conv9")
    with pytest.raises(ConfigError, match=r"no submodule 'layer9'; it has: stem, layers, layers\.one, layers\.two, fc"):
        insert(Stranger(), "layer9", nn.Identity())


def test_a_tap_must_give_maps():
    model = insert(Stranger(), "fc", nn.Identity())
    with pytest.raises(InputError, match=r"\(B, C, L\), this one gives shape \(4, 3\)"):
        model(torch.randn(4, 2, 30))
    with pytest.raises(InputError, match=r"'fc' gives \(4, 3\)"):
        tap_output(Stranger(), "fc", torch.randn(4, 2, 30))


def test_a_tap_that_is_never_reached():
    model = Stranger()
    model.unused = nn.Conv1d(1, 1, 1)
    with pytest.raises(ConfigError, match="never came to 'unused'"):
        tap_output(model, "unused", torch.randn(4, 2, 30))
    assert not model.unused._forward_hooks


# Wrapping


@pytest.mark.parametrize("classifier", ["fc", None])
def test_wrap_keeps_the_function(classifier):
    stranger, x = Stranger().eval(), torch.randn(4, 2, 30)
    model = wrap(stranger, tap="layers.one", classifier=classifier).eval()
    assert isinstance(model, Backbone)
    assert (model.taps, model.feature_dim) == (("layers.one",), 8)
    torch.testing.assert_close(model(x), stranger(x))
    assert model.features(x).shape == (4, 8)
    assert model.last_linear.out_features == 3
    assert isinstance(stranger.fc, nn.Linear)  # the one given is left alone
    assert torch.equal(tap_output(model, "layers.one", x), reference(stranger, stranger.layers["one"], x))


@pytest.mark.parametrize("tap", ["stem", "layers.one", "layers.two"])
def test_wrapped_encoder_is_calibrated_and_trains(tap):
    torch.manual_seed(0)
    x, y = torch.randn(12, 2, 40), torch.arange(12) % 3
    model = wrap(Stranger(), tap=["stem", "layers.one", "layers.two"])
    insert(model, tap, calibration(model, tap, x))
    optimiser = torch.optim.Adam(model.parameters(), 2e-2)
    losses = []
    for _ in range(40):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    clone = copy.deepcopy(model)
    assert torch.equal(clone.eval()(x), model.eval()(x))


def test_wrap_with_a_new_head():
    encoder = nn.Sequential(nn.Conv1d(2, 6, 5), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten())
    head = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 4))
    model, x = wrap(encoder, tap="1", classifier=head), torch.randn(3, 2, 20)
    torch.testing.assert_close(model(x), head(encoder(x)))
    assert (model.feature_dim, model.last_linear.out_features) == (6, 4)


def test_wrap_says_what_is_missing():
    with pytest.raises(ConfigError, match="no submodule 'layer1'; it has: stem"):
        wrap(Stranger())
    with pytest.raises(ConfigError, match="no submodule 'head'"):
        wrap(Stranger(), tap="stem", classifier="head")
    with pytest.raises(ConfigError, match=r"has no nn\.Linear"):
        wrap(nn.Sequential(nn.Conv1d(2, 6, 5)), tap="0")
    with pytest.raises(ConfigError, match=r"has no nn\.Linear"):
        wrap(Stranger(), tap="stem", classifier=nn.Identity())
