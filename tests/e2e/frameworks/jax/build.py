"""A perceptron of JAX arrays, for any batch and for one."""

import jax
import jax.numpy as jnp

SEED = 0
FIRST, SECOND = (jax.random.normal(key, (6, 6)) for key in jax.random.split(jax.random.key(SEED)))


def network(rows):
    """Outputs of a mapping are in the order of its keys."""
    hidden = jax.nn.relu(rows @ FIRST)
    return {"scores": jax.nn.softmax(hidden @ SECOND), "mass": hidden.sum(axis=1)}


def dynamic():
    """The batch is an axis of any size."""
    return {
        "model": network,
        "args": (jnp.ones((2, 6)),),
        "dynamic_shapes": {"rows": {0: "batch"}},
        "input_names": ["rows"],
        "output_names": ["mass", "scores"],
    }


def fixed():
    """Compiled by JAX, and of one shape."""
    return jax.jit(network), (jax.ShapeDtypeStruct((2, 6), jnp.float32),)
