"""Sizes of the speed comparisons: layers, hidden size, attention heads."""

SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "6x384": (6, 384, 12),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
