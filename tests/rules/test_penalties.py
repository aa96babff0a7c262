"""Every penalty against plain NumPy, and its gradient against finite differences."""

from __future__ import annotations

import copy
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sscf.nn import wrap
from sscf.rules import build_rule
from sscf.rules.base import Batch, CrossEntropy, moments
from sscf.rules.cdan import entropy_weights, multilinear_map
from sscf.rules.coral import coral_penalty, deep_coral_penalty
from sscf.rules.dann import ramp, reverse_gradient
from sscf.rules.fda import mix_amplitudes
from sscf.rules.fishr import fishr_penalty, gradient_variance
from sscf.rules.groupdro import groupdro_weights
from sscf.rules.irm import irm_penalty
from sscf.rules.mixstyle import StyleMixer, mix_style
from sscf.rules.mixup import partners
from sscf.rules.mmd import GAMMAS, mmd_penalty
from sscf.rules.sleepdg import epoch_alignment, relations, sequence_alignment
from sscf.rules.vrex import vrex_penalty

PENALTIES = {
    "coral": coral_penalty,
    "deep-coral": deep_coral_penalty,
    "mmd": mmd_penalty,
    "sleepdg-epoch": epoch_alignment,
}


def domains(sizes: tuple[int, ...], d: int = 4, seed: int = 0) -> list[Tensor]:
    rng = np.random.default_rng(seed)
    return [torch.tensor((1 + k) * rng.normal(size=(n, d)) + k) for k, n in enumerate(sizes)]


def numpy_penalty(name: str, features: list[np.ndarray]) -> float:
    """The textbook double loop over pairs."""
    values = []
    for a, b in combinations(features, 2):
        mean = ((a.mean(0) - b.mean(0)) ** 2).mean()
        difference = np.cov(a.T) - np.cov(b.T)
        if name == "deep-coral":
            values.append((difference**2).sum() / (4 * a.shape[1] ** 2))
        elif name == "mmd":

            def kernel(p: np.ndarray, q: np.ndarray) -> float:
                square = ((p[:, None] - q[None]) ** 2).sum(-1)
                return float(sum(np.exp(-g * square) for g in GAMMAS).mean())

            values.append(kernel(a, a) + kernel(b, b) - 2 * kernel(a, b))
        else:
            values.append(mean + (difference**2).mean())
    return float(np.sum(values) if name == "sleepdg-epoch" else np.mean(values))


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("sizes", [(6, 6), (6, 6, 6), (5, 7, 3), (4,) * 10])
def test_pair_penalties_equal_numpy(name: str, sizes: tuple[int, ...]) -> None:
    rows = domains(sizes)
    expected = numpy_penalty(name, [r.numpy() for r in rows])
    assert PENALTIES[name](rows).item() == pytest.approx(expected, rel=1e-10)
    if len(set(sizes)) == 1:  # the batched form
        assert PENALTIES[name](torch.stack(rows)).item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("name", PENALTIES)
def test_pair_penalties_vanish_for_identical_domains(name: str) -> None:
    rows = domains((8,))[0]
    assert PENALTIES[name]([rows, rows.flip(0), rows]).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("sizes", [(4, 4, 4), (3, 5)])
def test_pair_penalties_have_the_numerical_gradient(name: str, sizes: tuple[int, ...]) -> None:
    rows = [r.requires_grad_() for r in domains(sizes, d=3)]
    assert torch.autograd.gradcheck(lambda *parts: PENALTIES[name](list(parts)), rows)


def test_a_lone_row_has_no_covariance() -> None:
    mean, covariance = moments([torch.ones(1, 3), torch.zeros(4, 3)])
    assert torch.equal(mean, torch.tensor([[1.0] * 3, [0.0] * 3]))
    assert torch.equal(covariance, torch.zeros(2, 3, 3))
    assert coral_penalty([torch.ones(1, 3), torch.zeros(4, 3)]).item() == pytest.approx(1)


def test_irm_is_the_product_of_the_gradients_of_the_two_halves() -> None:
    logits = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    y = torch.randint(0, 3, (9,))
    z, p = logits.detach().numpy(), logits.detach().softmax(1).numpy()
    slope = ((p - np.eye(3)[y.numpy()]) * z).sum(1)  # d/ds of the cross-entropy of s*z at s = 1
    penalty = irm_penalty(logits, y, CrossEntropy())
    assert penalty.item() == pytest.approx(slope[::2].mean() * slope[1::2].mean(), rel=1e-10)
    assert torch.autograd.gradcheck(lambda v: irm_penalty(v, y, CrossEntropy()), logits)


