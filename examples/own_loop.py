# %% [markdown]
# # Calibration in a training loop of your own
#
# You have a PyTorch network and a loop that trains it. Ten lines put structure-stratified spectral calibration into it:
# train as you do now, take the spectra of a shallow feature map, fit anchors, insert the calibration, train again.

# %%
import torch
from torch import nn

import sscf
from sscf.nn import insert, tap_output

torch.manual_seed(0)
torch.set_num_threads(1)


# %% [markdown]
# Data of three devices, and of eight that are never trained on: the same three rhythms, seen through other filters.
# The network and the loop are yours; nothing here knows about calibration.


# %%
def device(number: int, n: int = 240) -> tuple[torch.Tensor, torch.Tensor]:
    """Windows (n, 2, 128) of three classes: 2, 5 or 11 cycles in noise, through the response of one device."""
    draw = torch.Generator().manual_seed(number)
    y = torch.arange(n) % 3
    cycles = torch.tensor([2.0, 5.0, 11.0])[y][:, None, None]
    phase = 6.3 * torch.rand(n, 2, 1, generator=draw)
    x = torch.sin(6.283 * cycles * torch.arange(128) / 128 + phase) + 0.5 * torch.randn(n, 2, 128, generator=draw)
    response = torch.exp(1.2 * torch.randn(2, 9, generator=draw)).repeat_interleave(8, dim=1)[:, :65]
    return torch.fft.irfft(torch.fft.rfft(x) * response, n=128), y


def network() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv1d(2, 16, 9, padding=4), nn.BatchNorm1d(16), nn.ReLU()),
        *(nn.Conv1d(16, 32, 9, padding=4, stride=2), nn.BatchNorm1d(32), nn.ReLU()),
        *(nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(32, 3)),
    )


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int = 120) -> nn.Module:
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        rows = torch.randint(len(x), (64,))
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


devices = [device(number) for number in range(3)]
x, y = torch.cat([x for x, _ in devices]), torch.cat([y for _, y in devices])
unseen = [device(number) for number in range(3, 11)]
plain = train(network(), x, y)

# %% [markdown]
# The ten lines. "2" is the name of the tap in this network: its first ReLU, whose output is a map (B, 16, 128).

# %%
with torch.no_grad():
    maps = tap_output(plain, "2", x)
power = sscf.welch_power(maps, frame=16, hop=8, center=True)
anchors = sscf.Anchors.fit(power, k=3, frame=16, hop=8)
calibrated = insert(network(), "2", sscf.SpectralCalibration(anchors))
train(calibrated, x, y)

# %% [markdown]
# The anchors are buffers of the calibration, so they are saved, moved and loaded with the network; `anchors.save(path)`
# keeps them alone. Which stratum each training window is in:

# %%
strata = anchors.assign(power)
print("windows by class (row) and stratum (column):")
print(torch.stack([torch.bincount(strata[y == c], minlength=3) for c in range(3)]))


# %%
def accuracy(model: nn.Module) -> float:
    """Mean over the unseen devices, in per cent."""
    with torch.no_grad():
        return 100 * sum(float((model(x).argmax(1) == y).float().mean()) for x, y in unseen) / len(unseen)


print(f"mean accuracy on {len(unseen)} unseen devices, without and with calibration:")
print(f"{accuracy(plain):.1f} %, {accuracy(calibrated):.1f} %")
