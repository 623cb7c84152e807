"""The convergence bound of J Theorem 1, as printed, with the paper's contradictions named.

Theorem 1 bounds the mean of ||grad F(w^(t))||^2 over the rounds t = 1…T by three terms: (a1) the
loss lost on the way, (a2) the local steps' drift, (b) the privacy noise that arrives at the cloud.
(b) is nu of eq. 28, a sum over the layers of A_l, B_l and C_l of eq. 20.

Where the paper contradicts itself, these are the readings:

* Eq. 20 against the proof. B_l starts at m = l in eq. 20, where its first summand is A_l again,
  and at layer L the noise of the devices is both A_L and C_L. The proofs of Lemma 2 (eq. 79-80)
  and Corollary 1 (eq. 60) start one layer lower and count each noise once. Here eq. 20 is taken as
  printed: all summands are non-negative, so it bounds what the proof bounds, by at most a factor of
  two more. Eq. 25 (noise *passed to* layer l) is one layer off against eqs 19 and 73, which agree.
* epsilon^2 against epsilon. Eq. 45 divides by epsilon^t, eqs 19, 25 and 28 by epsilon^2. The noise
  variance is the square of eq. 14, so epsilon^2.
* L is the number of layers in Theorem 1 (it comes from Cauchy-Schwarz over L groups of noises, eq.
  43) and the number of aggregations in Prop. 1. Here it is the depth of the tree; the aggregations
  K^max·T are already in (K^max)^4 and in the T that eta <= 1/(T beta) cancels.
* G. The noise of Prop. 1 and Lemma 1 has a variance in G^2; eq. 45 has it, eqs 53, 19 and 28 do
  not. As printed, so without: (b) has its unit right only for G = 1.
* Step size. (a1) follows from the proof only where gamma K = 1/beta, and the theorem asks for
  gamma <= 1/(T beta), so for T > K it does not follow; there are losses for which Theorem 1 as
  printed is wrong (see the tests). `m2fdp.convergence.descent` carries the same steps through.
* Corollary 1 leaves out the noise of local aggregations at layer m; see `corollary_1`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, prod

import numpy as np
from numpy.typing import ArrayLike

from m2fdp.core.topology.network import Network
from m2fdp.core.topology.tree import Tree
from m2fdp.core.topology.trust import Trust

# One number, or one for each of several networks.
Numbers = np.ndarray | np.float64


@dataclass(frozen=True)
class TrustShares:
    """Shares of trusted nodes among the children of untrusted ones (J eqs 17, 18).

    Attributes:
        smallest, largest: p_l^min and p_l^max for l = 0…L, where p_0 = 0 and p_L = 1.
    """

    smallest: tuple[float, ...]
    largest: tuple[float, ...]


def trust_shares(tree: Tree, trust: Trust) -> TrustShares:
    """The shares of a network; 1 for a layer none of whose nodes has an untrusted parent."""
    smallest, largest = [0.0], [0.0]
    for layer in range(1, tree.depth):
        parents = tree.parents[layer - 1]
        trusted = np.bincount(
            parents, weights=trust[layer].astype(float), minlength=tree.n_nodes(layer - 1)
        )
        shares = (trusted / tree.n_children(layer - 1))[~trust[layer - 1]]
        smallest.append(float(shares.min(initial=1.0)))
        largest.append(float(shares.max()) if shares.size else 1.0)
    return TrustShares((*smallest, 1.0), (*largest, 1.0))


@dataclass(frozen=True, eq=False)
class LayerTerms:
    """What the noise that nodes of layer l = 1…L (index l-1) send up adds to (b).

    Attributes:
        weights: (1 - p_{l-1}^min)^2.
        a: A_l, of trusted nodes of the layer itself (devices for l = L).
        b: B_l, of trusted servers of this layer or between it and the devices.
        c: C_l, of devices below untrusted servers only.

    Entries are floats, or arrays where a fan-out is one.
    """

    weights: tuple[float, ...]
    a: tuple[Numbers, ...]
    b: tuple[Numbers, ...]
    c: tuple[Numbers, ...]

    @property
    def by_layer(self) -> tuple[Numbers, ...]:
        """The layers' summands of eq. 19 (b)."""
        terms = zip(self.weights, self.a, self.b, self.c, strict=True)
        return tuple(weight * (a + b + c) for weight, a, b, c in terms)

    @property
    def total(self) -> Numbers:
        """Their sum."""
        return sum(self.by_layer, np.float64(0.0))


def layer_terms(
    shares: TrustShares, fanouts: Sequence[ArrayLike], alphas: Sequence[float]
) -> LayerTerms:
    """A_l, B_l and C_l of J eq. 20 as printed.

    An empty product is 1 and an empty sum 0, so A_L = C_L = alpha_L^2 and B_L = 0.

    Args:
        fanouts: s_l for l = 1…L-1; numbers or arrays that broadcast against each other.
        alphas: alpha_l of Prop. 1 for l = 1…L.
    """
    depth = len(alphas)
    devices: Numbers = np.float64(1.0)  # the product of s_l' over l' = l…L-1
    a: list[Numbers] = [np.float64(shares.largest[depth] * alphas[-1] ** 2)]
    b: list[Numbers] = [np.float64(0.0)]
    c: list[Numbers] = [np.float64(alphas[-1] ** 2)]
    for layer in range(depth - 1, 0, -1):
        fanout = np.asarray(fanouts[layer - 1], dtype=np.float64)
        devices = devices * fanout
        passed_on = (1 - shares.smallest[layer]) / fanout
        a.insert(0, shares.largest[layer] * alphas[layer - 1] ** 2 / devices**2)
        b.insert(0, a[0] + passed_on * b[0])
        c.insert(0, passed_on * c[0])
    weights = tuple((1 - share) ** 2 for share in shares.smallest[:-1])
    return LayerTerms(weights, tuple(a), tuple(b), tuple(c))


