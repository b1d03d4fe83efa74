"""How far below the head the parameters of an encoder are."""

from torch import nn

from bertlab_modern.layer_depths import parameter_depths


def test_an_encoder_of_another_make() -> None:
    encoder = nn.Module()
    encoder.pooler = nn.Linear(8, 8)  # made first, and still at the top
    encoder.project = nn.Linear(8, 8)
    encoder.layers = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(12))
    encoder.final_norm = nn.LayerNorm(8)
    encoder.token_embedding = nn.Embedding(11, 8)  # made last, and still at the bottom
    depths = parameter_depths(encoder, "layer_decay")
    names = {parameter: name for name, parameter in encoder.named_parameters()}
    assert {names[parameter]: depth for parameter, depth in depths.items()} == {
        "pooler.weight": 0,
        "pooler.bias": 0,
        "project.weight": 13,
        "project.bias": 13,
        **{f"layers.{number}.weight": 12 - number for number in range(12)},
        "final_norm.weight": 0,
        "final_norm.bias": 0,
        "token_embedding.weight": 13,
    }


def test_an_encoder_names_the_lists_of_its_layers() -> None:
    encoder = nn.Module()
    encoder.layer_lists = ("down", "stack.up")
    encoder.token_embedding = nn.Embedding(11, 8)
    encoder.down = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(2))
    encoder.stack = nn.Module()
    encoder.stack.up = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(2))
    depths = parameter_depths(encoder, "layer_decay")
    # embeddings 3; the first of each list 2, the second 1
    assert [depths[each] for each in encoder.parameters()] == [3, 2, 1, 2, 1]