def test_irm_vanishes_where_no_scale_is_better() -> None:
    # Logits that are the log-odds of the labels' true frequencies: scale 1 is optimal on either half.
    y = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1])
    logits = torch.log(torch.tensor([0.75, 0.25])).expand(8, 2)
    assert irm_penalty(logits, y, CrossEntropy()).item() == pytest.approx(0, abs=1e-12)


def test_vrex_is_the_population_variance() -> None:
    risks = torch.tensor([0.2, 0.9, 0.4], dtype=torch.float64, requires_grad=True)
    assert vrex_penalty(risks).item() == pytest.approx(np.var([0.2, 0.9, 0.4]))
    assert torch.autograd.gradcheck(vrex_penalty, risks)
    assert vrex_penalty(torch.full((4,), 0.7)).item() == 0


def test_fishr_is_the_variance_of_per_sample_gradients() -> None:
    layer = torch.nn.Linear(4, 3).double()
    inputs, labels = domains((5, 7)), [torch.randint(0, 3, (n,)) for n in (5, 7)]
    expected, gradients = [], []
    for h, y in zip(inputs, labels, strict=True):
        rows = []
        for i in range(len(h)):  # one backward pass per sample
            loss = F.cross_entropy(layer(h[i : i + 1]), y[i : i + 1])
            weight, bias = torch.autograd.grad(loss, [layer.weight, layer.bias])
            rows.append(torch.cat([weight, bias[:, None]], 1).flatten().numpy())
        expected.append(np.var(rows, axis=0))
        gradients.append((layer(h).softmax(1) - F.one_hot(y, 3)).detach())
    variances = gradient_variance(inputs, gradients)
    np.testing.assert_allclose(variances.numpy(), expected, rtol=1e-10)
    centre = np.mean(expected, axis=0)
    assert fishr_penalty(variances).item() == pytest.approx(np.mean([((v - centre) ** 2).mean() for v in expected]))
    assert fishr_penalty(variances[:1].expand(3, -1)).item() == pytest.approx(0, abs=1e-20)
    h, g = (torch.randn(2, 4, n, dtype=torch.float64, requires_grad=True) for n in (3, 2))
    assert torch.autograd.gradcheck(lambda a, b: fishr_penalty(gradient_variance(a, b)), (h, g))


def test_fishr_penalises_an_exponential_average(make_model, make_batch) -> None:
    """Two steps of the rule against the averages by hand, with per-sample gradients from autograd."""
    model, batch = make_model().eval(), make_batch((6, 6))
    rule: Any = build_rule("fishr", {"warmup": 0}, n_domains=2, n_classes=3, feature_dim=model.feature_dim)
    rule.prepare(model, "stage1")
    layer, rows = model.last_linear, []
    for i in range(12):
        loss = F.cross_entropy(model(batch.x[i : i + 1]), batch.y[i : i + 1])
        weight, bias = torch.autograd.grad(loss, [layer.weight, layer.bias])
        rows.append(torch.cat([weight, bias[:, None]], 1).flatten().double().numpy())
    fresh = np.var(np.reshape(rows, (2, 6, -1)), axis=1)
    average = np.zeros_like(fresh)
    for step in range(2):
        average = 0.95 * average + 0.05 * fresh
        rule.loss(model, batch, step)
        scaled = average / 0.05
        assert rule.log["penalty"] == pytest.approx(((scaled - scaled.mean(0)) ** 2).mean(), rel=1e-3)


def test_groupdro_raises_the_worst() -> None:
    weights, risks = np.array([0.2, 0.3, 0.5]), np.array([1.0, 2.0, 0.5])
    expected = weights * np.exp(0.1 * risks) / (weights * np.exp(0.1 * risks)).sum()
    np.testing.assert_allclose(groupdro_weights(torch.tensor(weights), torch.tensor(risks), 0.1), expected)
    same = groupdro_weights(torch.full((4,), 0.25), torch.full((4,), 3.0), 0.1)
    np.testing.assert_allclose(same, 0.25, rtol=1e-6)


