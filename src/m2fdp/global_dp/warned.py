"""What a user should know of noise beside clipped models."""

from m2fdp.core.experiment.assembly import Assembly


def drowned(assembly: Assembly) -> list[str]:
    """A line where the noise of a message is longer than a clipped model."""
    mechanism = assembly.calibration.mechanism
    norm = mechanism.clipping.model_norm
    if norm is None:
        return []
    of_message = max(float(of_layer.max()) for of_layer in mechanism.noise.messages)
    length = of_message * assembly.model.n_parameters**0.5
    if length <= norm:
        return []
    return [
        f"the noise of one message is {length:.3g} long, and no clipped model is longer than "
        f"{norm:g} (privacy.clipping_norm): what is trained may be noise alone"
    ]
