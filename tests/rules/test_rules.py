"""What holds for every rule."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from sscf import Anchors, SpectralCalibration
from sscf.errors import ConfigError, InputError
from sscf.nn import Backbone, insert, wrap
from sscf.rules import RULES, build_rule
from sscf.rules.base import Batch, Rule, search_range

LATE = 5000  # past every anneal and warm-up step
# Settings under which a rule's part of the gradient is large enough to be seen in one step.
STRONG = {
    "groupdro": {"eta": 5.0},
    "mixstyle": {"probability": 1.0},
    "fda": {"probability": 1.0},
    "codats": {"dropout": 0.0},
}
PAIRED = [name for name in RULES if RULES[name].needs_domains == 2]


def prepared(name: str, model: Backbone, n_domains: int, params: dict | None = None) -> Rule:
    torch.manual_seed(3)
    rule = build_rule(name, params, n_domains=n_domains, n_classes=3, feature_dim=model.feature_dim)
    rule.prepare(model, model.taps[0])
    return rule


def encoder_gradient(rule: Rule, model: Backbone, batch: Batch) -> Tensor:
    """Gradient of the loss by the first convolution, under fixed random numbers."""
    torch.manual_seed(4)
    loss = rule.loss(model, batch, LATE)
    assert loss.shape == ()
    weight = next(model.parameters())
    return torch.autograd.grad(loss, weight)[0]


@pytest.mark.parametrize("sequence", [False, True], ids=["windows", "sequences"])
@pytest.mark.parametrize("name", RULES)
def test_what_the_rule_adds_reaches_the_encoder(name: str, sequence: bool, make_model, make_batch) -> None:
    batch = make_batch((6, 6, 6), sequence)
    model = make_model(sequence)
    gradient = encoder_gradient(prepared(name, model, 3, STRONG.get(name)), model, batch)
    assert torch.isfinite(gradient).all()
    assert gradient.abs().max() > 0
    plain = make_model(sequence)
    erm = encoder_gradient(prepared("erm", plain, 3), plain, batch)
    difference = (gradient - erm).abs().max() / erm.abs().max()
    assert difference == 0 if name == "erm" else difference > 1e-5


@pytest.mark.parametrize("counts", [(4, 4), (2,) * 10, (5, 3, 4), (4, 1), (3, 0, 3)], ids=str)
@pytest.mark.parametrize("name", RULES)
def test_any_number_of_domains_remainders_and_missing_classes(name: str, counts, make_model, make_batch) -> None:
    model, batch = make_model(), make_batch(counts, missing=0)
    assert 0 not in batch.y[batch.domain == 0]
    rule = prepared(name, model, len(counts), STRONG.get(name))
    for step in (0, LATE):
        loss = rule.loss(model, batch, step)
        loss.backward()
        assert torch.isfinite(loss)
        assert rule.log
        assert all(isinstance(value, float) for value in rule.log.values())
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in [*model.parameters(), *rule.parameters()])


@pytest.mark.parametrize("name", RULES)
def test_one_domain(name: str, make_model, make_batch) -> None:
    model = make_model()
    if name in PAIRED:
        with pytest.raises(ConfigError, match=f"'{name}' needs 2 or more source domains, there is 1"):
            build_rule(name, n_domains=1, n_classes=3, feature_dim=model.feature_dim)
    else:
        assert torch.isfinite(prepared(name, model, 1).loss(model, make_batch((6,)), 0))


@pytest.mark.parametrize("name", RULES)
def test_trains(name: str, make_model, make_batch) -> None:
    """A few steps lower the loss on a batch; all modules of the rule take part."""
    model, batch = make_model(), make_batch((8, 8))
    rule = prepared(name, model, 2)
    optimiser = torch.optim.Adam([*model.parameters(), *rule.parameters()], lr=0.01)
    risks = []
    for step in range(12):
        loss = rule.loss(model, batch, step)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        risks.append(rule.log["risk"])
    assert all(p.grad is not None for p in rule.parameters())
    assert min(risks[6:]) < risks[0]


@pytest.mark.parametrize("name", RULES)
def test_bfloat16_autocast(name: str, make_model, make_batch) -> None:
    model, batch = make_model(), make_batch((4, 4))
    rule = prepared(name, model, 2, STRONG.get(name))
    losses = []
    for enabled in (False, True):
        torch.manual_seed(4)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = rule.loss(model, batch, 0)
        loss.backward()
        losses.append(loss.item())
    assert loss.dtype == torch.float32
    assert losses[1] == pytest.approx(losses[0], rel=0.1)


@pytest.mark.parametrize("name", RULES)
def test_compiled_model_gives_the_same_loss(name: str, make_model, make_batch) -> None:
    model, batch = make_model(), make_batch((4, 4))
    rule = prepared(name, model, 2, STRONG.get(name))
    compiled_model, compiled_rule = copy.deepcopy((model, rule))
    torch._dynamo.reset()
    compiled_model.compile(backend="aot_eager")
    # Most rules want features and logits apart, so these are compiled as well as the whole.
    compiled_model.features = torch.compile(compiled_model.features, backend="aot_eager")
    losses = []
    for one_model, one_rule in ((model, rule), (compiled_model, compiled_rule)):
        torch.manual_seed(4)
        loss = one_rule.loss(one_model, batch, LATE)
        loss.backward()
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    for plain, compiled in zip(model.parameters(), compiled_model.parameters(), strict=True):
        torch.testing.assert_close(compiled.grad, plain.grad, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("name", RULES)
def test_any_encoder_and_any_calibration(name: str, make_batch) -> None:
    """A wrapped third-party encoder, calibrated with one anchor per domain, learns by every rule."""
    net = torch.nn.Sequential(
        torch.nn.Conv1d(2, 6, 5),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool1d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(24, 3),
    )
    model, batch = wrap(net, tap="0"), make_batch((4, 4, 4))
    rule = prepared(name, model, 3, STRONG.get(name))
    calibration = SpectralCalibration(
        Anchors(torch.rand(3, 6, 5) + 0.5, torch.ones(3, dtype=torch.int64), frame=8, hop=4)
    )
    insert(model, "0", calibration)
    with calibration.assigned(batch.domain):
        gradient = encoder_gradient(rule, model, batch)
    assert gradient.abs().max() > 0


@pytest.mark.parametrize(("name", "key"), [("irm", "anneal_steps"), ("vrex", "anneal_steps"), ("fishr", "warmup")])
def test_optimiser_is_reset_when_the_penalty_sets_in(name: str, key: str, make_model, make_batch) -> None:
    model, batch = make_model().eval(), make_batch((4, 4))
    rule = prepared(name, model, 2)
    at = getattr(rule.params, key)
    assert [step for step in range(2 * at) if rule.resets_optimiser(step)] == [at]
    before = 0.0 if name == "fishr" else 1.0
    for step, weight in ((at - 1, before), (at, rule.params.weight)):
        loss = rule.loss(model, batch, step).item()
        assert loss == pytest.approx(rule.log["risk"] + weight * rule.log["penalty"], rel=1e-5)
    assert not prepared(name, make_model(), 2, {key: 0}).resets_optimiser(0)


def test_no_other_rule_resets_the_optimiser() -> None:
    for name in set(RULES) - {"irm", "vrex", "fishr"}:
        rule = build_rule(name, n_domains=2, n_classes=3, feature_dim=8)
        assert not any(rule.resets_optimiser(step) for step in range(3000))


@pytest.mark.parametrize("name", RULES)
def test_parameters_are_documented(name: str) -> None:
    rule = RULES[name]
    assert rule.name == name
    assert rule.title
    assert any(character.isdigit() for character in rule.paper)  # a year
    for key, info in rule.Params.model_fields.items():
        assert info.description, key
        for value in search_range(info):  # what a search may try is allowed
            build_rule(name, {key: value}, n_domains=3, n_classes=3, feature_dim=8)


def test_wrong_parameters_are_named() -> None:
    sizes: dict[str, Any] = {"n_domains": 2, "n_classes": 3, "feature_dim": 8}
    with pytest.raises(ConfigError, match="'coral' has no hyper-parameter 'lambda'; it has: weight, form"):
        build_rule("coral", {"lambda": 1}, **sizes)
    with pytest.raises(ConfigError, match=r"weight = -1: Input should be greater than or equal to 0"):
        build_rule("coral", {"weight": -1}, **sizes)
    with pytest.raises(ConfigError, match=r"form = 'shallow': Input should be 'default' or 'deep'"):
        build_rule("coral", {"form": "shallow"}, **sizes)
    with pytest.raises(ConfigError, match=r"unknown rule 'korall'; rules are: erm, irm"):
        build_rule("korall", **sizes)
    with pytest.raises(Exception, match="frozen"):
        build_rule("coral", **sizes).params.weight = 2


def test_batches_are_checked() -> None:
    x, y = torch.zeros(4, 2, 8), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(InputError, match="sorted by domain"):
        Batch(x, y, torch.tensor([0, 1, 0, 1]), 2)
    with pytest.raises(InputError, match="4 rows, 2 domains"):
        Batch(x, y, torch.tensor([0, 0, 1, 1]), 2, (3, 2))
    batch = Batch(x, y, torch.tensor([0, 0, 1, 1]), 3)
    assert batch.counts == (2, 2, 0)
    assert batch.present() == [0, 1]
    for values, shape in ((x, (2, 2, 2, 8)), (torch.zeros(12, 5), (2, 6, 5))):  # the latter: windows of sequences
        parts = batch.split(values)
        assert isinstance(parts, Tensor)
        assert parts.shape == shape