def test_groupdro_keeps_the_weight_of_an_absent_domain(make_model, make_batch) -> None:
    full = make_batch((4, 4, 4))
    here = full.domain != 1
    batch = Batch(full.x[here], full.y[here], full.domain[here], 3)
    rule: Any = build_rule("groupdro", {"eta": 1.0}, n_domains=3, n_classes=3, feature_dim=8)
    rule.loss(make_model(), batch, 0)
    weights = rule.state_dict()["weights"]
    assert weights[1].item() == pytest.approx(1 / 3)
    assert weights.sum().item() == pytest.approx(1)
    assert weights[0] != weights[2]


def test_gradient_reversal_and_its_ramp() -> None:
    x = torch.randn(5, requires_grad=True)
    (gradient,) = torch.autograd.grad((reverse_gradient(x, 0.3) ** 2).sum(), x)
    np.testing.assert_allclose(gradient, -0.3 * 2 * x.detach(), rtol=1e-6)
    assert ramp(0, 100) == 0
    assert ramp(50, 100) == pytest.approx(2 / (1 + np.exp(-5)) - 1)
    assert ramp(0, 0) == 1


@pytest.mark.parametrize("name", ["dann", "cdan", "codats"])
def test_adversary_learns_while_the_encoder_unlearns(name: str, make_model, make_batch) -> None:
    """The domain classifier's gradient lowers the domain loss, the encoder's raises it."""
    model, batch = make_model(), make_batch((8, 8))
    params = {"warmup": 0, "dropout": 0.0}

    def gradients(weight: float) -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        rule: Any = build_rule(name, {**params, "weight": weight}, n_domains=2, n_classes=3, feature_dim=8)
        loss = rule.loss(model, batch, 0)
        parameters = [model.stage1.conv.weight, rule.domain_classifier[0].weight]
        return torch.autograd.grad(loss, parameters)

    risk = torch.autograd.grad(F.cross_entropy(model(batch.x), batch.y), model.stage1.conv.weight)[0]
    none, once, twice = gradients(0.0), gradients(1.0), gradients(2.0)
    torch.testing.assert_close(none[0], risk)  # weight 0: the encoder does not feel the adversary
    torch.testing.assert_close(once[1], none[1])  # the adversary learns all the same
    torch.testing.assert_close(twice[0] - risk, 2 * (once[0] - risk), rtol=1e-3, atol=1e-6)
    # and against plain autograd: without reversal the encoder's gradient of the domain loss is the opposite
    torch.manual_seed(0)
    rule: Any = build_rule(name, params, n_domains=2, n_classes=3, feature_dim=8)
    z = model.features(batch.x)
    seen = z if name != "cdan" else multilinear_map(z, model.classify(z).detach().softmax(1))
    plain = torch.autograd.grad(F.cross_entropy(rule.domain_classifier(seen), batch.domain), model.stage1.conv.weight)
    torch.testing.assert_close(once[0] - risk, -plain[0], rtol=1e-3, atol=1e-6)


def test_blind_adversary_costs_log_of_the_number_of_domains(make_model, make_batch) -> None:
    rule: Any = build_rule("dann", n_domains=4, n_classes=3, feature_dim=8)
    torch.nn.init.zeros_(rule.domain_classifier[-1].weight)
    torch.nn.init.zeros_(rule.domain_classifier[-1].bias)
    rule.loss(make_model(), make_batch((3, 3, 3, 3)), 0)
    assert rule.log["penalty"] == pytest.approx(np.log(4), rel=1e-6)


def test_cdan_sees_the_outer_product() -> None:
    z, p = torch.randn(6, 4), torch.randn(6, 3).softmax(1)
    expected = np.stack([np.outer(b, a).ravel() for a, b in zip(z.numpy(), p.numpy(), strict=True)])
    np.testing.assert_allclose(multilinear_map(z, p), expected, rtol=1e-6)
    weights = 1 + np.exp((p * p.log()).sum(1).numpy())
    np.testing.assert_allclose(entropy_weights(p), weights / weights.mean(), rtol=1e-5)


