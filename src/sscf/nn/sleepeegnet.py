"""SleepEEGNet (Mousavi, Afghah, Acharya; PLOS ONE 2019): a baseline of the sleep table."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sscf.errors import InputError
from sscf.nn.base import Backbone


class SleepEEGNet(Backbone):
    """Two convolution branches, one for fine and one for coarse patterns, and an attentive BiLSTM encoder-decoder.

    ::

        (B, S, C, T) -> small1 (B*S, 64, T/6)  -> pool 8, 3 x conv 128 k8, pool 4 \\
                        large1 (B*S, 64, T/50) -> pool 4, 3 x conv 128 k6, pool 2 / -> flat (B, S, 3328 for T=3000)
                     -> two-layer BiLSTM (B, S, 2h) -> two-layer LSTM decoder with attention (B, S, 64) -> linear

    The original decoder reads the label it gave to the epoch before (in training the true one). Here features are a
    function of the signal alone, so the decoder reads its own last attention vector, of which that label is a function,
    and the encoder's output for the epoch it is to label.

    Parameters
    ----------
    in_channels, length, n_classes : C, T and the number of classes. Windows of another length cannot be given later.
    hidden : h, units of the encoder per direction; the decoder has 2h.
    attention : size of the attention vector, which is the feature vector.
    dropout : after the first pool of each branch, and of the two branches joined.
    """

    taps = ("small1", "large1")
    sequence = True
    min_length = 400  # the longest kernel

    def __init__(
        self,
        in_channels: int,
        length: int,
        n_classes: int,
        *,
        hidden: int = 128,
        attention: int = 64,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.in_channels, self.length = in_channels, length
        self.check_length(length)
        self.small1, self.small2 = _branch(in_channels, kernel=50, stride=6, pools=(8, 4), inner=8, dropout=dropout)
        self.large1, self.large2 = _branch(in_channels, kernel=400, stride=50, pools=(4, 2), inner=6, dropout=dropout)
        self.dropout = nn.Dropout(dropout)
        with torch.no_grad():
            size = self._epochs(torch.zeros(1, in_channels, length)).shape[1]
        self.encoder = nn.LSTM(size, hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.decoder = nn.ModuleList(
            [nn.LSTMCell(2 * hidden + attention, 2 * hidden), nn.LSTMCell(2 * hidden, 2 * hidden)]
        )
        self.score = nn.Linear(2 * hidden, 2 * hidden, bias=False)  # Luong's attention, the multiplicative kind
        self.attend = nn.Linear(4 * hidden, attention, bias=False)
        self.feature_dim = attention
        self.classifier = nn.Linear(attention, n_classes)

    def features(self, x: Tensor) -> Tensor:
        self.check(x)
        epochs = self._epochs(x.flatten(0, 1))
        if epochs.shape[1] != self.encoder.input_size:
            raise InputError(f"SleepEEGNet was built for windows of {self.length} samples, these have {x.shape[-1]}")
        encoded, last = self.encoder(epochs.unflatten(0, x.shape[:2]))
        return self._decode(encoded, *last)

    def _epochs(self, x: Tensor) -> Tensor:
        """(N, C, T) -> (N, size): each epoch by itself."""
        branches = self.small2(self.small1(x)), self.large2(self.large1(x))
        return self.dropout(torch.cat([branch.flatten(1) for branch in branches], 1))

    def _decode(self, encoded: Tensor, h: Tensor, c: Tensor) -> Tensor:
        """(B, S, 2h) and the encoder's last states (layers * directions, B, h) -> attention vectors (B, S, A)."""
        # The two directions' last states, side by side, are the decoder's first: one pair for each of its layers.
        states = [(torch.cat([h[i], h[i + 1]], 1), torch.cat([c[i], c[i + 1]], 1)) for i in (0, 2)]
        keys = self.score(encoded)
        vector = encoded.new_zeros(encoded.shape[0], self.feature_dim)
        vectors = []
        for step in encoded.unbind(1):
            signal = torch.cat([step, vector], 1)
            for layer, cell in enumerate(self.decoder):
                states[layer] = cell(signal, states[layer])
                signal = states[layer][0]
            weights = F.softmax(torch.einsum("bsh,bh->bs", keys, signal), 1)
            context = torch.einsum("bs,bsh->bh", weights, encoded)
            vector = torch.tanh(self.attend(torch.cat([signal, context], 1)))
            vectors.append(vector)
        return torch.stack(vectors, 1)


def _branch(
    channels: int, kernel: int, stride: int, pools: tuple[int, int], inner: int, dropout: float
) -> tuple[nn.Sequential, nn.Sequential]:
    """The first convolution of a branch, (B, C, T) -> (B, 64, T / stride), and the rest of it."""
    first = nn.Sequential(nn.Conv1d(channels, 64, kernel, stride, padding=(kernel - stride + 1) // 2), nn.ReLU())
    rest = nn.Sequential(nn.MaxPool1d(pools[0], ceil_mode=True), nn.Dropout(dropout))
    for width in (64, 128, 128):
        rest.extend([nn.Conv1d(width, 128, inner, padding=inner // 2), nn.ReLU()])
    rest.append(nn.MaxPool1d(pools[1], ceil_mode=True))
    for module in (*first, *rest):
        if isinstance(module, nn.Conv1d) and module.bias is not None:
            # There is no norm: with PyTorch's own initial weights hardly any signal would come through four layers.
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            nn.init.zeros_(module.bias)
    return first, rest
