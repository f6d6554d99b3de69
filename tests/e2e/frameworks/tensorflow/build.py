"""Two Keras models and a TensorFlow function."""

import keras
import numpy as np
import tensorflow as tf

SEED = 0
keras.utils.set_random_seed(SEED)


class Scaled(tf.Module):
    """A module with a variable and a function that returns a mapping."""

    def __init__(self):
        self.weights = tf.Variable(tf.random.normal((4, 2)))

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, name="rows")])
    def run(self, rows):
        """Return outputs as a mapping; they are exported in the order of their names."""
        return {"scores": tf.nn.relu(rows) @ self.weights, "mass": tf.reduce_sum(rows, axis=1)}


def mlp():
    """Return a model whose signature Keras infers: any batch of four features."""
    keras.utils.set_random_seed(SEED)
    layers = [keras.layers.Dense(8, activation="relu"), keras.layers.Dropout(0.5), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input((4,), name="features"), *layers]), np.ones((2, 4), np.float32)


def cnn():
    """Return a model with two named inputs and two named outputs."""
    keras.utils.set_random_seed(SEED)
    image, extra = keras.Input((8, 8, 1), name="image"), keras.Input((2,), name="extra")
    seen = keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3, activation="relu")(image))
    both = keras.layers.Concatenate()([keras.layers.Flatten()(seen), extra])
    outputs = {"wide": keras.layers.Dense(3)(both), "narrow": keras.layers.Dense(1)(both)}
    return {"model": keras.Model({"image": image, "extra": extra}, outputs)}


def function():
    """Return a function; its module must exist as long as the function is used."""
    tf.random.set_seed(SEED)
    function.module = Scaled()
    return function.module.run
