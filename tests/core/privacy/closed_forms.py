"""What one Gaussian is worth (Balle and Wang 2018, Theorem 8), by itself."""

from math import exp, log, sqrt

from scipy.optimize import brentq
from scipy.stats import norm


def delta_of(shift, epsilon):
    """Of one Gaussian moved by so many deviations."""
    a, b = shift / 2 - epsilon / shift, -shift / 2 - epsilon / shift
    return norm.cdf(a) - exp(epsilon + norm.logcdf(b))


def epsilon_of(shift, delta=1e-5):
    """Of one Gaussian moved by so many deviations."""
    most = shift**2 / 2 + shift * sqrt(2 * log(1 / delta))
    if shift > 1e3:
        return most
    return brentq(lambda epsilon: delta_of(shift, epsilon) - delta, 0, most, xtol=1e-12)


def epsilon_of_releases(*releases):
    """Of (shift, deviation, count)."""
    return epsilon_of(sqrt(sum(n * (shift / deviation) ** 2 for shift, deviation, n in releases)))
