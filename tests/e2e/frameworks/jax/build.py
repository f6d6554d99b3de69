"""A perceptron of JAX arrays, with a dynamic and with a fixed batch size."""

import jax
import jax.numpy as jnp

SEED = 0
FIRST, SECOND = (jax.random.normal(key, (6, 6)) for key in jax.random.split(jax.random.key(SEED)))


def network(rows):
    """Return outputs as a mapping; they are exported in the order of its keys."""
    hidden = jax.nn.relu(rows @ FIRST)
    return {"scores": jax.nn.softmax(hidden @ SECOND), "mass": hidden.sum(axis=1)}


def dynamic():
    """Return the model with a dynamic batch size."""
    return {
        "model": network,
        "args": (jnp.ones((2, 6)),),
        "dynamic_shapes": {"rows": {0: "batch"}},
        "input_names": ["rows"],
        "output_names": ["mass", "scores"],
    }


def fixed():
    """Return a compiled model with fixed shapes."""
    return jax.jit(network), (jax.ShapeDtypeStruct((2, 6), jnp.float32),)
