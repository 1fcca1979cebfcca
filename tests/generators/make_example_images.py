"""Renders quantcore/tensors/data/images.npz, the example images: tests/generators/make_example_images.py

Both are computed here from nothing but formulas, so they are the project's own. They have what quantization
shows on an image: smooth gradients, where steps become bands, next to fine texture and sharp edges.
"""

from pathlib import Path

import numpy as np

OUT = Path(__file__).parents[2] / "quantcore" / "tensors" / "data" / "images.npz"
FINER = 4  # samples per pixel and side


def smooth(x):
    return x * x * (3 - 2 * x)


def noise(points, rng, octaves):
    """Value noise of 1-D or 2-D points: each octave is twice as fine and half as strong."""
    total = np.zeros(points.shape[:-1])
    for octave in range(octaves):
        at = points * 2.0**octave
        low = np.floor(at).astype(int)
        part = smooth(at - low)
        table = rng.random((64,) * points.shape[-1])
        for corner in np.ndindex(*(2,) * points.shape[-1]):
            weight = np.prod(np.where(corner, part, 1 - part), -1)
            at = (low + corner) % 64
            total += weight * table[tuple(at[..., i] for i in range(points.shape[-1]))] / 2**octave
    return total / (2 - 2.0 ** (1 - octaves))


def shrunk(fine):
    """The means of FINER × FINER samples, as 8-bit levels: an sRGB-like root of light from 0 to 1."""
    height, width = (n // FINER for n in fine.shape)
    light = fine.reshape(height, FINER, width, FINER).mean((1, 3))
    return np.round(255 * np.clip(light, 0, 1) ** (1 / 2.2)).astype(np.uint8)


def landscape(height=128, width=192):
    """Hills in the haze above a lake, and the sun."""
    rng = np.random.default_rng(7)
    y, x = np.mgrid[: height * FINER, : width * FINER].astype(float)
    y, x = y / (height * FINER), x / (height * FINER)  # y from 0 to 1, x from 0 to 1.5
    shore = 0.66
    up = np.where(y < shore, y, 2 * shore - y)  # the lake mirrors what is above it
    ripple = noise(np.stack([8 * x, 90 * (y - shore)], -1), rng, 2) - 0.5
    side = x + np.where(y > shore, 0.05 * ripple * (y - shore) / (1 - shore), 0)
    away = np.hypot(side - 1.06, up - 0.25)
    glow, sun = 0.5 * np.exp(-((away / 0.16) ** 2)), np.where(away < 0.055, 1.0, 0)
    light = 0.05 + 0.5 * (up / shore) ** 1.6 + glow + sun
    for n, (foot, tall, haze) in enumerate([(0.5, 0.24, 0.24), (0.57, 0.2, 0.08), (0.63, 0.13, 0.015)]):
        ridge = foot - tall * (noise(np.stack([(1.7 + n) * side + 3 * n], -1), rng, 7) - 0.35)
        rock = noise(np.stack([30 * side, 50 * up], -1), rng, 4)
        hill = haze * (0.75 + 0.6 * rock) + 0.3 * np.clip((up - ridge) / 0.3, 0, 1) * haze
        light = np.where(up > ridge, hill, light)
    water = light * 0.72 + 0.02 + 0.05 * ripple
    return shrunk(np.where(y > shore, water, light))


SPHERES = [((-0.95, 0.62, 3.5), 0.62), ((0.5, 0.85, 4.3), 0.85), ((0.32, 0.3, 2.75), 0.3)]
LIGHT = np.array([-2.6, 4.2, 0.6])


def hit(origin, way):
    """Distance to the nearest sphere along each ray, infinite if there is none, and the sphere's number."""
    near, number = np.full(way.shape[:-1], np.inf), np.full(way.shape[:-1], -1)
    for n, (center, radius) in enumerate(SPHERES):
        out = origin - np.array(center)
        b, c = (out * way).sum(-1), (out * out).sum(-1) - radius**2
        root = b * b - c
        at = np.where(root > 0, -b - np.sqrt(np.maximum(root, 0)), np.inf)
        closer = (at > 1e-3) & (at < near)
        near, number = np.where(closer, at, near), np.where(closer, n, number)
    return near, number


def still_life(side=160):
    """Three spheres on a table, under a lamp: one plain, one with stripes, one of metal."""
    rng = np.random.default_rng(3)
    y, x = np.mgrid[: side * FINER, : side * FINER] / (side * FINER)
    way = np.stack([(x - 0.5) * 1.02, 0.36 - y * 1.02 + 0.02, np.ones_like(x)], -1)
    way /= np.linalg.norm(way, axis=-1, keepdims=True)
    eye = np.array([0.0, 1.15, -0.1])
    return shrunk(seen(np.broadcast_to(eye, way.shape), way, rng, 1))


def seen(eye, way, rng, mirrors):
    """The light that comes along each ray."""
    sphere, number = hit(eye, way)
    with np.errstate(divide="ignore", invalid="ignore"):
        table = np.where(way[..., 1] < -1e-6, -eye[..., 1] / way[..., 1], np.inf)
    table = np.where(table > 1e-3, table, np.inf)
    far = np.minimum(sphere, table)
    is_sky = far > 14
    place = eye + way * np.where(is_sky, 14, far)[..., None]
    on_table = (table < sphere) & ~is_sky
    center = np.array([(0, 0, 0)] + [c for c, _ in SPHERES], float)[number + 1]
    normal = np.where(on_table[..., None], [0.0, 1, 0], place - center)
    normal = normal / np.linalg.norm(normal, axis=-1, keepdims=True)
    wood = noise(np.stack([1.2 * place[..., 0] + 40, 9 * place[..., 2] + 40], -1) % 64, rng, 4)
    stripes = 0.12 + 0.6 * (np.sin(22 * place[..., 1] + 6 * place[..., 0]) > 0)
    paint = np.select([on_table, number == 1, number == 2], [0.2 + 0.35 * wood, stripes, 0.9], 0.62)
    lit = np.zeros_like(far)
    for _ in range(12):  # of a lamp with a radius: soft shadows
        lamp = LIGHT + rng.normal(0, 0.22, place.shape)
        to = lamp - place
        length = np.linalg.norm(to, axis=-1, keepdims=True)
        to = to / length
        free = hit(place + 2e-3 * normal, to)[0] > length[..., 0]
        lit += free * np.clip((normal * to).sum(-1), 0, 1) * 16 / length[..., 0] ** 2
    half = to - way
    half /= np.linalg.norm(half, axis=-1, keepdims=True)
    gloss = np.where(on_table, 0, 0.5) * free * np.clip((normal * half).sum(-1), 0, 1) ** 60
    light = paint * (0.05 + 0.05 * normal[..., 1] + lit / 12 * 0.75) + gloss
    if mirrors:
        back = way - 2 * (way * normal).sum(-1, keepdims=True) * normal
        metal = number == 2
        other = seen(place[metal] + 2e-3 * normal[metal], back[metal], rng, 0)
        light[metal] = 0.15 * light[metal] + 0.8 * other
    wall = 0.04 + 0.22 * np.clip(1 - np.hypot(way[..., 0] + 0.25, way[..., 1] - 0.1) / 0.75, 0, 1) ** 1.5
    faded = light + (wall - light) * np.clip((far - 5) / 9, 0, 1)
    return np.where(is_sky, wall, np.where(on_table, faded, light))


if __name__ == "__main__":
    np.savez_compressed(OUT, landscape=landscape(), still_life=still_life())