def test_relations_are_pearson_correlations() -> None:
    x = torch.randn(3, 5, 7, dtype=torch.float64)
    np.testing.assert_allclose(relations(x), np.mean([np.corrcoef(s) for s in x.numpy()], axis=0), rtol=1e-9)
    others = [x, torch.randn(4, 5, 7, dtype=torch.float64), torch.randn(2, 5, 7, dtype=torch.float64)]
    matrices = [np.mean([np.corrcoef(s) for s in part.numpy()], axis=0) for part in others]
    expected = np.mean([((a - b) ** 2).sum() for a, b in combinations(matrices, 2)])
    assert sequence_alignment(others).item() == pytest.approx(expected, rel=1e-9)
    assert sequence_alignment([x, x]).item() == pytest.approx(0, abs=1e-12)
    assert torch.autograd.gradcheck(lambda a: sequence_alignment([a, others[1]]), x.requires_grad_())


def test_sleepdg_adds_its_parts(make_model, make_batch) -> None:
    model, batch = make_model(sequence=True).eval(), make_batch((3, 3), sequence=True)
    rule: Any = build_rule("sleepdg", {"epoch": 2.0, "sequence": 3.0}, n_domains=2, n_classes=3, feature_dim=32)
    rule.prepare(model, model.taps[0])
    rule.eval()
    loss = rule.loss(model, batch, 0)
    z = model.features(batch.x)
    log_p = model.classify(z).log_softmax(-1).detach().numpy()
    smooth = 0.9 * np.eye(3)[batch.y.numpy()] + 0.1 / 3
    rebuilt = rule.decoder(z.flatten(0, 1), 192).view_as(batch.x)
    parts = [
        -(smooth * log_p).sum(-1).mean(),
        2 * numpy_penalty("sleepdg-epoch", [part.flatten(0, 1).detach().numpy() for part in z.split(3)]),
        3 * sequence_alignment(list(z.split(3))).item(),
        ((rebuilt - batch.x) ** 2).mean().item(),
    ]
    assert loss.item() == pytest.approx(sum(parts), rel=1e-5)


def test_partners_come_from_another_domain() -> None:
    for counts in [(4, 4), (3, 5, 2), (0, 3, 3), (2,) * 10]:
        domain = np.repeat(np.arange(len(counts)), counts)
        for _ in range(10):
            rows = partners(counts).numpy()
            assert (domain[rows] != domain).all()
            for d in np.unique(domain):  # every domain has one partner, used as evenly as it can be
                assert len(set(domain[rows[domain == d]])) == 1
                uses = np.bincount(rows[domain == d])
                assert uses.max() == -(-counts[d] // counts[domain[rows[domain == d][0]]])


def test_mixup_mixes_windows_and_losses(make_model, make_batch, monkeypatch) -> None:
    model, batch = make_model().eval(), make_batch((3, 3))
    swap = torch.tensor([4, 5, 3, 2, 0, 1])
    share = torch.tensor([0.3, 0.8])
    monkeypatch.setattr("sscf.rules.mixup.partners", lambda counts: swap)
    monkeypatch.setattr("sscf.rules.mixup.Beta.sample", lambda self, shape: share)
    loss = build_rule("mixup", n_domains=2, n_classes=3, feature_dim=8).loss(model, batch, 0)
    expected = 0.0
    for i in range(6):
        a = share[batch.domain[i]].item()
        log_p = model((a * batch.x[i] + (1 - a) * batch.x[swap[i]])[None]).log_softmax(1)[0]
        expected -= (a * log_p[batch.y[i]] + (1 - a) * log_p[batch.y[swap[i]]]).item() / 6
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_mix_style_gives_the_mixed_statistics() -> None:
    x, partner, share = torch.randn(4, 3, 50) * 3 + 1, torch.tensor([2, 3, 0, 1]), torch.rand(4, 1, 1)
    y, a, b = mix_style(x, partner, share).numpy(), x.numpy(), x[partner].numpy()
    s = share.numpy()[:, 0]
    np.testing.assert_allclose(y.mean(-1), s * a.mean(-1) + (1 - s) * b.mean(-1), atol=1e-4)
    np.testing.assert_allclose(y.std(-1, ddof=1), s * a.std(-1, ddof=1) + (1 - s) * b.std(-1, ddof=1), atol=1e-4)
    torch.testing.assert_close(mix_style(x, partner, torch.ones(4, 1, 1)), x)


def test_style_mixer_pairs_windows_of_sequences_and_rests_outside_the_rule() -> None:
    mixer, x = StyleMixer(), torch.randn(4, 2, 20)  # two sequences of two windows
    assert mixer(x) is x
    mixer.set(torch.tensor([1, 0]), torch.zeros(2, 1, 1))
    torch.testing.assert_close(mixer(x).mean(-1), x.mean(-1)[[2, 3, 0, 1]])
    mixer.clear()
    assert mixer(x) is x


@pytest.mark.parametrize("length", [32, 33])
def test_amplitude_mix_keeps_the_phase(length: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 2, length))
    share, band = rng.uniform(size=(3, 1, 1)), 0.4
    spectrum = np.fft.rfft(a)
    size = np.abs(spectrum)
    low = np.arange(size.shape[-1]) < band * size.shape[-1]
    size[..., low] = ((1 - share) * size + share * np.abs(np.fft.rfft(b)))[..., low]
    expected = np.fft.irfft(size * np.exp(1j * np.angle(spectrum)), n=length)
    mixed = mix_amplitudes(torch.tensor(a), torch.tensor(b), torch.tensor(share), band)
    np.testing.assert_allclose(mixed, expected, atol=1e-10)
    np.testing.assert_allclose(mix_amplitudes(torch.tensor(a), torch.tensor(b), torch.zeros(3, 1, 1)), a, atol=1e-10)