def setting_of(network: Network) -> tuple[TrustShares, list[int]]:
    """What bounds ask of a network: its shares, and its s_l with those who take part only."""
    fanouts = [network.smallest_fanout(layer) for layer in range(1, network.tree.depth)]
    return trust_shares(network.tree, network.trust), fanouts


def network_terms(network: Network, alphas: Sequence[float]) -> LayerTerms:
    """`layer_terms` of a network."""
    return layer_terms(*setting_of(network), alphas)


def corollary_1(
    shares: TrustShares, fanouts: Sequence[float], alphas: Sequence[float]
) -> tuple[float, float]:
    """The two sums over l = 1…m of J eq. 22, to be multiplied by `noise_factor`.

    m is the lowest layer with an untrusted server. (alpha'_l)^2, "a linear combination" in the
    paper, is the one that its proof gives: the sum over k = l+1…m+1 of alpha_k^2 times the share
    p_k^max and the product of (1 - p_l'^min) over l' = l+1…k-1.

    This bounds the summands l = 1…m of Theorem 1 in the proof's reading. The summand l = m+1,
    (1 - p_m^min)^2 times the noise of what layer m+1 sends to untrusted servers, is not zero and
    is left out in eq. 60 without a reason: the corollary holds without local aggregations at
    layer m only.
    """
    depth = len(alphas)
    insecure = [layer for layer in range(1, depth) if shares.smallest[layer] < 1]
    m = max(insecure, default=0)
    own_noise = passed_on = 0.0
    for layer in range(1, m + 1):
        weight = (1 - shares.smallest[layer - 1]) ** 2
        devices = prod(fanouts[layer - 1 :])
        own_noise += weight * shares.largest[layer] * alphas[layer - 1] ** 2 / devices**2
        combined = sum(
            prod(1 - share for share in shares.smallest[layer + 1 : k])
            * shares.largest[k]
            * alphas[k - 1] ** 2
            for k in range(layer + 1, m + 2)
        )
        averaged = devices * prod(fanouts[m:])
        passed_on += weight * (1 - shares.smallest[layer]) * combined / averaged
    return own_noise, passed_on


@dataclass(frozen=True)
class Constants:
    """What Theorem 1 takes as given.

    Attributes:
        smoothness: beta, 1/parameter².
        gradient_norm: G.
        gradient_variance: sigma^2 of Assumption 1, of the gradient, not of the privacy noise.
        n_parameters: M.
        local_steps: K^max.
        sampling_rate: q.
        epsilon, delta: the target of Prop. 1; an infinite epsilon means no noise.
    """

    smoothness: float
    gradient_norm: float
    gradient_variance: float
    n_parameters: int
    local_steps: int
    sampling_rate: float
    epsilon: float
    delta: float

    def noise_factor(self, depth: int) -> np.ndarray:
        """`noise_factor` of a tree of that depth."""
        of_run = self.n_parameters, self.local_steps, self.sampling_rate, self.epsilon, self.delta
        return noise_factor(depth, *of_run)


@dataclass(frozen=True, eq=False)
class Bound:
    """A bound on the mean of ||grad F||^2 over the first T rounds, by term; floats or arrays (T,).

    Attributes:
        a1: the term of the loss lost on the way.
        a2: the term of local steps and their gradients' noise.
        b: the term of the privacy noise.
    """

    a1: np.ndarray
    a2: np.ndarray
    b: np.ndarray

    @property
    def total(self) -> np.ndarray:
        return self.a1 + self.a2 + self.b


def noise_factor(
    depth: int,
    n_parameters: int,
    local_steps: ArrayLike,
    sampling_rate: float,
    epsilon: float,
    delta: float,
) -> np.ndarray:
    """8 L M K^4 q^2 log(1/delta) / epsilon^2 of J eqs 19 and 28, for a number or an array of K."""
    steps = np.asarray(local_steps, dtype=np.float64)
    return 8 * depth * n_parameters * steps**4 * sampling_rate**2 * log(1 / delta) / epsilon**2


def theorem_1(
    terms: LayerTerms, constants: Constants, rounds: ArrayLike, loss_drop: ArrayLike
) -> Bound:
    """The right-hand side of J eq. 19 as printed.

    Args:
        rounds: T, a number or an array.
        loss_drop: F(w^(1)) - F(w^(T+1)), of the same shape. Corollary 1 writes F(w^(1)), which
            bounds it for losses that are not negative.
    """
    horizon = np.asarray(rounds, dtype=np.float64)
    beta, squared_norm = constants.smoothness, constants.gradient_norm**2
    variance = squared_norm * (1 + 1 / beta) + constants.gradient_variance
    return Bound(
        a1=2 * beta / np.sqrt(horizon + 1) * np.asarray(loss_drop, dtype=np.float64),
        a2=constants.local_steps * variance / horizon,
        b=np.broadcast_to(constants.noise_factor(len(terms.weights)) * terms.total, horizon.shape),
    )


def largest_step_parameter(smoothness: float, local_steps: int, rounds: int) -> float:
    """min(1/K^max, 1/T)/beta, the largest gamma for which Theorem 1 is stated."""
    return min(1 / local_steps, 1 / rounds) / smoothness