@pytest.mark.parametrize("inner", ["sgd", "adam"])
def test_mldg_is_the_gradient_after_the_inner_step(inner: str, make_model, make_batch, monkeypatch) -> None:
    model, batch = make_model().eval(), make_batch((5, 5, 5))
    monkeypatch.setattr(torch, "randperm", lambda n: torch.arange(n))  # domain 0 is meta-test
    rule: Any = build_rule(
        "mldg", {"beta": 0.5, "inner_lr": 0.1, "inner": inner}, n_domains=3, n_classes=3, feature_dim=8
    )
    loss = rule.loss(model, batch, 0)
    loss.backward()

    moved = copy.deepcopy(model)
    train_risk = F.cross_entropy(model(batch.x[5:]), batch.y[5:])
    first = torch.autograd.grad(train_risk, list(model.parameters()))
    optimiser = (torch.optim.SGD if inner == "sgd" else torch.optim.Adam)(moved.parameters(), lr=0.1)
    for parameter, gradient in zip(moved.parameters(), first, strict=True):
        parameter.grad = gradient.clone()
    optimiser.step()
    test_risk = F.cross_entropy(moved(batch.x[:5]), batch.y[:5])
    second = torch.autograd.grad(test_risk, list(moved.parameters()))
    assert loss.item() == pytest.approx((train_risk + 0.5 * test_risk).item(), rel=1e-5)
    for parameter, a, b in zip(model.parameters(), first, second, strict=True):
        torch.testing.assert_close(parameter.grad, a + 0.5 * b, rtol=1e-3, atol=1e-6)


def test_criterion_takes_sequences_weights_and_smoothing() -> None:
    logits, y, weight = torch.randn(2, 5, 3), torch.randint(0, 3, (2, 5)), torch.tensor([1.0, 2.0, 0.5])
    expected = torch.nn.CrossEntropyLoss(weight, label_smoothing=0.1)(logits.transpose(1, 2), y)
    torch.testing.assert_close(CrossEntropy(0.1, weight)(logits, y), expected)


def test_second_order_mldg_is_the_true_gradient(make_batch, monkeypatch) -> None:
    """Against finite differences of the whole loss, inner step included."""
    net = torch.nn.Sequential(
        torch.nn.Conv1d(2, 3, 9, stride=9), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(21, 3)
    )
    model, batch = wrap(net, tap="0").double(), make_batch((3, 3))
    batch = Batch(batch.x.double(), batch.y, batch.domain, 2)
    monkeypatch.setattr(torch, "randperm", lambda n: torch.arange(n))
    params = {"inner_lr": 0.3, "inner": "sgd", "second_order": True}
    rule = build_rule("mldg", params, n_domains=2, n_classes=3, feature_dim=21)
    weight = model.last_linear.weight
    (gradient,) = torch.autograd.grad(rule.loss(model, batch, 0), weight)
    for entry in [(0, 0), (1, 7), (2, 20)]:
        values = []
        for move in (1e-5, -2e-5, 1e-5):  # up, down, back
            weight.data[entry] += move
            values.append(rule.loss(model, batch, 0).item())
        assert gradient[entry].item() == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-4, abs=1e-8)
